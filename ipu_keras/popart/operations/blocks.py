"""Moves blocks of pixels into channels and back; images have channels last here."""

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import operation


@operation("DepthToSpace", since=11, images=["x"], num_images=1)
def depth_to_space(x, *, blocksize, mode):
    size = blocksize
    _check_images(x)
    if size < 1 or x.shape[-1] % (size * size):
        raise popart_exception(
            f"The square of `blocksize` must divide the channels. Received: blocksize={size}, "
            f"{x.shape[-1]} channels"
        )
    # PyTorch's PixelShuffle is exported as "CRD", in which the block of a channel is contiguous.
    # "DCR" is the order of TensorFlow's own operation, and the only one before version 11.
    if mode == "CRD":
        _, height, width, depth = x.shape
        blocks = tf.reshape(x, [-1, height, width, depth // (size * size), size, size])
        rows = tf.transpose(blocks, [0, 1, 4, 2, 5, 3])
        return tf.reshape(rows, [-1, height * size, width * size, depth // (size * size)])
    if mode != "DCR":
        raise popart_exception(f"`mode` must be 'DCR' or 'CRD'. Received: {mode!r}")
    # TensorFlow refuses blocks of one pixel.
    # TensorFlow refuses blocks of one pixel.
    return x if size == 1 else tf.nn.depth_to_space(x, size)


@operation("DepthToSpace", images=["x"], num_images=1)
def depth_to_space_1(x, *, blocksize):
    return depth_to_space(x, blocksize=blocksize, mode="DCR")


@operation("SpaceToDepth", images=["x"], num_images=1)
def space_to_depth(x, *, blocksize):
    _check_images(x)
    if blocksize < 1 or x.shape[1] % blocksize or x.shape[2] % blocksize:
        raise popart_exception(
            f"`blocksize` must divide height and width. Received: blocksize={blocksize}, images "
            f"of sizes {list(x.shape[1:3])}"
        )
    return x if blocksize == 1 else tf.nn.space_to_depth(x, blocksize)


@operation("SpaceToDepth", since=28, images=["x"], num_images=1)
def space_to_depth_28(x, *, blocksize, mode):
    blocks = space_to_depth(x, blocksize=blocksize)
    if mode == "DCR":
        return blocks
    if mode != "CRD":
        raise popart_exception(f"`mode` must be 'DCR' or 'CRD'. Received: {mode!r}")
    # TensorFlow's channels are (rows, columns, channels); "CRD" has (channels, rows, columns).
    _, height, width, depth = blocks.shape
    apart = tf.reshape(blocks, [-1, height, width, blocksize * blocksize, x.shape[-1]])
    return tf.reshape(tf.transpose(apart, [0, 1, 2, 4, 3]), [-1, height, width, depth])


def _check_images(x: tf.Tensor) -> None:
    if len(x.shape) != 4:
        raise popart_exception(
            f"Its input must have 4 axes: batch, channels, height, width. Received: "
            f"{len(x.shape)} axes"
        )
