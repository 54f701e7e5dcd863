"""Checks of arguments that operations and layers have in common.

Each names the argument, and shows what was given for it.
"""

import math
import numbers
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.settings import counts
from ipu_keras.settings.argument_errors import converted as converted
from ipu_keras.settings.argument_errors import noted
from ipu_keras.settings.argument_errors import received as received

# In which programs compute.
_LARGEST = float(np.finfo(np.float32).max)


def static(value: Any) -> Any:
    """The value of a tensor that is known while a program is traced; all else as it is."""
    if not tf.is_tensor(value):
        return value
    known = tf.get_static_value(value)
    return value if known is None else known


def integer_in(value: Any) -> int | None:
    """The integer that a value is; `None` if it is none, as truth values are none here.

    Args:
        value: Anything; of tensors those with a static value.
    """
    return counts.integer_in(static(value))


def positive_integer(argument: str, value: Any) -> int:
    """A count: a positive integer of Python or NumPy, or a tensor with such a static value.

    Args:
        argument: What users call it.
        value: What was given.

    Raises:
        ValueError: It is no positive integer.
    """
    return counts.positive_integer(argument, static(value))


def check_integer(
    argument: str, value: Any, least: int | None = None, most: int = 2**63 - 1
) -> int:
    """An integer, such as the number of an axis.

    Args:
        argument: What users call it.
        value: What was given.
        least: The least that it may be; `None` for the opposite of `most`.
        most: The most that it may be.

    Raises:
        TypeError: It is no integer.
        ValueError: It is another one than those.
    """
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
    """A choice that is made while a program is traced.

    Args:
        argument: What users call it.
        value: What was given: a boolean of Python or NumPy, 0 or 1, or a tensor with such a
            static value.

    Raises:
        TypeError: It is none of these.
    """
    known = value if isinstance(value, bool) else static(value)
    if isinstance(known, bool | np.bool_):
        return bool(known)
    if isinstance(known, np.ndarray) and known.shape == () and known.dtype == bool:
        return bool(known)
    number = counts.integer_in(known)
    if number not in (0, 1):
        raise TypeError(
            f"`{argument}` must be True or False. Received: {received(argument, value)}"
        )
    return bool(number)


def check_choice(argument: str, value: Any, choices: Collection[str]) -> str:
    """One of some names.

    Args:
        argument: What users call it.
        value: What was given.
        choices: What may be given.

    Raises:
        ValueError: It is none of them.
    """
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"`{argument}` must be one of {', '.join(choices)}. "
            f"Received: {received(argument, value)}"
        )
    return value


def real_in(value: Any) -> float | None:
    """The finite number that a value is; `None` if it is none, as truth values are none here.

    Args:
        value: Anything. A tensor of a graph that has no value yet is none either.
    """
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
    """The probability of an element to be dropped.

    Args:
        value: What was given for `rate`.

    Raises:
        ValueError: It is no number from 0 up to but not including 1.
    """
    rate = real_in(value)
    if rate is None or not 0 <= rate < 1:
        raise noted(
            ValueError(f"The rate must be in the range [0, 1), but was {value}"),
            "It is the probability of an element to be dropped. Received: "
            f"{received('rate', value)}",
        )
    return rate


def check_share(argument: str, value: Any) -> float:
    """A part of a whole that is not all of it.

    Args:
        argument: What users call it.
        value: What was given.

    Raises:
        ValueError: It is no number from 0 up to but not including 1.
    """
    share = real_in(value)
    if share is None or not 0 <= share < 1:
        raise ValueError(
            f"`{argument}` must be in the range [0, 1). Received: {received(argument, value)}"
        )
    return share


def check_not_negative(argument: str, value: Any) -> float:
    """A number such as what is added to a variance.

    Args:
        argument: What users call it.
        value: What was given.

    Raises:
        ValueError: It is no number, or a negative one.
    """
    number = real_in(value)
    if number is None or number < 0:
        raise ValueError(
            f"`{argument}` must be a number that is not negative. "
            f"Received: {received(argument, value)}"
        )
    return number


def check_number(argument: str, value: Any) -> float:
    """A finite number.

    Args:
        argument: What users call it.
        value: What was given.

    Raises:
        TypeError: It is no number.
        ValueError: It is NaN, or beyond the numbers of float32, in which programs compute.
    """
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
    """A tensor.

    Args:
        argument: What users call it.
        value: What was given.
        dtypes: The types that it may have; `None` for all.

    Raises:
        TypeError: No tensor can be made of it, or it has another type.
        ValueError: No tensor can be made of it.
    """
    tensor = converted(argument, tf.convert_to_tensor, value)
    if dtypes is not None and tensor.dtype not in dtypes:
        *first, last = (dtype.name for dtype in dtypes)
        raise TypeError(
            f"`{argument}` must be of {', '.join(first)} or {last}; cast it first. "
            f"Received: a tensor of {tensor.dtype.name}"
        )
    return tensor


def check_floating(argument: str, value: Any) -> tf.Tensor:
    """A tensor of floating point numbers.

    Args:
        argument: What users call it.
        value: What was given.

    Raises:
        TypeError: It is of another type.
        ValueError: No tensor can be made of it.
    """
    tensor = check_tensor(argument, value)
    if not tensor.dtype.is_floating:
        raise TypeError(
            f"`{argument}` must be of a floating point type, such as tf.float32; cast it first. "
            f"Received: a tensor of {tensor.dtype.name}"
        )
    return tensor


def check_integers(argument: str, value: Any) -> tf.Tensor:
    """A tensor of integers.

    Args:
        argument: What users call it.
        value: What was given. An empty list is one of int32.

    Raises:
        TypeError: It is of another type.
        ValueError: No tensor can be made of it.
    """
    tensor = check_tensor(argument, value)
    if not tf.is_tensor(value) and tensor.shape.num_elements() == 0:
        return tf.cast(tensor, tf.int32)
    if not tensor.dtype.is_integer:
        raise TypeError(
            f"`{argument}` must be a tensor of integers, such as tf.int32; cast it first. "
            f"Received: a tensor of {tensor.dtype.name}"
        )
    return tensor
