"""Checks of the options that accumulators of gradients have."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

# The data type of accumulators: one for all, or what a function of a variable returns; `None`
# stands for that of the variable.
DTypeChoice: TypeAlias = tf.DType | Callable[[Any], Any] | None


def dtype_choice(name: str, value: Any) -> DTypeChoice:
    """Returns the data type of accumulators that an argument `name` stands for."""
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
    """Returns the data type of an accumulator for `value`, which may be a variable.

    `dtype` is None for that of the value, a dtype, or a function from the value to one.
    """
    # Types such as `np.float16` can be called, too, but do not map variables to types.
    if callable(dtype) and not isinstance(dtype, type | tf.DType):
        dtype = dtype(value)
    return tf.as_dtype(value.dtype if dtype is None else dtype)


def check_choice(name: str, value: Any) -> None:
    """Refuses an option that is neither True, False nor None, which leaves it to the compiler."""
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"`{name}` must be True, False or None. Received: {name}={value!r}")
