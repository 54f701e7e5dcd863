"""Warnings of options that are taken and change nothing here.

A process is told of each option once, however often it is set; what one configuration sets is
one warning. Python's own filter for that, `once`, forgets whenever anybody changes a filter.
"""

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar


class OptionWarning(UserWarning):
    """An option was set that has no effect here; the text says which, and why."""


class OptionWarnings:
    """Warns of each option once.

    Example:

    >>> found = OptionWarnings()
    >>> with warnings.catch_warnings(record=True) as raised:
    ...     warnings.simplefilter("always")
    ...     for _ in range(2):
    ...         found.warn("flags", ["speed", "size"], lambda names: f"No effect: {names}")
    >>> [str(warning.message) for warning in raised]
    ['No effect: speed, size']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._named: set[tuple[str, str]] = set()
        # While a group is open: what its warning will name, and the texts about that.
        self._group: ContextVar[list[tuple[set[tuple[str, str]], str]] | None] = ContextVar(
            "group", default=None
        )

    def warn(
        self,
        source: str,
        options: Iterable[str] | Mapping[str, str],
        text: Callable[[str], str],
        *,
        stacklevel: int = 1,
    ) -> None:
        """Warns of the options that no warning has named yet.

        Args:
            source: What was configured: the same option may come from several.
            options: Names; or reasons by name, each of which gets a line after the text.
            text: Returns the warning for names with commas between them.
            stacklevel: As for `warnings.warn`, counted from the caller. In a group, the group's
                counts.
        """
        new = [name for name in options if (source, name) not in self._named]
        if not new:
            return
        lines = [text(", ".join(new))]
        if isinstance(options, Mapping):
            lines += [f"  {name}: {options[name]}" for name in new]
        named = {(source, name) for name in new}
        group = self._group.get()
        if group is None:
            self._raise([(named, "\n".join(lines))], stacklevel + 2)
        else:
            group.append((named, "\n".join(lines)))

    @contextlib.contextmanager
    def together(self, *, stacklevel: int = 1) -> Iterator[None]:
        """Collects the warnings of a block into one, which is raised at its end.

        Args:
            stacklevel: As for `warnings.warn`, counted from whoever opens the block.
        """
        group: list[tuple[set[tuple[str, str]], str]] = []
        token = self._group.set(group)
        try:
            yield
        finally:
            self._group.reset(token)
        # Not in `finally`: an error within goes before warnings. Two more frames are
        # `contextlib`'s.
        if group:
            self._raise(group, stacklevel + 3)

    def forget(self) -> None:
        """Makes all options be warned of again, as in a new process."""
        with self._lock:
            self._named.clear()

    def _raise(self, group: list[tuple[set[tuple[str, str]], str]], stacklevel: int) -> None:
        warnings.warn("\n".join(text for _, text in group), OptionWarning, stacklevel=stacklevel)
        # Only now, so that where a filter turns warnings into errors, the next call raises
        # again.
        with self._lock:
            self._named.update(*(named for named, _ in group))


# The warnings of the process.
OPTION_WARNINGS = OptionWarnings()
