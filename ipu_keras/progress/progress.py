"""Keeps the phase that something is in, and for how long."""

import time


class Progress:
    """What a display draws."""

    def __init__(self, title: str):
        self.title = title
        self._begun = time.perf_counter()
        # One tuple, because the drawing thread reads the name and the time without a lock.
        self._current: tuple[str, float] = ("", self._begun)

    def enter(self, name: str) -> tuple[str, float]:
        """Begins a phase, and returns the one that it interrupts, for `leave`."""
        before, self._current = self._current, (name, time.perf_counter())
        return before

    def leave(self, before: tuple[str, float]) -> None:
        """Ends a phase, and goes on with the one that `enter` returned."""
        self._current = before

    def now(self) -> tuple[str, float, float]:
        """Returns the phase's name, its seconds so far, and the seconds since the beginning."""
        (name, begun), now = self._current, time.perf_counter()
        return name, now - begun, now - self._begun
