"""Checks of arguments that operations and layers share.

`argument` is always the name by which users pass a value, and `value` what they passed; errors
show both: a TypeError for the wrong kind of value, a ValueError for one out of range. A tensor
counts as its static value wherever a number or a choice is expected, since a program is traced
once and cannot depend on values that come later.
"""

import math
import numbers
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.settings import arguments
from ipu_keras.settings.arguments import converted as converted
from ipu_keras.settings.arguments import noted
from ipu_keras.settings.arguments import received as received

# Programs compute in float32 at most.
_LARGEST = float(np.finfo(np.float32).max)


def static(value: Any) -> Any:
    """Returns the value of a tensor that is known while a program is traced; all else as it is."""
    if not tf.is_tensor(value):
        return value
    known = tf.get_static_value(value)
    return value if known is None else known


def integer_in(value: Any) -> int | None:
    """Returns the integer that a value is, or None. Booleans are not integers here."""
    return arguments.integer_in(static(value))


def positive_integer(argument: str, value: Any) -> int:
    """Returns a count, which is a positive integer."""
    return arguments.positive_integer(argument, static(value))


def check_integer(
    argument: str, value: Any, least: int | None = None, most: int = 2**63 - 1
) -> int:
    """Returns an integer, such as the number of an axis, from `least` (None: `-most`) to
    `most`."""
    integer = integer_in(value)
    if integer is None:
        raise TypeError(f"`{argument}` must be an integer. Received: {received(argument, value)}")
    least = -most if least is None else least
    if not least <= integer <= most:
        raise ValueError(
            f"`{argument}` must be at least {least}, and at most {most}. "
            f"Received: {received(argument, value)}"
        )
    return integer


def check_flag(argument: str, value: Any) -> bool:
    """Returns a choice that is made while a program is traced: a boolean, 0 or 1."""
    known = value if isinstance(value, bool) else static(value)
    if isinstance(known, bool | np.bool_):
        return bool(known)
    if isinstance(known, np.ndarray) and known.shape == () and known.dtype == bool:
        return bool(known)
    number = arguments.integer_in(known)
    if number not in (0, 1):
        raise TypeError(
            f"`{argument}` must be True or False. Received: {received(argument, value)}"
        )
    return bool(number)


def check_choice(argument: str, value: Any, choices: Collection[str]) -> str:
    """Returns one of the names in `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"`{argument}` must be one of {', '.join(choices)}. "
            f"Received: {received(argument, value)}"
        )
    return value


def real_in(value: Any) -> float | None:
    """Returns the finite number of float32 that a value is, or None. Booleans are not numbers
    here."""
    number = _number_in(value)
    return number if number is not None and abs(number) <= _LARGEST else None


def _number_in(value: Any) -> float | None:
    value = static(value)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "iuf":
        value = value[()]
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def check_rate(value: Any) -> float:
    """Returns a probability to drop an element, from 0 up to but not including 1."""
    rate = real_in(value)
    if rate is None or not 0 <= rate < 1:
        raise noted(
            ValueError(f"The rate must be in the range [0, 1), but was {value}"),
            "It is the probability of an element to be dropped. Received: "
            f"{received('rate', value)}",
        )
    return rate


def check_share(argument: str, value: Any) -> float:
    """Returns a part of a whole, from 0 up to but not including 1."""
    share = real_in(value)
    if share is None or not 0 <= share < 1:
        raise ValueError(
            f"`{argument}` must be in the range [0, 1). Received: {received(argument, value)}"
        )
    return share


def check_not_negative(argument: str, value: Any) -> float:
    """Returns a number that is not negative, such as what is added to a variance."""
    number = real_in(value)
    if number is None or number < 0:
        raise ValueError(
            f"`{argument}` must be a number that is not negative. "
            f"Received: {received(argument, value)}"
        )
    return number


def check_number(argument: str, value: Any) -> float:
    """Returns a finite number of float32, in which programs compute: neither NaN nor infinite."""
    number = _number_in(value)
    if number is None:
        raise TypeError(f"`{argument}` must be a number. Received: {received(argument, value)}")
    if not abs(number) <= _LARGEST:
        raise ValueError(
            f"`{argument}` must be a finite number of float32. "
            f"Received: {received(argument, value)}"
        )
    return number


def check_tensor(
    argument: str, value: Any, dtypes: Collection[tf.DType] | None = None
) -> tf.Tensor:
    """Returns a tensor, of one of the types in `dtypes` if they are given."""
    tensor = converted(argument, tf.convert_to_tensor, value)
    if dtypes is not None and tensor.dtype not in dtypes:
        *first, last = (dtype.name for dtype in dtypes)
        raise TypeError(
            f"`{argument}` must be of {', '.join(first)} or {last}; cast it first. "
            f"Received: a tensor of {tensor.dtype.name}"
        )
    return tensor


def check_floating(argument: str, value: Any) -> tf.Tensor:
    """Returns a tensor of floating point numbers."""
    tensor = check_tensor(argument, value)
    if not tensor.dtype.is_floating:
        raise TypeError(
            f"`{argument}` must be of a floating point type, such as tf.float32; cast it first. "
            f"Received: a tensor of {tensor.dtype.name}"
        )
    return tensor


def check_integers(argument: str, value: Any) -> tf.Tensor:
    """Returns a tensor of integers."""
    tensor = check_tensor(argument, value)
    # TensorFlow makes float32 of an empty list.
    if not tf.is_tensor(value) and tensor.shape.num_elements() == 0:
        return tf.cast(tensor, tf.int32)
    if not tensor.dtype.is_integer:
        raise TypeError(
            f"`{argument}` must be a tensor of integers, such as tf.int32; cast it first. "
            f"Received: a tensor of {tensor.dtype.name}"
        )
    return tensor
