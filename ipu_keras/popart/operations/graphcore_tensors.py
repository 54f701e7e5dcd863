"""Graphcore's operations that move elements, or select among them."""

import math
from collections.abc import Sequence

import numpy as np
import onnx
import tensorflow as tf

from ipu_keras.ops.sequence_rows import copied_rows
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations import blocks
from ipu_keras.popart.operations.indexing import whole_positions
from ipu_keras.popart.operations.operation import graphcore_operation
from ipu_keras.popart.operations.sizes import check_bytes

# PopART's numbers of its `InitType`.
_NO_INIT, _ZERO = range(2)


@graphcore_operation("DepthToSpace", images=["x"], num_images=1)
def depth_to_space(x, *, blocksize, mode="DCR"):
    return blocks.depth_to_space(x, blocksize=blocksize, mode=mode)


@graphcore_operation("DynamicAdd")
def dynamic_add(x, offset, part, *, axes, sizes):
    return x + _spread(part, _places(x, offset, axes, sizes), axes, x)


@graphcore_operation("DynamicSlice")
def dynamic_slice(x, offset, *, axes, sizes, noOverlap=0):
    places = _places(x, offset, axes, sizes)
    for axis, indices in zip(axes, places, strict=True):
        x = tf.gather(x, indices, axis=axis)
    return x


@graphcore_operation("DynamicUpdate")
def dynamic_update(x, offset, part, *, axes, sizes, noOverlap=0):
    places = _places(x, offset, axes, sizes)
    return tf.where(_is_within(x, places, axes), _spread(part, places, axes, x), x)


@graphcore_operation("DynamicZero")
def dynamic_zero(x, offset, *, axes, sizes):
    within = _is_within(x, _places(x, offset, axes, sizes), axes)
    return tf.where(within, tf.zeros([], x.dtype), x)


@graphcore_operation("Init")
def init(*, shape, data_type, init_type, batch_axis=-1):
    if init_type not in (_NO_INIT, _ZERO):
        raise popart_exception(
            f"`init_type` has to be {_NO_INIT} for any values, or {_ZERO} for zeros. "
            f"Received: init_type={init_type}"
        )
    if batch_axis not in range(-1, len(shape)):
        raise popart_exception(
            f"`batch_axis` has to be an axis of the shape {list(shape)}, or -1 for none. "
            f"Received: batch_axis={batch_axis}"
        )
    # Without initialisation any values would do; zeros make runs repeatable.
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(data_type))
    check_bytes(math.prod(shape) * dtype.itemsize)
    return np.zeros(shape, dtype)


@graphcore_operation("ReduceMedian")
def reduce_median(x, *, axes=None, keepdims=1):
    rank = x.shape.rank
    reduced = sorted(_checked_axes(range(rank) if axes is None else axes, rank))
    kept = [axis for axis in range(rank) if axis not in reduced]
    sizes = [_size(x, axis) for axis in kept]
    size = math.prod(_size(x, axis) for axis in reduced)
    flat = tf.reshape(tf.transpose(x, kept + reduced), [*sizes, size])
    # Of an even number of elements, the median is the lower one in the middle.
    index = tf.argsort(flat, axis=-1, stable=True)[..., (size - 1) // 2]
    median = tf.gather(flat, index, axis=-1, batch_dims=len(kept))
    if keepdims:
        for axis in reduced:
            median, index = tf.expand_dims(median, axis), tf.expand_dims(index, axis)
    return median, index


@graphcore_operation("Reshape")
def reshape(x, *, shape):
    given = x.shape.as_list()
    if any(size == 0 and axis >= len(given) for axis, size in enumerate(shape)):
        raise popart_exception(
            "A 0 in `shape` stands for the size that the tensor has there. Received: "
            f"shape={list(shape)} for a tensor of shape {given}"
        )
    sizes = [given[axis] if size == 0 else size for axis, size in enumerate(shape)]
    if None in sizes:
        sizes = [tf.shape(x)[axis] if size is None else size for axis, size in enumerate(sizes)]
    return tf.reshape(x, sizes)


@graphcore_operation("Reverse")
def reverse(x, *, dimensions):
    _checked_axes(dimensions, x.shape.rank, "dimensions")
    return tf.reverse(x, list(dimensions)) if dimensions else tf.identity(x)


@graphcore_operation("ScatterReduce")
def scatter_reduce(data, indices, *, axis_size, axis=-1, reduction="Sum"):
    if reduction not in (0, "Sum", "sum"):
        raise popart_exception(f"`reduction` has to be 'Sum'. Received: reduction={reduction!r}")
    (axis,) = _checked_axes([axis], data.shape.rank, "axis")
    if indices.shape.rank == 1 and data.shape.rank > 1:
        sizes = [-1 if each == axis else 1 for each in range(data.shape.rank)]
        indices = tf.reshape(indices, sizes)
    indices = tf.broadcast_to(tf.cast(whole_positions(indices), tf.int32), tf.shape(data))
    order = [each for each in range(data.shape.rank) if each != axis] + [axis]
    moved = tf.transpose(data, order)
    targets = tf.reshape(tf.transpose(indices, order), [-1, _size(moved, -1)])
    flat = tf.reshape(moved, tf.shape(targets))
    rows = _size(flat, 0)
    places = targets + tf.range(rows)[:, tf.newaxis] * axis_size
    # Rows lie one behind the other: an index beyond its own row would reach into the next one.
    # TensorFlow drops negative segments.
    exists = (targets >= 0) & (targets < axis_size)
    places = tf.where(exists, places, -1)
    sums = tf.math.unsorted_segment_sum(flat, places, rows * axis_size)
    sizes = [_size(moved, each) for each in range(len(order) - 1)]
    back = [order.index(each) for each in range(len(order))]
    return tf.transpose(tf.reshape(sums, [*sizes, axis_size]), back)


@graphcore_operation("SequenceSlice")
def sequence_slice(
    source,
    destination,
    sizes,
    source_offsets,
    destination_offsets,
    *,
    zeroUnused=0,
):
    counts = [each.shape.as_list() for each in (sizes, source_offsets, destination_offsets)]
    if min(len(source.shape), len(destination.shape)) < 2 or counts != [counts[0][:1]] * 3:
        raise popart_exception(
            "It takes a source and a destination of rank 2 or more, and for each slice its number "
            f"of rows and offsets in both, of rank 1. Received: shapes {source.shape.as_list()}, "
            f"{destination.shape.as_list()}, {', '.join(map(str, counts))}"
        )
    rows = tf.reshape(source, [_size(source, 0), *destination.shape[1:]])
    slices = (tf.cast(each, tf.int32) for each in (sizes, source_offsets, destination_offsets))
    return copied_rows(destination, rows, *slices, zero_unused=bool(zeroUnused))


@graphcore_operation("Subsample")
def subsample(x, *, strides):
    if len(strides) != x.shape.rank or min(strides, default=1) < 1:
        raise popart_exception(
            f"`strides` has to have a positive number for each of {x.shape.rank} axes. "
            f"Received: strides={list(strides)}"
        )
    return x[tuple(slice(None, None, stride) for stride in strides)]


def _size(x: tf.Tensor, axis: int) -> int | tf.Tensor:
    return tf.shape(x)[axis] if x.shape[axis] is None else x.shape[axis]


def _checked_axes(axes: Sequence[int], rank: int, name: str = "axes") -> list[int]:
    """Returns axes counted from 0, each of which must be named once."""
    counted = [axis % rank if -rank <= axis < rank else None for axis in axes]
    if None in counted or len(set(counted)) != len(counted):
        raise popart_exception(
            f"`{name}` has to name axes of a tensor of rank {rank}, each once. "
            f"Received: {name}={list(axes)}"
        )
    return [axis for axis in counted if axis is not None]


def _places(
    x: tf.Tensor, offset: tf.Tensor, axes: Sequence[int], sizes: Sequence[int]
) -> list[tf.Tensor]:
    """Returns the indices of a part along each axis, moved back where it would pass the end."""
    _checked_axes(axes, x.shape.rank)
    most = [x.shape[axis] for axis in axes]
    fit = len(sizes) == len(axes)
    if not fit or not all(
        1 <= s <= (s if m is None else m) for s, m in zip(sizes, most, strict=True)
    ):
        raise popart_exception(
            "`sizes` has to have a size for each of `axes`, of at most that of the tensor. "
            f"Received: sizes={list(sizes)}, axes={list(axes)} for shape {x.shape.as_list()}"
        )
    starts = tf.reshape(tf.cast(offset, tf.int32), [-1])
    if starts.shape[0] not in (None, len(axes)):
        raise popart_exception(
            f"The offset has to have a number for each of {len(axes)} axes. "
            f"Received: {starts.shape[0]} numbers"
        )
    return [
        tf.clip_by_value(starts[number], 0, _size(x, axis) - size) + tf.range(size)
        for number, (axis, size) in enumerate(zip(axes, sizes, strict=True))
    ]


def _positions(x: tf.Tensor, places: Sequence[tf.Tensor], axes: Sequence[int]) -> list[tf.Tensor]:
    """Returns the position in a part of each index of each axis, negative before the part."""
    return [
        tf.range(_size(x, axis)) - indices[0] for axis, indices in zip(axes, places, strict=True)
    ]


def _is_within(x: tf.Tensor, places: Sequence[tf.Tensor], axes: Sequence[int]) -> tf.Tensor:
    """Returns a mask of the elements that belong to a part, in a shape that broadcasts."""
    within = tf.ones([1] * x.shape.rank, tf.bool)
    pairs = zip(axes, _positions(x, places, axes), places, strict=True)
    for axis, positions, indices in pairs:
        inside = (positions >= 0) & (positions < indices.shape[0])
        shape = [1] * x.shape.rank
        shape[axis] = -1
        within &= tf.reshape(inside, shape)
    return within


def _spread(
    part: tf.Tensor, places: Sequence[tf.Tensor], axes: Sequence[int], x: tf.Tensor
) -> tf.Tensor:
    """Puts a part into its place in a tensor of zeros."""
    expected = x.shape.as_list()
    for axis, indices in zip(axes, places, strict=True):
        expected[axis] = indices.shape[0]
    if not part.shape.is_compatible_with(expected):
        raise popart_exception(
            f"The part has to have the shape {expected}, by `axes` and `sizes`. "
            f"Received: shape {part.shape.as_list()}"
        )
    for axis, positions in zip(axes, _positions(x, places, axes), strict=True):
        size = part.shape[axis]
        part = tf.gather(part, tf.clip_by_value(positions, 0, size - 1), axis=axis)
    return tf.where(_is_within(x, places, axes), part, tf.zeros([], part.dtype))
