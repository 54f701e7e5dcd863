"""Log messages of sessions, which go to the logger that `popart.getLogger("session")` returns."""

import functools
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ipu_keras.popart.options.logger import python_logger

_LOGGER = python_logger("session")

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def logged(
    what: str, level: int
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Makes a function log that it begins and, unless it raises, how many seconds it took.

    Args:
        what: What the function does, such as "Compiling the program".
        level: Severity as a number of Python's `logging`.

    Example:

    >>> import logging
    >>> @logged("Adding", logging.DEBUG)
    ... def add(a, b): return a + b
    >>> add(1, 2)
    3
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def telling(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            if not _LOGGER.isEnabledFor(level):
                return function(*args, **kwargs)
            _LOGGER.log(level, "%s", what)
            start = time.perf_counter()
            result = function(*args, **kwargs)
            _LOGGER.log(level, "%s took %.3f s", what, time.perf_counter() - start)
            return result

        return telling

    return decorate
