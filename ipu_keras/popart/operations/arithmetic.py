"""Elementwise arithmetic of ONNX.

Shapes broadcast as in NumPy from version 7 on; before, `aligned` applies the attributes for it.
"""

from functools import reduce
from typing import Any

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.broadcasting import aligned
from ipu_keras.popart.operations.operation import operation


@operation("Add", since=7, elementwise=True)
def add(a, b):
    return a + b


@operation("Add", since=6)
def add_6(a, b, *, axis=None, broadcast):
    return a + aligned(a, b, axis, broadcast)


@operation("Sub", since=7, elementwise=True)
def sub(a, b):
    return a - b


@operation("Sub", since=6)
def sub_6(a, b, *, axis=None, broadcast):
    return a - aligned(a, b, axis, broadcast)


@operation("Mul", since=7, elementwise=True)
def mul(a, b):
    return a * b


@operation("Mul", since=6)
def mul_6(a, b, *, axis=None, broadcast):
    return a * aligned(a, b, axis, broadcast)


@operation("Div", since=7, elementwise=True)
def div(a, b):
    # ONNX divides integers as C does, towards zero.
    return tf.truncatediv(a, b) if a.dtype.is_integer else a / b


@operation("Div", since=6)
def div_6(a, b, *, axis=None, broadcast):
    return div(a, aligned(a, b, axis, broadcast))


@operation("Pow", since=7, elementwise=True)
def pow_(x, y):
    return tf.pow(x, y)


@operation("Pow", since=12, elementwise=True)
def pow_12(x, y):
    if x.dtype == y.dtype:
        return tf.pow(x, y)
    if x.dtype.is_integer and y.dtype.is_floating:
        # The result has the type of the base, so an integer gets the power without its fraction.
        return tf.cast(tf.pow(tf.cast(x, tf.float64), tf.cast(y, tf.float64)), x.dtype)
    return tf.pow(x, tf.cast(y, x.dtype))


@operation("Pow")
def pow_1(x, y, *, axis=None, broadcast):
    return tf.pow(x, aligned(x, y, axis, broadcast))


@operation("Mod", since=10, elementwise=True)
def mod(a, b, *, fmod):
    # ONNX's text wants fmod=1 for floating point numbers; PopART takes 0 for these as well.
    return _remainder(a, b) if fmod else tf.math.floormod(a, b)


@operation("Mod", since=28, elementwise=True)
def mod_28(a, b, *, fmod):
    return _remainder(a, b) if fmod else tf.math.floormod(a, b)


def _remainder(a: Any, b: Any) -> Any:
    """Computes the remainder of a division towards zero, with gradients, which TensorFlow lacks."""
    shape = tf.broadcast_dynamic_shape(tf.shape(a), tf.shape(b))

    @tf.custom_gradient
    def remainder(a, b):
        wide = _with_remainders(a.dtype)
        divide = tf.truncatemod if wide in (tf.int64, tf.float32, tf.float64) else tf.math.floormod
        result = tf.cast(divide(tf.cast(a, wide), tf.cast(b, wide)), a.dtype)
        return result, lambda gradient: (gradient, -gradient * ((a - result) / b))

    return remainder(tf.broadcast_to(a, shape), tf.broadcast_to(b, shape))


def _with_remainders(dtype: tf.DType) -> tf.DType:
    """Returns a type in which TensorFlow has a kernel for remainders, which few types have."""
    if dtype.is_floating:
        return dtype if dtype.size > 2 else tf.float32
    return dtype if dtype is tf.uint64 else tf.int64


@operation("BitShift", since=11, elementwise=True)
def bit_shift(x, y, *, direction):
    if direction not in ("LEFT", "RIGHT"):
        raise popart_exception(
            f"The attribute `direction` must be 'LEFT' or 'RIGHT'. Received: {direction!r}"
        )
    shift = tf.bitwise.left_shift if direction == "LEFT" else tf.bitwise.right_shift
    # TensorFlow limits the shift to one bit less than the type has, and so would keep a bit.
    return tf.where(y < x.dtype.size * 8, shift(x, y), tf.zeros([], x.dtype))


@operation("BitShift", since=28, elementwise=True)
def bit_shift_28(x, y, *, direction):
    if x.dtype.is_unsigned or direction != "RIGHT":
        # Read without a sign, a negative number of places is larger than any.
        places = tf.where(y < 0, tf.cast(x.dtype.size * 8, y.dtype), y)
        return bit_shift(x, places, direction=direction)
    last = tf.cast(x.dtype.size * 8 - 1, y.dtype)
    return tf.bitwise.right_shift(x, tf.where((y < 0) | (y > last), last, y))


@operation("BitwiseAnd", since=18, elementwise=True)
def bitwise_and(a, b):
    return tf.bitwise.bitwise_and(a, b)


@operation("BitwiseOr", since=18, elementwise=True)
def bitwise_or(a, b):
    return tf.bitwise.bitwise_or(a, b)


@operation("BitwiseXor", since=18, elementwise=True)
def bitwise_xor(a, b):
    return tf.bitwise.bitwise_xor(a, b)


@operation("BitwiseNot", since=18, elementwise=True)
def bitwise_not(x):
    return tf.bitwise.invert(x)


@operation("Sum", since=6, elementwise=True)
def sum_(*data):
    return reduce(tf.add, data)


@operation("Mean", since=6, elementwise=True)
def mean(*data):
    return reduce(tf.add, data) / len(data)


@operation("Max", since=6, elementwise=True)
def max_(*data):
    return reduce(tf.maximum, data)


@operation("Min", since=6, elementwise=True)
def min_(*data):
    return reduce(tf.minimum, data)


@operation("Abs", since=6, elementwise=True)
def abs_(x):
    # TensorFlow has no kernels of unsigned types for `Abs` and `Sign`.
    return x if x.dtype.is_unsigned else tf.abs(x)


@operation("Neg", since=6, elementwise=True)
def neg(x):
    return -x


@operation("Sign", since=9, elementwise=True)
def sign(x):
    return tf.cast(x > 0, x.dtype) if x.dtype.is_unsigned else tf.sign(x)


@operation("Reciprocal", since=6, elementwise=True)
def reciprocal(x):
    return tf.math.reciprocal(x)


@operation("Ceil", since=6, elementwise=True)
def ceil(x):
    return tf.math.ceil(x)


@operation("Floor", since=6, elementwise=True)
def floor(x):
    return tf.floor(x)


@operation("Round", since=11, elementwise=True)
def round_(x):
    # Both ONNX and TensorFlow round halves to the nearest even number.
    return tf.round(x)


@operation("Clip", since=11, elementwise=True)
def clip(x, lowest=None, highest=None):
    x = x if lowest is None else tf.maximum(x, lowest)
    return x if highest is None else tf.minimum(x, highest)


@operation("Clip", since=6, elementwise=True)
def clip_6(x, *, min_, max_):
    # The defaults in ONNX's schema are the limits of float32 whatever the type is, and would be
    # infinite in float16.
    return tf.clip_by_value(x, max(min_, float(x.dtype.min)), min(max_, float(x.dtype.max)))
