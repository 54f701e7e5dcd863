"""Lets variables of zeros take no memory until somebody writes them."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ipu_keras.internals.fallbacks import fallbacks
from ipu_keras.internals.keras.backend import initialization_of

# Elements; smaller ones are made as ever, since nobody misses their memory.
_LARGE = 2**18

# TensorFlow takes tensors of other alignments, but copies them wherever it reads them.
_ALIGNMENT = 64

# Types that NumPy exchanges with TensorFlow.
_DTYPES = ("float16", "float32", "float64")


def untouched_zeros() -> contextlib.AbstractContextManager:
    """Returns a context in which Keras's large variables of zeros take no memory until written.

    The state of an optimizer, often twice as large as the weights in float32, is there for a
    profile, which only needs its types. Memory that the operating system gives has zeros in it,
    and counts when it is touched: TensorFlow writes zeros of its own there.

    Example:

    >>> with untouched_zeros():
    ...     state = keras.Variable("zeros", shape=(1024, 1024))
    >>> float(keras.ops.sum(state))
    0.0
    """
    return tf.variable_creator_scope(_made)


def _made(next_creator: Callable[..., Any], **options: Any) -> Any:
    found = fallbacks().attempt(
        "state of optimizers without memory", initialization_of, options["initial_value"]
    )
    if found is not None:
        initializer, variable = found
        is_zero = type(initializer) is keras.initializers.Zeros and variable.dtype in _DTYPES
        if is_zero and np.prod(variable.shape, dtype=int) >= _LARGE:
            options["initial_value"] = _zeros(variable.shape, variable.dtype)
    return next_creator(**options)


def _zeros(shape: tuple[int, ...], dtype: str) -> tf.Tensor:
    num_bytes = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    memory = np.zeros(num_bytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    array = memory[start : start + num_bytes].view(dtype).reshape(shape)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
