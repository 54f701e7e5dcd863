"""Convolutions; images have channels last here."""

import tensorflow as tf

from ipu_keras.popart.operations.operation import operation


@operation("Conv", images=["x"], kernels=["w"], num_images=1)
def conv(
    x, w, b=None, *, auto_pad, dilations=None, group, kernel_shape=None, pads=None, strides=None
):
    result = tf.nn.convolution(x, w, strides=strides, padding="VALID", dilations=dilations)
    return result if b is None else result + b
