"""Graphcore's elementwise operations, whose shapes broadcast as in NumPy."""

import tensorflow as tf

from ipu_keras.ops.nonlinearities import gelu as approximate_gelu
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import graphcore_operation
from ipu_keras.tracing.poplar_operation import differentiable


@graphcore_operation("Atan2", elementwise=True)
def atan2(y, x):
    return tf.math.atan2(y, x)


@graphcore_operation("BitwiseAnd", elementwise=True)
def bitwise_and(a, b):
    _check_integers(a, b)
    return tf.bitwise.bitwise_and(a, b)


@graphcore_operation("BitwiseNot", elementwise=True)
def bitwise_not(x):
    _check_integers(x)
    return tf.bitwise.invert(x)


@graphcore_operation("BitwiseOr", elementwise=True)
def bitwise_or(a, b):
    _check_integers(a, b)
    return tf.bitwise.bitwise_or(a, b)


@graphcore_operation("BitwiseXnor", elementwise=True)
def bitwise_xnor(a, b):
    _check_integers(a, b)
    return tf.bitwise.invert(tf.bitwise.bitwise_xor(a, b))


@graphcore_operation("BitwiseXor", elementwise=True)
def bitwise_xor(a, b):
    _check_integers(a, b)
    return tf.bitwise.bitwise_xor(a, b)


@graphcore_operation("Detach", elementwise=True)
def detach(x):
    return tf.stop_gradient(x)


@graphcore_operation("Expm1", elementwise=True)
def expm1(x):
    return tf.math.expm1(x)


@graphcore_operation("Fmod", elementwise=True)
def fmod(a, b):
    shape = tf.broadcast_dynamic_shape(tf.shape(a), tf.shape(b))
    a, b = tf.broadcast_to(a, shape), tf.broadcast_to(b, shape)
    if not a.dtype.is_floating:
        return tf.truncatemod(a, b)

    def run(a, b):
        # TensorFlow has no float16 kernel for it, and no gradient.
        wide = tf.float32 if a.dtype == tf.float16 else a.dtype
        remainder = tf.cast(tf.truncatemod(tf.cast(a, wide), tf.cast(b, wide)), a.dtype)

        def gradient(upstream):
            return upstream, -upstream * _towards_zero(a / b)

        return remainder, gradient

    return differentiable(run, a, b)


@graphcore_operation("Gelu", elementwise=True)
def gelu(x):
    return approximate_gelu(x)


@graphcore_operation("Log1p", elementwise=True)
def log1p(x):
    return tf.math.log1p(x)


@graphcore_operation("Nop", elementwise=True)
def nop(x):
    return tf.identity(x)


@graphcore_operation("Remainder", elementwise=True)
def remainder(a, b):
    return tf.math.floormod(a, b)


@graphcore_operation("Round", elementwise=True)
def round_(x):
    return tf.round(x)


@graphcore_operation("Scale", elementwise=True)
def scale(x, *, scale):
    return x * tf.cast(scale, x.dtype)


@graphcore_operation("ScaledAdd", elementwise=True)
def scaled_add(a, b, factor_a=None, factor_b=None, *, scale0=1.0, scale1=1.0):
    # Factors that are tensors replace the attributes.
    factor_a, factor_b = (
        tf.cast(attribute if given is None else given, a.dtype)
        for given, attribute in ((factor_a, scale0), (factor_b, scale1))
    )
    return a * factor_a + b * factor_b


def _towards_zero(x: tf.Tensor) -> tf.Tensor:
    return tf.sign(x) * tf.floor(tf.abs(x))


def _check_integers(*tensors: tf.Tensor) -> None:
    for tensor in tensors:
        if not tensor.dtype.is_integer:
            raise popart_exception(
                f"Bits are those of integers: cast the tensor. Received: {tensor.dtype.name}"
            )
