"""Errors that name an argument, show what was given for it, or are worded as on hardware."""

from collections.abc import Callable
from typing import Any, TypeVar

_Error = TypeVar("_Error", bound=BaseException)

# Characters of a value that errors show; an array may have thousands.
_SHOWN = 300


def converted(argument: str, convert: Callable[..., Any], value: Any, *args: Any) -> Any:
    """Returns what `convert` makes of an argument; if it raises, the error names the argument.

    A TypeError stays one, any other error becomes a ValueError.

    Example:

    >>> converted("momentum", float, "0.5")
    0.5
    """
    try:
        return convert(value, *args)
    except Exception as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"`{argument}` is not what is taken for it. Received: {received(argument, value)}. "
            f"{error}"
        ) from error


def received(argument: str, value: Any) -> str:
    """Shows an argument in an error, shortened if it is long."""
    text = repr(value)
    return f"{argument}={text if len(text) <= _SHOWN else f'{text[:_SHOWN]}...'}"


def noted(error: _Error, note: str) -> _Error:
    """Adds a note to an error whose text is that of IPU software.

    Scripts and tests compare such texts as a whole, so what was received, and how to mend it, is
    a note, which Python prints below.

    Example:

    >>> error = noted(ValueError("serialization_factor has to be at least 1, but was 0."), "Use 1.")
    >>> str(error), error.__notes__
    ('serialization_factor has to be at least 1, but was 0.', ['Use 1.'])
    """
    error.add_note(note)
    return error
