"""Does without what needs a private name that has another form than expected.

Results are the same without it, and take longer.
"""

import functools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ParamSpec, TypeVar

from ipu_keras.internals.forms import FormError

P = ParamSpec("P")
T = TypeVar("T")

_LOGGER = logging.getLogger("ipu_keras")


class Fallbacks:
    """Counts how often something was done in a slower way, and logs why the first time.

    Example:

    >>> from ipu_keras.internals.forms import Function, PrivateName
    >>> found = Fallbacks()
    >>> found.attempt("quick wraps", PrivateName("textwrap", "_quick", Function("text")).get)
    >>> dict(found.counts)
    {'quick wraps': 1}
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each speed-up was done without, by its name, as it is now."""
        with self._lock:
            return MappingProxyType(dict(self._counts))

    def attempt(
        self, speed: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """Calls a function that needs private names; returns `None` if one has another form.

        An `ImportError` counts as well: the library of a compiled module may lack a symbol.

        Args:
            speed: The speed-up that is lost, in the words of the log.
            function: Must change nothing before it has found all its names.
        """
        try:
            return function(*args, **kwargs)
        except (FormError, ImportError) as error:
            self._note(speed, error)
            return None

    def _note(self, speed: str, reason: Exception) -> None:
        with self._lock:
            is_first = not self._counts[speed]
            self._counts[speed] += 1
        if is_first:
            _LOGGER.warning("Going on without %s, which takes longer: %s", speed, reason)


@functools.cache
def fallbacks() -> Fallbacks:
    return Fallbacks()
