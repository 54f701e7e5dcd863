"""Casts between types of elements, and from and to strings."""

from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.element_types import number_of_type, type_of
from ipu_keras.popart.operations.operation import operation

# This many decimal digits distinguish each number of a type from its neighbours.
_MOST_DIGITS = {tf.float16: 5, tf.float32: 9, tf.float64: 17}


# A session narrows integers to 32 bits, so a cast to 64 bits has to saturate at their limits.
_LIMITS = {tf.int64: tf.int32, tf.uint64: tf.uint32}


@operation("Cast", since=6, elementwise=True)
def cast(x, *, to, context):
    dtype = type_of(to)
    if dtype is x.dtype:
        return x
    if x.dtype is tf.string:
        return _number_in(x, dtype)
    if dtype is tf.string:
        return _text_of(x)
    if x.dtype.is_floating and dtype.is_integer:
        is_narrowed = context.narrows and tf.is_symbolic_tensor(x)
        return _whole(x, _LIMITS.get(dtype, dtype) if is_narrowed else dtype)
    return tf.cast(x, dtype)


@operation("Cast", since=19, elementwise=True)
def cast_19(x, *, to, saturate, context):
    # `saturate` is about floating point numbers of 8 bits alone, which `type_of` refuses, and so is
    # `round_mode` since version 24.
    return cast(x, to=to, context=context)


@operation("Cast", since=24, elementwise=True)
def cast_24(x, *, to, saturate, round_mode, context):
    return cast(x, to=to, context=context)


@operation("CastLike", since=15)
def cast_like(x, target_type, *, context):
    return cast(x, to=number_of_type(target_type.dtype), context=context)


@operation("CastLike", since=19)
def cast_like_19(x, target_type, *, saturate, context):
    return cast_like(x, target_type, context=context)


@operation("CastLike", since=24)
def cast_like_24(x, target_type, *, saturate, round_mode, context):
    return cast_like(x, target_type, context=context)


@operation("BitCast", since=26, elementwise=True)
def bit_cast(x, *, to):
    dtype = type_of(to)
    if dtype.size != x.dtype.size:
        raise popart_exception(
            f"The types must have as many bits. Received: {x.dtype.name}, to become {dtype.name}"
        )
    return tf.bitcast(x, dtype)


def _whole(x: Any, dtype: tf.DType) -> Any:
    """Casts to integers towards zero, saturating at the limits of the type.

    NaN becomes the least int32, as on an IPU, and 0 of any other type. TensorFlow's own kernels
    leave what is out of range to the processor.
    """
    # The first numbers outside of the limits. Where the type of `x` cannot hold these, they round
    # to the limits themselves, which the comparisons below take care of.
    with np.errstate(over="ignore"):
        below, above = np.array([dtype.min - 1, dtype.max + 1]).astype(x.dtype.as_numpy_dtype)
    inside = tf.cast(tf.where((x > below) & (x < above), x, tf.zeros([], x.dtype)), dtype)
    limited = tf.where(x >= above, tf.constant(dtype.max, dtype), inside)
    is_least = x <= below
    if dtype is tf.int32:
        is_least |= tf.math.is_nan(x)
    return tf.where(is_least, tf.constant(dtype.min, dtype), limited)


def _number_in(text: Any, dtype: tf.DType) -> Any:
    if dtype in (tf.float32, tf.float64, tf.int32, tf.int64):
        return tf.strings.to_number(text, dtype)
    number = tf.strings.to_number(text, tf.float64)
    return _whole(number, dtype) if dtype.is_integer else tf.cast(number, dtype)


def _text_of(x: Any) -> Any:
    """Writes each number with as few digits as read back as the same number."""
    digits = _MOST_DIGITS.get(x.dtype)
    if digits is None:
        return tf.strings.as_string(x)
    text = tf.strings.as_string(x, precision=digits, shortest=True)
    for fewer in range(digits - 1, 0, -1):
        shorter = tf.strings.as_string(x, precision=fewer, shortest=True)
        text = tf.where(_number_in(shorter, x.dtype) == x, shorter, text)
    return text
