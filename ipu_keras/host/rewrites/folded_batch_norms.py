"""Makes normalizations by known statistics a part of the convolution before them.

Such a normalization multiplies and shifts each channel. The kernel can be multiplied instead,
once for all images, and the shift is a bias, which the convolution adds while it writes.
"""

import contextlib

import tensorflow as tf

from ipu_keras.host.rewrites.replacement import replaced
from ipu_keras.internals.tensorflow.contexts import may_record
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.tracing.as_written import Replaced

_CONVOLUTIONS = {
    "Conv2D": tf.raw_ops.Conv2D,
    "DepthwiseConv2dNative": tf.raw_ops.DepthwiseConv2dNative,
}


def folded_batch_norms() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While this is open, batch normalizations become a part of the convolutions before them.

    A normalization stays if its gradient may be asked for, or if the convolution's kernel is
    larger than its result. If something else takes the convolution's own result, that is
    computed as well.
    """
    return replaced({"FusedBatchNormV3"}, _folded)


def _folded(inputs, output) -> tf.Tensor | None:
    images, scale, offset, mean, variance = inputs
    bias = images.op.inputs[1] if images.op.type == "BiasAdd" else None
    convolution = images.op if bias is None else images.op.inputs[0].op
    # A tape has seen the normalization by now, and would follow its gradient as well as that of
    # what replaces it.
    if not _covers(output.op, convolution, images) or may_record():
        return None
    kernel = convolution.inputs[1]
    factor = scale * tf.math.rsqrt(variance + output.op.get_attr("epsilon"))
    shift = offset - mean * factor
    # A depthwise kernel has its own filters for each channel of the images, as its last two
    # axes.
    channels = static_sizes(kernel)[2:] if convolution.type == "DepthwiseConv2dNative" else [-1]
    smaller = _like(convolution, kernel * tf.reshape(factor, channels))
    return tf.nn.bias_add(smaller, shift if bias is None else shift + bias * factor)


def _covers(normalization: tf.Operation, convolution: tf.Operation, images: tf.Tensor) -> bool:
    if convolution.type not in _CONVOLUTIONS or normalization.get_attr("is_training"):
        return False
    formats = {op.get_attr("data_format") for op in (normalization, convolution, images.op)}
    kernel = convolution.inputs[1]
    return (
        formats == {b"NHWC"}
        # Images in half precision have statistics in float32, which the kernel would lose.
        and images.dtype == normalization.inputs[1].dtype
        and images.shape.is_fully_defined()
        and kernel.shape.is_fully_defined()
        and kernel.shape.num_elements() <= images.shape.num_elements()
    )


def _like(convolution: tf.Operation, kernel: tf.Tensor) -> tf.Tensor:
    names = ["strides", "padding", "explicit_paddings", "data_format", "dilations"]
    options = {name: convolution.get_attr(name) for name in names}
    make = _CONVOLUTIONS[convolution.type]
    return make(input=convolution.inputs[0], filter=kernel, **options)
