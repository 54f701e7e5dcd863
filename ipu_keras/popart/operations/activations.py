"""Activation functions of ONNX, from Relu to Softmax."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.sizes import axis_within, flattened, sizes_of


@operation("Relu", since=6, elementwise=True)
def relu(x):
    return tf.nn.relu(x)


@operation("LeakyRelu", since=6, elementwise=True)
def leaky_relu(x, *, alpha):
    return tf.nn.leaky_relu(x, alpha)


@operation("PRelu", since=7, elementwise=True)
def prelu(x, slope):
    return tf.where(x < 0, slope * x, x)


@operation("PRelu", since=6)
def prelu_6(x, slope):
    # Version 6 has one slope for all elements, or one for each channel along the second axis;
    # slopes broadcast as in NumPy since version 7.
    if slope.shape.rank == 1 and x.shape.rank > 1:
        slope = tf.reshape(slope, [-1, *[1] * (x.shape.rank - 2)])
    return prelu(x, slope)


@operation("ThresholdedRelu", since=10, elementwise=True)
def thresholded_relu(x, *, alpha):
    return tf.where(x > alpha, x, tf.zeros([], x.dtype))


@operation("Elu", since=6, elementwise=True)
def elu(x, *, alpha):
    # TensorFlow's function has no `alpha`.
    return tf.where(x > 0, x, alpha * tf.nn.elu(x))


@operation("Selu", since=6, elementwise=True)
def selu(x, *, alpha, gamma):
    # `tf.nn.selu` has these two numbers built in.
    return gamma * elu(x, alpha=alpha)


@operation("Shrink", since=9, elementwise=True)
def shrink(x, *, lambd, bias):
    # ONNX takes integers here as well, and both attributes are fractions.
    exact = tf.cast(x, tf.float64) if x.dtype.is_integer else x
    moved = tf.where(exact > lambd, exact - bias, exact + bias)
    zero = tf.zeros([], exact.dtype)
    return tf.cast(tf.where(tf.abs(exact) > lambd, moved, zero), x.dtype)


@operation("Celu", since=12, elementwise=True)
def celu(x, *, alpha):
    return tf.maximum(x, 0) + alpha * tf.math.expm1(tf.minimum(x, 0) / alpha)


@operation("HardSwish", since=14, elementwise=True)
def hard_swish(x):
    return x * tf.clip_by_value(x / 6 + 0.5, 0, 1)


@operation("Mish", since=18, elementwise=True)
def mish(x):
    return x * tf.tanh(tf.nn.softplus(x))


@operation("Gelu", since=20, elementwise=True)
def gelu(x, *, approximate):
    if approximate not in ("none", "tanh"):
        raise popart_exception(
            f"The attribute `approximate` must be 'none' or 'tanh'. Received: {approximate!r}"
        )
    return tf.nn.gelu(x, approximate=approximate == "tanh")


@operation("Swish", since=24, elementwise=True)
def swish(x, *, alpha):
    return x * tf.sigmoid(alpha * x)


@operation("Sigmoid", since=6, elementwise=True)
def sigmoid(x):
    return tf.sigmoid(x)


@operation("HardSigmoid", since=6, elementwise=True)
def hard_sigmoid(x, *, alpha, beta):
    return tf.clip_by_value(alpha * x + beta, 0, 1)


@operation("Softplus", elementwise=True)
def softplus(x):
    return tf.nn.softplus(x)


@operation("Softsign", elementwise=True)
def softsign(x):
    return tf.nn.softsign(x)


@operation("Softmax")
def softmax(x, *, axis, context):
    return _of_rows(tf.nn.softmax if context.stable_softmax else _direct_softmax, x, axis)


@operation("LogSoftmax")
def log_softmax(x, *, axis):
    return _of_rows(tf.nn.log_softmax, x, axis)


@operation("Hardmax")
def hardmax(x, *, axis):
    # Of several maxima the first is marked, as `argmax` finds it.
    def first_largest(rows):
        return tf.one_hot(tf.argmax(rows, axis=-1), sizes_of(rows)[-1], dtype=rows.dtype)

    return _of_rows(first_largest, x, axis)


@operation("Softmax", since=13, axis="axis")
def softmax_13(x, *, axis, context):
    return (tf.nn.softmax if context.stable_softmax else _direct_softmax)(x, axis=axis)


@operation("LogSoftmax", since=13, axis="axis")
def log_softmax_13(x, *, axis):
    return tf.nn.log_softmax(x, axis=axis)


@operation("Hardmax", since=13, axis="axis")
def hardmax_13(x, *, axis):
    axis = axis_within(axis, x.shape.rank)
    return tf.one_hot(tf.argmax(x, axis), sizes_of(x)[axis], axis=axis, dtype=x.dtype)


def _direct_softmax(x: Any, axis: int = -1) -> Any:
    """Computes softmax without subtracting the maximum first, for `enableNonStableSoftmax`.

    Exponentials of large numbers overflow, and results are NaN then.
    """
    powers = tf.exp(x)
    return powers / tf.reduce_sum(powers, axis=axis, keepdims=True)


def _of_rows(compute: Callable[[Any], Any], x: Any, axis: int) -> Any:
    """Applies a function to rows, of which each has all axes from `axis` on.

    Softmax and its relatives flatten the tensor so before version 13, and take one axis since.
    """
    if axis in (-1, x.shape.rank - 1):
        return compute(x)
    return tf.reshape(compute(flattened(x, axis)), sizes_of(x))
