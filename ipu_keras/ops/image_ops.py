"""Normalisation of images, which documents have as `ipu.image_ops` and `ipu.ops.image_ops`."""

from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import check_number, check_tensor
from ipu_keras.tracing.poplar_operation import poplar_operation

_DTYPES = (tf.uint8, tf.float16, tf.float32)


def normalise_image(
    image: Any,
    channel_offsets: Any,
    channel_scales: Any,
    scale: float = 1,
    name: str | None = None,
) -> tf.Tensor:
    """Normalises the channels of images, and gives them a fourth one of zeros.

    An IPU convolves four channels in the time of three, and the host need not send the fourth.
    Channel `c` becomes `(image[..., c] * scale - channel_offsets[c]) * channel_scales[c]`.

    Args:
        image: Tensor with three channels, innermost: `(x, y, z, 3)`, of uint8, float16 or float32.
        channel_offsets: Three numbers that are subtracted, in an array or a tensor.
        channel_scales: Three numbers, in an array or a tensor.
        scale: Number that all channels are multiplied with first, such as `1 / 255`.
        name: Name of the operation.

    Returns:
        `(x, y, z, 4)`, of the type of the image; of float16 if that is uint8.

    Raises:
        TypeError: The image is of another type, or offsets, scales or `scale` not numbers.
        ValueError: The image does not have three channels, or there are not three offsets
            and scales.

    Example:

    >>> pixel = tf.constant([[[[0, 51, 255]]]], tf.uint8)
    >>> print(normalise_image(pixel, [0.5, 0.0, 0.5], [1.0, 2.0, 4.0], scale=1 / 255).numpy())
    [[[[-0.5  0.4  2.   0. ]]]]
    """
    image = check_tensor("image", image, _DTYPES)
    if image.shape.rank != 4 or static_sizes(image)[-1] != 3:
        raise ValueError(
            "`image` must have four axes, the last one of three channels. "
            f"Received: image of shape {image.shape}"
        )
    offsets = _per_channel("channel_offsets", channel_offsets)
    scales = _per_channel("channel_scales", channel_scales)
    scale = check_number("scale", scale)
    dtype = tf.float16 if image.dtype == tf.uint8 else image.dtype
    with poplar_operation("NormaliseImage"):
        # Computed in float32, so that results are rounded once, at the end.
        wide = tf.cast(image, tf.float32)
        normalised = tf.cast((wide * scale - offsets) * scales, dtype)
        return tf.pad(normalised, [[0, 0], [0, 0], [0, 0], [0, 1]], name=name)


def _numbers(argument: str, values: Any) -> tf.Tensor:
    tensor = check_tensor(argument, values)
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
        raise TypeError(
            f"`{argument}` must be numbers. Received: {argument} of {tensor.dtype.name}"
        )
    return tensor


def _per_channel(argument: str, values: Any) -> tf.Tensor:
    values = tf.cast(_numbers(argument, values), tf.float32)
    if values.shape != (3,):
        raise ValueError(
            f"`{argument}` must be three numbers, one for each channel. "
            f"Received: {argument} of shape {values.shape}"
        )
    return values
