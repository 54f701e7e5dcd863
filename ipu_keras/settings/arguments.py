"""Checks what users give for arguments, and words errors about it, for all rooms."""

import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterator
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


# Programs count in int32.
MOST = 2**31 - 1


def positive_integer(name: str, value: Any) -> int:
    """Returns a count as a Python integer, or raises a `ValueError`.

    It may be an integer of NumPy, or a tensor of one, such as the cardinality of a dataset.

    Example:

    >>> import numpy as np
    >>> positive_integer("steps_per_execution", np.int64(8))
    8
    """
    count = integer_in(value)
    if count is None or count < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    if count > MOST:
        raise ValueError(
            f"`{name}` must be at most {MOST}, as programs count in 32 bits. "
            f"Received: {name}={value!r}"
        )
    return count


def positive_or_none(name: str, value: Any) -> int | None:
    """Does what `positive_integer` does, for an argument that may be `None`."""
    return None if value is None else positive_integer(name, value)


def integer_in(value: Any) -> int | None:
    """Returns the integer that a value is; `None` if it is none, as truth values are none here."""
    if is_truth_value(value):
        return None
    try:
        return operator.index(value)
    except (TypeError, AttributeError):  # the second from TensorFlow's tensors of other types
        return None


def is_truth_value(value: Any) -> bool:
    """Whether a value is a truth value of Python or NumPy."""
    # No value is NumPy's before it is imported, which takes longer than all that commands do
    # which only list something.
    numpy = sys.modules.get("numpy")
    return isinstance(value, bool) or (numpy is not None and isinstance(value, numpy.bool_))


def divisors(number: int) -> Iterator[int]:
    """Returns the divisors of a positive integer, in no order; a root may be there twice.

    Example:

    >>> sorted(set(divisors(12)))
    [1, 2, 3, 4, 6, 12]
    """
    # Divisors come in pairs, of which one is at most the root.
    small = [k for k in range(1, math.isqrt(number) + 1) if number % k == 0]
    return itertools.chain(small, (number // k for k in small))


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


def checked_switch(argument: str, value: Any) -> bool:
    """Returns a truth value of Python or NumPy as a bool, or raises a `TypeError`.

    Other values, such as the text `"False"`, would be truth values that nobody meant.

    Example:

    >>> checked_switch("asynchronous", True)
    True
    """
    if not is_truth_value(value):
        raise TypeError(f"`{argument}` must be True or False. Received: {argument}={value!r}")
    return bool(value)
