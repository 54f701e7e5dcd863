"""Quantized tensors of 8 bits with a scale and a zero point, and products of them.

Sums of integer products are computed in float64, which holds them exactly and for which
TensorFlow has all kernels.
"""

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.convolutions import check_channels, convolved, kernel_of
from ipu_keras.popart.operations.element_types import type_of
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.sizes import axis_within, sizes_of
from ipu_keras.popart.operations.windows import windows_of


@operation("QuantizeLinear", since=10, elementwise=True)
def quantize_linear(x, y_scale, y_zero_point=None):
    if y_zero_point is None:
        y_zero_point = tf.zeros([], tf.uint8)
    return _quantized(tf.cast(x, y_scale.dtype) / y_scale, y_zero_point)


@operation("QuantizeLinear", since=13)
def quantize_linear_13(x, y_scale, y_zero_point=None, *, axis):
    scale, zero_point = (_along(x, each, axis) for each in (y_scale, y_zero_point))
    return quantize_linear(x, scale, zero_point)


@operation("QuantizeLinear", since=19)
def quantize_linear_19(x, y_scale, y_zero_point=None, *, axis, saturate):
    # `saturate` is about floating point numbers of 8 bits, which these devices do not have.
    return quantize_linear_13(x, y_scale, y_zero_point, axis=axis)


@operation("QuantizeLinear", since=21)
def quantize_linear_21(x, y_scale, y_zero_point=None, *, axis, block_size, output_dtype, saturate):
    scale, zero_point = (_along(x, each, axis, block_size) for each in (y_scale, y_zero_point))
    if zero_point is None:
        zero_point = tf.zeros([], type_of(output_dtype) if output_dtype else tf.uint8)
    return quantize_linear(x, scale, zero_point)


@operation("QuantizeLinear", since=23)
def quantize_linear_23(
    x, y_scale, y_zero_point=None, *, axis, block_size, output_dtype, precision, saturate
):
    scale = tf.cast(y_scale, type_of(precision)) if precision else y_scale
    return quantize_linear_21(
        x,
        scale,
        y_zero_point,
        axis=axis,
        block_size=block_size,
        output_dtype=output_dtype,
        saturate=saturate,
    )


@operation("DequantizeLinear", since=13)
def dequantize_linear_13(x, x_scale, x_zero_point=None, *, axis):
    scale, zero_point = (_along(x, each, axis) for each in (x_scale, x_zero_point))
    return dequantize_linear(x, scale, zero_point)


@operation("DequantizeLinear", since=21)
def dequantize_linear_21(x, x_scale, x_zero_point=None, *, axis, block_size):
    scale, zero_point = (_along(x, each, axis, block_size) for each in (x_scale, x_zero_point))
    return dequantize_linear(x, scale, zero_point)


@operation("DequantizeLinear", since=23)
def dequantize_linear_23(x, x_scale, x_zero_point=None, *, axis, block_size, output_dtype):
    scale = tf.cast(x_scale, type_of(output_dtype)) if output_dtype else x_scale
    return dequantize_linear_21(x, scale, x_zero_point, axis=axis, block_size=block_size)


@operation("DequantizeLinear", since=10, elementwise=True)
def dequantize_linear(x, x_scale, x_zero_point=None):
    wide = tf.cast(x, tf.int32)
    if x_zero_point is not None:
        wide -= tf.cast(x_zero_point, tf.int32)
    return tf.cast(wide, x_scale.dtype) * x_scale


@operation("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x):
    # The range always contains 0, so that 0 is represented exactly.
    least = tf.minimum(tf.reduce_min(x), 0)
    most = tf.maximum(tf.reduce_max(x), 0)
    scale = (most - least) / 255
    # If all elements are zero, the scale is zero, and both quotients are set to 0.
    zero_point = tf.cast(tf.round(tf.math.divide_no_nan(-least, scale)), tf.uint8)
    return _quantized(tf.math.divide_no_nan(x, scale), zero_point), scale, zero_point


@operation("MatMulInteger", since=10)
def matmul_integer(a, b, a_zero_point=None, b_zero_point=None):
    return tf.cast(_product(a, b, a_zero_point, b_zero_point), tf.int32)


@operation("QLinearMatMul", since=10)
def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    scale = _by_row(a_scale) * b_scale / y_scale
    product = _product(a, b, a_zero_point, b_zero_point)
    return _quantized(product * tf.cast(scale, product.dtype), y_zero_point)


@operation("ConvInteger", since=10, images=["x"], kernels=["w"], num_images=1)
def conv_integer(
    x,
    w,
    x_zero_point=None,
    w_zero_point=None,
    *,
    auto_pad,
    dilations=None,
    group,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    shape = {"auto_pad": auto_pad, "dilations": dilations, "pads": pads, "strides": strides}
    result = _convolution(x, w, x_zero_point, w_zero_point, group, kernel_shape, shape)
    return tf.cast(result, tf.int32)


@operation("QLinearConv", since=10, images=["x"], kernels=["w"], num_images=1)
def qlinear_conv(
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    b=None,
    *,
    auto_pad,
    dilations=None,
    group,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    shape = {"auto_pad": auto_pad, "dilations": dilations, "pads": pads, "strides": strides}
    result = _convolution(x, w, x_zero_point, w_zero_point, group, kernel_shape, shape)
    if b is not None:
        result += tf.cast(b, result.dtype)
    return _quantized(result * tf.cast(x_scale * w_scale / y_scale, result.dtype), y_zero_point)


def _along(x, each, axis, block_size=0):
    """Reshapes a scale or zero point to broadcast: one, or one an index or block of `axis`."""
    if each is None or each.shape.rank == 0:
        return each
    if block_size:
        axis = axis_within(axis, x.shape.rank)
        repeated = tf.repeat(each, block_size, axis=axis)
        # The last block may be shorter.
        return tf.gather(repeated, tf.range(sizes_of(x)[axis]), axis=axis)
    if each.shape.rank != 1:
        raise popart_exception(
            "A scale is a number, or a vector with one for each place on `axis`; `block_size` says "
            f"of how many each is otherwise. Received: a scale of shape {each.shape}"
        )
    if each.shape[0] == 1:
        return tf.reshape(each, [])
    behind = x.shape.rank - 1 - axis_within(axis, x.shape.rank)
    return tf.reshape(each, [-1, *[1] * behind])


def _convolution(x, w, x_zero_point, w_zero_point, group, kernel_shape, shape):
    windows = windows_of(x, kernel_of(w, kernel_shape), **shape)
    check_channels(x, w, group)
    return convolved(_wide(x, x_zero_point), _wide(w, w_zero_point), windows, group)


def _product(a, b, a_zero_point, b_zero_point):
    zero_point = None if a_zero_point is None else _by_row(a_zero_point)
    return tf.matmul(_wide(a, zero_point), _wide(b, b_zero_point))


def _by_row(each: tf.Tensor) -> tf.Tensor:
    """Reshapes a vector with a number for each row of a matrix to broadcast."""
    return tf.expand_dims(each, -1) if len(each.shape) == 1 else each


def _wide(x: tf.Tensor, zero_point: tf.Tensor | None) -> tf.Tensor:
    """Subtracts the zero point of integers, as float64."""
    if x.dtype not in (tf.uint8, tf.int8):
        raise popart_exception(
            f"It takes integers of 8 bits, uint8 or int8. Received: {x.dtype.name}"
        )
    wide = tf.cast(x, tf.float64)
    return wide if zero_point is None else wide - tf.cast(zero_point, tf.float64)


def _quantized(scaled: tf.Tensor, zero_point: tf.Tensor) -> tf.Tensor:
    """Rounds halves to even, adds the zero point, and saturates at the limits of its type."""
    dtype = zero_point.dtype
    shifted = tf.round(scaled) + tf.cast(zero_point, scaled.dtype)
    return tf.cast(tf.clip_by_value(shifted, dtype.min, dtype.max), dtype)
