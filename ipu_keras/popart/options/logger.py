"""PopART's loggers, which write to those of Python's `logging`."""

import functools
import logging
import sys
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ipu_keras.popart.exceptions import popart_exception

# PopART's names of its parts. Each but "all" has a logger "popart.<name>" in Python.
_MODULES = (
    "all",
    "popart",
    "session",
    "ir",
    "devicex",
    "transform",
    "pattern",
    "builder",
    "op",
    "opx",
    "ces",
    "python",
)
# Python has no level below DEBUG, whose number is 10.
_TRACE = 5
_LEVELS = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 1,
}


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _ToStandardError(logging.Handler):
    """Writes messages to the standard error as long as nothing else handles them."""

    def emit(self, record: logging.LogRecord) -> None:
        if _is_handled(record.name):
            return
        try:
            # Looked up at each message, as tests and notebooks replace `sys.stderr`.
            print(self.format(record), file=sys.stderr)
        except Exception:
            self.handleError(record)


def _is_handled(name: str) -> bool:
    """Whether users have set up where messages of a logger go."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(each, _ToStandardError) for each in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def python_logger(name: str) -> logging.Logger:
    """Returns Python's logger of a part of PopART, whose messages are seen without any set-up.

    The part `"all"` has the logger above all others.
    """
    above = logging.getLogger("popart")
    if not any(isinstance(each, _ToStandardError) for each in above.handlers):
        handler = _ToStandardError()
        handler.setFormatter(
            logging.Formatter("[%(asctime)s] [%(name)s] [%(levelname)s] %(message)s")
        )
        above.addHandler(handler)
    return above if name == "all" else above.getChild(name)


def logged(
    part: str, what: str, level: int
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Makes a function log that it begins and, unless it raises, how many seconds it took.

    Args:
        part: The part of PopART whose logger gets the messages.
        what: What the function does, such as "Compiling the program".
        level: Severity as a number of Python's `logging`.

    Example:

    >>> import logging
    >>> @logged("session", "Adding", logging.DEBUG)
    ... def add(a, b): return a + b
    >>> add(1, 2)
    3
    """

    logger = python_logger(part)

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def telling(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            if not logger.isEnabledFor(level):
                return function(*args, **kwargs)
            logger.log(level, "%s", what)
            start = time.perf_counter()
            result = function(*args, **kwargs)
            logger.log(level, "%s took %.3f s", what, time.perf_counter() - start)
            return result

        return telling

    return decorate


class Logger:
    """Writes messages of a part of PopART to Python's loggers below `popart`; see `getLogger`.

    Args:
        name: The part of PopART, such as `"session"`.
    """

    def __init__(self, name: str):
        self._logger = python_logger(name)

    def setLevel(self, level: str) -> None:
        """Sets which messages are written.

        Args:
            level: `"TRACE"`, `"DEBUG"`, `"INFO"`, `"WARN"`, `"ERR"`, `"CRITICAL"` or `"OFF"`.

        Raises:
            popart_exception: There is no such level.
        """
        if not isinstance(level, str) or level not in _LEVELS:
            raise popart_exception(
                f"Unknown logging level. Received: level={level!r}; it must be one of "
                f"{', '.join(map(repr, _LEVELS))}."
            )
        self._logger.setLevel(_LEVELS[level])

    def debug(self, message: str) -> None:
        """Writes a message for those who look for mistakes."""
        self._logger.debug("%s", message)

    def info(self, message: str) -> None:
        """Writes a message about what is done."""
        self._logger.info("%s", message)

    def warn(self, message: str) -> None:
        """Writes a message about something that may be wrong."""
        self._logger.warning("%s", message)

    def error(self, message: str) -> None:
        """Writes a message about something that is wrong."""
        self._logger.error("%s", message)

    def critical(self, message: str) -> None:
        """Writes a message about something after which the program cannot go on."""
        self._logger.critical("%s", message)


def getLogger(name: str = "all") -> Logger:
    """Returns the logger of a part of PopART, which is one of Python's.

    `"session"` tells at the level `"INFO"` when programs are compiled, exported and loaded, and
    at `"DEBUG"` what runs and what is copied; without a level warnings and errors are written.
    Messages go to the standard error, or, where handlers of Python's `logging` are set up, to
    these alone. Other parts have the messages that users write.

    Args:
        name: Such as `"session"`, `"builder"` or `"devicex"`; `"all"` for the one above them.

    Raises:
        popart_exception: There is no such part.

    Example:

    >>> getLogger("session").setLevel("DEBUG")
    """
    if name not in _MODULES:
        raise popart_exception(
            f"Unknown logger. Received: name={name!r}; it must be one of "
            f"{', '.join(map(repr, _MODULES))}."
        )
    return Logger(name)
