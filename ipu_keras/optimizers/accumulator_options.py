"""What optimizers that accumulate gradients can be told about their accumulators."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

# The data type of accumulators: one for all, or what a function of a variable returns;
# `None` is that of the variable.
DTypeChoice: TypeAlias = tf.DType | Callable[[Any], Any] | None


def dtype_choice(name: str, value: Any) -> DTypeChoice:
    """The data type of accumulators that an argument stands for.

    Args:
        name: What users call the argument.
        value: What they gave.

    Raises:
        TypeError: It is no floating point type and no function.
    """
    if value is None:
        return None
    # TensorFlow also takes numbers and arrays, which nobody means as a type.
    names_one = isinstance(value, str | type | np.dtype | tf.DType)
    if not names_one and callable(value):
        return value
    with contextlib.suppress(TypeError):
        if names_one and (dtype := tf.as_dtype(value)).is_floating:
            return dtype
    raise TypeError(
        f"`{name}` must be None, a floating point type such as tf.float32, or a function that "
        f"takes a variable and returns one. Received: {name}={value!r}"
    )


def dtype_for(value: Any, dtype: Any) -> tf.DType:
    """The data type of an accumulator.

    Args:
        value: What is accumulated, or the variable whose gradient it is.
        dtype: `None` for the same, a dtype, or a function from the value to one.
    """
    if callable(dtype) and not isinstance(dtype, type | tf.DType):
        dtype = dtype(value)
    return tf.as_dtype(value.dtype if dtype is None else dtype)


def check_choice(name: str, value: Any) -> None:
    """Checks an option that is on, off, or left to the compiler.

    Args:
        name: What users call it.
        value: What they gave.

    Raises:
        TypeError: It is none of these.
    """
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"`{name}` must be True, False or None. Received: {name}={value!r}")
