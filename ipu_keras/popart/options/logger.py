"""PopART's loggers, which are Python's."""

import logging

from ipu_keras.popart.exceptions import popart_exception

# As PopART calls its parts. Each but "all" has a logger "popart.<name>" in Python.
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


class Logger:
    """Writes messages of a part of PopART to the logger `popart` of Python; see `getLogger`.

    Args:
        name: Of the part.
    """

    def __init__(self, name: str):
        self._logger = logging.getLogger("popart" if name == "all" else f"popart.{name}")

    def setLevel(self, level: str) -> None:
        """Sets which messages are written.

        Args:
            level: `"TRACE"`, `"DEBUG"`, `"INFO"`, `"WARN"`, `"ERR"`, `"CRITICAL"` or `"OFF"`.

        Raises:
            popart_exception: It is none of these.
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
        """Writes a message of what is done."""
        self._logger.info("%s", message)

    def warn(self, message: str) -> None:
        """Writes a message of what may be wrong."""
        self._logger.warning("%s", message)

    def error(self, message: str) -> None:
        """Writes a message of what is wrong."""
        self._logger.error("%s", message)

    def critical(self, message: str) -> None:
        """Writes a message of what cannot be gone on after."""
        self._logger.critical("%s", message)


def getLogger(name: str = "all") -> Logger:
    """The logger of a part of PopART.

    Args:
        name: Such as `"session"`, `"builder"` or `"devicex"`; `"all"` for that above them.

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
