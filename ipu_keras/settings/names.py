"""Checks and shows names that users give."""

from typing import Any


def checked_name(argument: str, value: Any) -> str:
    """Returns a name that is one line of visible text, or raises.

    Raises a `TypeError` if it is no text, and a `ValueError` if it is blank, or has characters
    that cannot be printed.

    Example:

    >>> checked_name("feed_name", "training")
    'training'
    """
    if not isinstance(value, str):
        raise TypeError(f"`{argument}` must be a string. Received: {argument}={value!r}")
    if not value.strip() or not value.isprintable():
        raise ValueError(
            f"`{argument}` must be a text of one line that is not empty. "
            f"Received: {argument}={value!r}"
        )
    return value


def legible(text: str, kept: str = "") -> str:
    """Replaces characters that a terminal would obey by their escapes in Python.

    Args:
        text: Names that come from anywhere, such as a file of somebody else's.
        kept: Characters that stay, such as those between lines.

    Example:

    >>> print(legible("\\x1b[31mred\\n", kept="\\n"), end="")
    \\x1b[31mred
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else repr(one)[1:-1] for one in text)


def name_or_none(argument: str, value: Any) -> str | None:
    """Does what `checked_name` does, for an argument that may be `None`."""
    return None if value is None else checked_name(argument, value)
