"""What the package does without, as a private name has another form than the one it relies on.

Results are the same without it, and take longer.
"""

import functools
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

_LOGGER = logging.getLogger("ipu_keras")


class Fallbacks:
    """Counts how often something was done in a slower way, and logs why the first time.

    Example:

    >>> found = Fallbacks()
    >>> found.note("joint batches", ValueError("`pfor` has another form"))
    >>> found.counts["joint batches"]
    1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """How often, by what was done without, as it is now."""
        with self._lock:
            return MappingProxyType(dict(self._counts))

    def note(self, speed: str, reason: Exception) -> None:
        """Counts one use of a slower way.

        Args:
            speed: What is done without.
            reason: Says what it would need.
        """
        with self._lock:
            is_first = not self._counts[speed]
            self._counts[speed] += 1
        if is_first:
            _LOGGER.warning("Going on without %s, which takes longer: %s", speed, reason)


@functools.cache
def fallbacks() -> Fallbacks:
    """Those of the process."""
    return Fallbacks()
