"""Checks of arguments that operations and layers have in common.

Each names the argument, and shows what was given for it.
"""

import math
import numbers
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.settings.counts import integer_in as integer_in
from ipu_keras.settings.counts import positive_integer as positive_integer


def real_in(value: Any) -> float | None:
    """The finite number that a value is; `None` if it is none, as truth values are none here.

    Args:
        value: Anything. A tensor of a graph has no value yet, and is none either.
    """
    if isinstance(value, bool | np.bool_):
        return None
    is_scalar = isinstance(value, np.ndarray) or tf.is_tensor(value)
    if not isinstance(value, numbers.Real) and not is_scalar:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, NotImplementedError):
        return None
    return number if math.isfinite(number) else None


def check_rate(value: Any) -> float:
    """The probability of an element to be dropped.

    Args:
        value: What was given for `rate`.

    Raises:
        ValueError: It is no number from 0 up to but not including 1.
    """
    rate = real_in(value)
    if rate is None or not 0 <= rate < 1:
        raise ValueError(
            f"The rate must be in the range [0, 1), but was {value}. It is the probability of an "
            f"element to be dropped. Received: rate={value!r}"
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
            f"`{argument}` must be in the range [0, 1). Received: {argument}={value!r}"
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
            f"`{argument}` must be a number that is not negative. Received: {argument}={value!r}"
        )
    return number


def check_floating(argument: str, value: Any) -> tf.Tensor:
    """A tensor of floating point numbers.

    Args:
        argument: What users call it.
        value: What was given.

    Raises:
        TypeError: It is of another type.
    """
    tensor = tf.convert_to_tensor(value)
    if not tensor.dtype.is_floating:
        raise TypeError(
            f"`{argument}` must be of a floating point type, such as tf.float32; cast it first. "
            f"Received: a tensor of {tensor.dtype.name}"
        )
    return tensor
