"""What sessions tell of what they do, to the logger that is `popart.getLogger("session")`."""

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
    """Has a function tell when it begins, and how long it took if it did not fail.

    Args:
        what: It does, such as "Compiling the program".
        level: Of the messages, of Python's `logging`.

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
