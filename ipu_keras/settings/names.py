"""Names that users give."""

from typing import Any


def checked_name(argument: str, value: Any) -> str:
    """Checks a name.

    Args:
        argument: What it was given as, for the error.
        value: A text that is not blank, on one line.

    Raises:
        TypeError: It is no text.
        ValueError: It is empty or blank, or has characters that cannot be printed.

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
    """A text without what a terminal would obey: such characters are written as Python does.

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
    """As `checked_name`, of an argument that need not be given.

    Args:
        argument: What it was given as, for the error.
        value: A name, or `None`.

    Raises:
        TypeError: It is neither a text nor `None`.
        ValueError: As of `checked_name`.
    """
    return None if value is None else checked_name(argument, value)
