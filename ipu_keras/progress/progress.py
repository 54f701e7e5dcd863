"""How far something has come."""

import time


class Progress:
    """What a display draws.

    Args:
        title: What is compiled or profiled.
    """

    def __init__(self, title: str):
        self.title = title
        self._begun = time.perf_counter()
        # The phase and when it began, replaced as one, as another thread reads them.
        self._current: tuple[str, float] = ("", self._begun)

    def enter(self, name: str) -> tuple[str, float]:
        """Begins a phase.

        Args:
            name: Of it.

        Returns:
            The phase that it interrupts, for `leave`.
        """
        before, self._current = self._current, (name, time.perf_counter())
        return before

    def leave(self, before: tuple[str, float]) -> None:
        """Ends a phase, and goes on with the one that it interrupted.

        Args:
            before: What `enter` returned.
        """
        self._current = before

    def now(self) -> tuple[str, float, float]:
        """The phase, its seconds so far, and those of everything."""
        (name, begun), now = self._current, time.perf_counter()
        return name, now - begun, now - self._begun
