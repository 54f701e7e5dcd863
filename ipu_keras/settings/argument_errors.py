"""Errors that name an argument, and show what was given for it."""

from collections.abc import Callable
from typing import Any

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
