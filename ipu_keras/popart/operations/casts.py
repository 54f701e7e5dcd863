"""Casts between types of elements, and from and to text."""

from typing import Any

import tensorflow as tf

from ipu_keras.popart.operations.element_types import type_of
from ipu_keras.popart.operations.operation import operation

# So many digits tell each number of a type from its neighbours.
_MOST_DIGITS = {tf.float16: 5, tf.float32: 9, tf.float64: 17}


@operation("Cast", since=6, elementwise=True)
def cast(x, *, to):
    dtype = type_of(to)
    if dtype is x.dtype:
        return x
    if x.dtype is tf.string:
        return _number_in(x, dtype)
    if dtype is tf.string:
        return _text_of(x)
    return tf.cast(x, dtype)


def _number_in(text: Any, dtype: tf.DType) -> Any:
    if dtype in (tf.float32, tf.float64, tf.int32, tf.int64):
        return tf.strings.to_number(text, dtype)
    return tf.cast(tf.strings.to_number(text, tf.float64), dtype)


def _text_of(x: Any) -> Any:
    """A number as text, with as few digits as give it again."""
    digits = _MOST_DIGITS.get(x.dtype)
    if digits is None:
        return tf.strings.as_string(x)
    text = tf.strings.as_string(x, precision=digits, shortest=True)
    for fewer in range(digits - 1, 0, -1):
        shorter = tf.strings.as_string(x, precision=fewer, shortest=True)
        text = tf.where(_number_in(shorter, x.dtype) == x, shorter, text)
    return text
