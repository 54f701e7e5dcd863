"""Makes names of tensors that are unique in a graph, the graphs around it and those within."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """The names of the tensors of one graph; `parent` has those of the graph around it.

    Two graphs side by side, such as the branches of an `If`, may use one name for two tensors. A
    graph and one within it may not: ONNX lets the inner one name tensors of the outer one.
    """

    def __init__(self, parent: Names | None = None):
        self._parent = parent
        self._within: list[Names] = []
        self._own: set[str] = set()
        self._scopes: list[str] = []
        if parent is not None:
            parent._within.append(self)

    def add(self, names: Iterable[str]) -> None:
        """Notes names that are used from now on."""
        self._own.update(names)

    def open_scope(self, name: str) -> None:
        """Puts a name and a slash before those that follow, behind those of open scopes."""
        self._scopes.append(name)

    def close_scope(self) -> None:
        """Closes the scope that was opened last."""
        self._scopes.pop()

    def in_scope(self, name: str) -> str:
        """Returns a name with those of the open scopes before it."""
        return "".join(f"{scope}/" for scope in self._scopes) + name

    def new(self, name: str, besides: Iterable[str] = ()) -> str:
        """Returns a name in the open scopes that is not taken, and not among `besides`."""
        # PopART adds "/1", "/2" and so on to names that are taken; scripts rely on these ids.
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
