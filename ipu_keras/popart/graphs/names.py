"""Names of tensors, which are unique in a graph, those around it and those within."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """The names of tensors of one graph.

    Two graphs side by side, such as the branches of an `If`, may use one name for two tensors; a
    graph and one within it may not.

    Args:
        parent: Names of the graph around; `None` for the main graph.
    """

    def __init__(self, parent: Names | None = None):
        self._parent = parent
        self._within: list[Names] = []
        self._own: set[str] = set()
        self._scopes: list[str] = []
        if parent is not None:
            parent._within.append(self)

    def add(self, names: Iterable[str]) -> None:
        """Notes names that are used from now on.

        Args:
            names: They are unique.
        """
        self._own.update(names)

    def open_scope(self, name: str) -> None:
        """Puts a name and a slash before those that follow, after those of open scopes.

        Args:
            name: Of the scope.
        """
        self._scopes.append(name)

    def close_scope(self) -> None:
        """Ends the scope that was opened last."""
        self._scopes.pop()

    def in_scope(self, name: str) -> str:
        """A name with those of the open scopes before it.

        Args:
            name: It.
        """
        return "".join(f"{scope}/" for scope in self._scopes) + name

    def new(self, name: str, besides: Iterable[str] = ()) -> str:
        """A name for a tensor that nothing has yet.

        Args:
            name: Without those of scopes; what is taken gets a number behind it.
            besides: What is taken as well.
        """
        whole = self.in_scope(name)
        taken = set(besides)
        found, number = whole, 0
        while found in taken or self._is_taken(found):
            number += 1
            found = f"{whole}/{number}"
        return found

    def _is_taken(self, name: str) -> bool:
        around = self._parent
        while around is not None:
            if name in around._own:
                return True
            around = around._parent
        return self._is_taken_here_or_within(name)

    def _is_taken_here_or_within(self, name: str) -> bool:
        return name in self._own or any(
            each._is_taken_here_or_within(name) for each in self._within
        )
