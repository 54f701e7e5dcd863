"""Computes the gradient of max pooling in an eighth to half the time of TensorFlow's kernel.

The kernel looks for the largest element of each window a second time, one element after the
other. If windows do not overlap, a few comparisons of whole tensors tell it as well, and XLA
makes one loop of them.
"""

import contextlib
import math

import numpy as np
import tensorflow as tf

from ipu_keras.host.rewrites.replacement import replaced
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.tracing.as_written import Replaced

# Each element of a window is one more comparison of whole tensors, and the kernel looks at each
# element once. Measured without oneDNN, 32 images of 24 to 30 pixels and 32 channels, processor
# time of the kernel by that of this, medians of 15 rounds of 20: 2x2 8.0, 3x3 5.0, 4x4 3.2, 5x5
# 1.9, 6x6 1.3, 8x8 0.6.
_MAX_WINDOW = 36


def fast_pooling_gradients() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While this is open, gradients of max pooling are replaced if windows do not overlap.

    The numbers are those of TensorFlow's kernel, bit by bit: of equal elements in a window the
    first gets the gradient. Only a window whose largest element is NaN differs. The kernel's
    gradient goes to the first NaN and this one to none, but the weights are lost to NaN either
    way.
    """
    return replaced({"MaxPoolGrad"}, _fast_gradient)


def _fast_gradient(inputs, output) -> tf.Tensor | None:
    pooled_from, pooled, gradient = inputs
    window = tuple(output.op.get_attr("ksize"))
    if not _covers(output.op, window, pooled_from.shape, pooled.shape):
        return None
    function = tf.function(max_pool_gradient, jit_compile=True, autograph=False)
    return function(pooled_from, pooled, gradient, window[1:3])


def _covers(op: tf.Operation, window: tuple[int, ...], shape, pooled_shape) -> bool:
    if op.get_attr("data_format") != b"NHWC" or not shape.is_fully_defined():
        return False
    # With "SAME" padding, windows that do not divide the image begin outside of it.
    fits = all(size % edge == 0 for size, edge in zip(shape[1:3], window[1:3], strict=True))
    return (
        pooled_shape.is_fully_defined()
        and list(window) == list(op.get_attr("strides"))
        and window[0] == window[3] == 1
        and math.prod(window) <= _MAX_WINDOW
        and (fits or op.get_attr("padding") == b"VALID")
    )


def max_pool_gradient(
    inputs: tf.Tensor, outputs: tf.Tensor, gradient: tf.Tensor, window: tuple[int, int]
) -> tf.Tensor:
    """Computes the gradient of `tf.nn.max_pool2d` with strides as large as the window.

    Images are `(batch, height, width, channels)`. The gradient is 0 in rows and columns that no
    window reaches.
    """
    batch, height, width, channels = static_sizes(inputs)
    rows, columns = static_sizes(outputs)[1:3]
    used = inputs[:, : rows * window[0], : columns * window[1]]
    windows = tf.reshape(used, [batch, rows, window[0], columns, window[1], channels])
    places = np.arange(math.prod(window), dtype=np.int32)
    places = places.reshape(1, 1, window[0], 1, window[1], 1)
    # The place of each window's first largest element; none if that is NaN. Going backwards,
    # the first one is what stays. To take the minimum of all places makes the whole take 1.3 to
    # 5 times as long. To stack a gradient for each place takes 1.2 to 1.5 times as long, and 2
    # to 11 times to compile (3.4 s for 6x6).
    largest = tf.fill(outputs.shape, places.size)
    for y, x in reversed(list(np.ndindex(window))):
        is_largest = tf.equal(windows[:, :, y, :, x], outputs)
        largest = tf.where(is_largest, places[0, 0, y, 0, x, 0], largest)
    is_here = tf.equal(largest[:, :, None, :, None], places)
    spread = tf.where(is_here, gradient[:, :, None, :, None], tf.zeros([], gradient.dtype))
    rest = [[0, 0], [0, height - rows * window[0]], [0, width - columns * window[1]], [0, 0]]
    return tf.pad(tf.reshape(spread, used.shape), rest)
