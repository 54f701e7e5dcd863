"""Samples images at given places, and adds up columns to images; channels are last here."""

import itertools
import math

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.tensors import MOST_DENSE
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.sizes import product_of, sizes_of
from ipu_keras.popart.operations.windows import checked

# Versions before 20 name the modes after images.
_MODES = {
    "linear": "linear",
    "bilinear": "linear",
    "nearest": "nearest",
    "cubic": "cubic",
    "bicubic": "cubic",
}
_PADDINGS = ("zeros", "border", "reflection")

# The coefficient of cubic convolution, which is an attribute of Resize, but fixed here.
_CUBIC = -0.75


@operation("GridSample", since=16, images=["x"], num_images=1)
def grid_sample(x, grid, *, align_corners, mode, padding_mode):
    if mode not in _MODES or padding_mode not in _PADDINGS:
        raise popart_exception(
            f"`mode` must be one of {', '.join(_MODES)}, and `padding_mode` one of "
            f"{', '.join(_PADDINGS)}. Received: mode={mode!r}, padding_mode={padding_mode!r}"
        )
    sizes = x.shape.as_list()[1:-1]
    if None in sizes or grid.shape[-1] != len(sizes) or grid.shape.rank != len(sizes) + 2:
        raise popart_exception(
            "The grid must have a place in images for each of its points, and images sizes that "
            f"are known. Received: a grid of shape {grid.shape} for images of sizes {sizes}"
        )
    # A place names the last axis of images first: (x, y) for images (height, width).
    places = [
        _denormalized(grid[..., -1 - axis], size, align_corners) for axis, size in enumerate(sizes)
    ]
    taps = [
        _taps(place, size, _MODES[mode], padding_mode, align_corners)
        for place, size in zip(places, sizes, strict=True)
    ]
    flat = tf.reshape(x, [-1, math.prod(sizes), x.shape[-1]])
    total = None
    for corner in itertools.product(*taps):
        position, weight = tf.zeros_like(places[0], tf.int32), tf.ones_like(places[0])
        for (index, share), size in zip(corner, sizes, strict=True):
            position, weight = position * size + index, weight * share
        pixels = tf.gather(flat, position, axis=1, batch_dims=1)
        part = tf.cast(pixels, weight.dtype) * weight[..., None]
        total = part if total is None else total + part
    return tf.cast(total, x.dtype)


def _denormalized(place, size, align_corners):
    """Converts places from -1 to 1 to positions of elements.

    With `align_corners`, -1 and 1 are the middles of the outer elements, else their outer edges.
    """
    return (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2


def _taps(place, size, mode, padding_mode, align_corners):
    """Returns the elements of an axis that make one at a place, and the weight of each."""
    if mode == "nearest":
        elements = [(tf.round(place), tf.ones_like(place))]
    else:
        if mode == "linear":
            # Linear sampling brings the place back into the image; cubic sampling leaves it and
            # brings back each of the four elements around it below, as PyTorch does.
            place = _within(place, size, padding_mode, align_corners)
        first = tf.floor(place)
        share = place - first
        if mode == "linear":
            elements = [(first, 1 - share), (first + 1, share)]
        else:
            elements = [(first + at, _cubic(tf.abs(share - at))) for at in range(-1, 3)]
    found = []
    for element, weight in elements:
        inside = _within(element, size, padding_mode, align_corners)
        is_there = (inside >= 0) & (inside <= size - 1)
        weight = tf.where(is_there, weight, 0) if padding_mode == "zeros" else weight
        found.append((tf.cast(tf.clip_by_value(inside, 0, size - 1), tf.int32), weight))
    return found


def _within(place, size, padding_mode, align_corners):
    if padding_mode == "zeros":
        return place
    if padding_mode == "border":
        return tf.clip_by_value(place, 0, size - 1)
    low, high = (0, size - 1) if align_corners else (-0.5, size - 0.5)
    length = high - low
    if not length:
        return tf.zeros_like(place)
    beyond = tf.math.floormod(place - low, 2 * length)
    return low + tf.minimum(beyond, 2 * length - beyond)


def _cubic(distance):
    near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * _CUBIC - 4 * _CUBIC
    return tf.where(distance <= 1, near, far)


@operation("AffineGrid", since=20, static=["size"])
def affine_grid(theta, size, *, align_corners):
    spatial = size.tolist()[2:]
    rank = len(spatial)
    if rank not in (2, 3) or theta.shape.as_list()[1:] != [rank, rank + 1]:
        raise popart_exception(
            "Images have two or three axes besides batch and channels, and `theta` a matrix of "
            "each sample, with a row for each axis and a column more. Received: "
            f"size={size.tolist()}, theta of shape {theta.shape}"
        )
    if math.prod(spatial) > MOST_DENSE:
        raise popart_exception(
            f"A grid has {MOST_DENSE} points at most. Received: size={size.tolist()}"
        )
    axes = []
    for count in spatial:
        # -1 and 1 are the middles of the outer elements, or their outer edges.
        step = 2 / max(count - 1, 1) if align_corners else 2 / count
        axes.append(-1 + (0 if align_corners else step / 2) + step * np.arange(count))
    mesh = np.meshgrid(*axes, indexing="ij")
    # A place names the last axis of images first.
    points = np.stack([*reversed(mesh), np.ones(spatial)], -1).reshape(-1, rank + 1)
    grid = tf.tensordot(tf.constant(points, theta.dtype), theta, [[1], [2]])
    return tf.reshape(tf.transpose(grid, [1, 0, 2]), [-1, *spatial, rank])


@operation("Col2Im", since=18, static=["image_shape", "block_shape"])
def col2im(x, image_shape, block_shape, *, dilations=None, pads=None, strides=None):
    image, block = image_shape.tolist(), block_shape.tolist()
    rank = len(image)
    dilations = checked(dilations, "dilations", rank, 1)
    strides = checked(strides, "strides", rank, 1)
    pads = checked(pads, "pads", 2 * rank, 0, least=0)
    padded = [size + pads[axis] + pads[rank + axis] for axis, size in enumerate(image)]
    counts = [
        (size - (kernel - 1) * dilation - 1) // stride + 1
        for size, kernel, dilation, stride in zip(padded, block, dilations, strides, strict=True)
    ]
    batch, columns, length = sizes_of(x)
    # Checked before anything is allocated, which would be as large as the attributes say.
    if length != math.prod(counts) or min(block) < 1 or columns % math.prod(block):
        raise popart_exception(
            f"Images of {image} have {math.prod(counts)} blocks of {math.prod(block)} elements. "
            f"Received: columns of shape {x.shape}"
        )
    # The place in the flat padded image of each element of each block: (elements, blocks).
    places = np.zeros([1, 1], np.int64)
    for axis, (kernel, count) in enumerate(zip(block, counts, strict=True)):
        own = np.arange(kernel)[:, None] * dilations[axis] + np.arange(count) * strides[axis]
        outer = places[:, None, :, None] * padded[axis] + own[None, :, None, :]
        places = outer.reshape(places.shape[0] * kernel, places.shape[1] * count)
    channels = columns // places.shape[0]
    parts = tf.reshape(x, [batch * channels, places.size])
    summed = tf.math.unsorted_segment_sum(tf.transpose(parts), places.ravel(), product_of(padded))
    images = tf.reshape(tf.transpose(summed), [batch, channels, *padded])
    return tf.slice(images, [0, 0, *pads[:rank]], [batch, channels, *image])
