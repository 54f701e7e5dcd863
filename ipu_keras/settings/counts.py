"""Checks counts that users give."""

import itertools
import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

# Programs count in int32.
MOST = 2**31 - 1


def positive_integer(name: str, value: Any) -> int:
    """Returns a count as a Python integer, or raises a `ValueError`.

    It may be an integer of NumPy, or a tensor of one, such as the cardinality of a dataset.

    Example:

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
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except (TypeError, AttributeError):  # the second from TensorFlow's tensors of other types
        return None


def divisors(number: int) -> Iterator[int]:
    """Returns the divisors of a positive integer, in no order; a root may be there twice.

    Example:

    >>> sorted(set(divisors(12)))
    [1, 2, 3, 4, 6, 12]
    """
    # Divisors come in pairs, of which one is at most the root.
    small = [k for k in range(1, math.isqrt(number) + 1) if number % k == 0]
    return itertools.chain(small, (number // k for k in small))
