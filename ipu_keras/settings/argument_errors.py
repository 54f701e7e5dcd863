"""Errors that name an argument, show what was given for it, or are worded as on hardware."""

from collections.abc import Callable
from typing import Any, TypeVar

_Error = TypeVar("_Error", bound=BaseException)

# Of what was given, so much of its text is shown.
_SHOWN = 300


def converted(argument: str, convert: Callable[..., Any], value: Any, *args: Any) -> Any:
    """What a function makes of an argument; where it refuses it, the error names the argument.

    Args:
        argument: What users call it.
        convert: Called with the value and `args`, such as `float`.
        value: What was given.
        *args: What else `convert` is called with.

    Raises:
        TypeError: `convert` raised one.
        ValueError: `convert` raised another error.

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
    """How errors show what was given, which may be long."""
    text = repr(value)
    return f"{argument}={text if len(text) <= _SHOWN else f'{text[:_SHOWN]}...'}"


def noted(error: _Error, note: str) -> _Error:
    """An error whose text is that of IPU software, with what there is to say besides as a note.

    Scripts and tests compare such texts as a whole; Python prints notes below them.

    Args:
        error: With the text.
        note: What was received, and how to mend it.

    Example:

    >>> error = noted(ValueError("serialization_factor has to be at least 1, but was 0."), "Use 1.")
    >>> str(error), error.__notes__
    ('serialization_factor has to be at least 1, but was 0.', ['Use 1.'])
    """
    error.add_note(note)
    return error
