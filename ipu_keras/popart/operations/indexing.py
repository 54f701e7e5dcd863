"""Reads, writes, finds and reorders elements of tensors by position."""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.sizes import axis_within, product_of, sizes_of


@operation("Slice", since=10, static=["starts", "ends", "axes", "steps"])
def slice_(x, starts, ends, axes=None, steps=None):
    given = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    given = {name: each for name, each in given.items() if each is not None}
    if len({len(each) for each in given.values()}) > 1:
        raise popart_exception(
            "The starts, ends, axes and steps must be as many. Received: "
            + ", ".join(f"{name}={np.asarray(each).tolist()}" for name, each in given.items())
        )
    rank = x.shape.rank
    begin, end = np.zeros(rank, np.int64), np.zeros(rank, np.int64)
    strides = np.ones(rank, np.int64)
    # TensorFlow takes an axis as a whole where its bit is set in both masks.
    whole = 2**rank - 1
    for position in range(len(starts)):
        axis = axis_within(position if axes is None else int(axes[position]), rank)
        begin[axis], end[axis] = starts[position], ends[position]
        strides[axis] = 1 if steps is None else steps[position]
        whole &= ~(1 << axis)
    return tf.strided_slice(x, begin, end, strides, begin_mask=whole, end_mask=whole)


@operation("Slice")
def slice_1(x, *, starts, ends, axes=None):
    return slice_(x, starts, ends, axes)


@operation("Gather")
def gather(x, indices, *, axis):
    axis, indices = axis_within(axis, x.shape.rank), whole_positions(indices)
    _check_not_empty(x, [axis], indices, indices.shape)
    _check_known(x, [axis], indices)
    return tf.gather(x, _from_the_front(indices, sizes_of(x)[axis]), axis=axis)


@operation("GatherElements", since=11)
def gather_elements(x, indices, *, axis):
    return tf.gather_nd(x, _places(x, indices, axis))


@operation("GatherND", since=11)
def gather_nd(x, indices):
    places = _front_places(x, indices)
    if 0 in x.shape.as_list():
        # TensorFlow refuses to gather from an empty tensor, even if the result is empty as well.
        return tf.zeros([*sizes_of(places)[:-1], *sizes_of(x)[places.shape[-1] :]], x.dtype)
    return tf.gather_nd(x, places)


@operation("GatherND", since=12)
def gather_nd_12(x, indices, *, batch_dims):
    if not batch_dims:
        return gather_nd(x, indices)
    rank = min(x.shape.rank, indices.shape.rank)
    if not 0 < batch_dims < rank or not x.shape[:batch_dims].is_compatible_with(
        indices.shape[:batch_dims]
    ):
        raise popart_exception(
            f"The first `batch_dims` axes must be those of both inputs, and at most {rank - 1}. "
            f"Received: batch_dims={batch_dims}, shapes {x.shape} and {indices.shape}"
        )
    places = _front_places(x, indices, batch_dims)
    return tf.gather_nd(x, places, batch_dims=batch_dims)


@operation("ScatterElements", since=11)
def scatter_elements(x, indices, updates, *, axis):
    return _updated(x, _places(x, indices, axis), updates)


@operation("Scatter", since=9)
def scatter(x, indices, updates, *, axis):
    return scatter_elements(x, indices, updates, axis=axis)


@operation("ScatterND", since=11)
def scatter_nd(x, indices, updates):
    return _updated(x, _front_places(x, indices), updates)


# Version 16 added sums and products of updates, and 18 added maxima and minima.


@operation("ScatterElements", since=16)
def scatter_elements_16(x, indices, updates, *, axis, reduction):
    return _updated(x, _places(x, indices, axis), updates, reduction, ("none", "add", "mul"))


@operation("ScatterElements", since=18)
def scatter_elements_18(x, indices, updates, *, axis, reduction):
    return _updated(x, _places(x, indices, axis), updates, reduction)


@operation("ScatterND", since=16)
def scatter_nd_16(x, indices, updates, *, reduction):
    return _updated(x, _front_places(x, indices), updates, reduction, ("none", "add", "mul"))


@operation("ScatterND", since=18)
def scatter_nd_18(x, indices, updates, *, reduction):
    return _updated(x, _front_places(x, indices), updates, reduction)


@operation("TensorScatter", since=24)
def tensor_scatter(cache, update, write_indices=None, *, axis, mode):
    if mode not in ("linear", "circular"):
        raise popart_exception(
            f"The attribute `mode` must be 'linear' or 'circular'. Received: {mode!r}"
        )
    axis = axis_within(axis, cache.shape.rank)
    size, length = sizes_of(cache)[axis], sizes_of(update)[axis]
    starts = tf.zeros([1], tf.int64) if write_indices is None else write_indices
    # The element of the update that is written to each place on the axis, by sample.
    which = tf.range(tf.cast(size, starts.dtype)) - starts[:, tf.newaxis]
    which = which % size if mode == "circular" else which
    shape = [-1 if at in (0, axis) else 1 for at in range(cache.shape.rank)]
    shape[0] = tf.shape(starts)[0]
    spread = tf.reshape(which, shape)
    places = tf.broadcast_to(tf.clip_by_value(spread, 0, length - 1), tf.shape(cache))
    return tf.where(
        (spread >= 0) & (spread < length), gather_elements(update, places, axis=axis), cache
    )


def whole_positions(indices: Any) -> Any:
    """Returns positions of a type that TensorFlow takes; IPUs read those without a sign as well."""
    if not indices.dtype.is_integer:
        raise popart_exception(f"Positions are integers. Received: {indices.dtype.name}")
    return indices if indices.dtype in (tf.int32, tf.int64) else tf.cast(indices, tf.int64)


def _from_the_front(indices: Any, size: Any) -> Any:
    """Turns positions that count from the end of an axis, the negative ones, into ordinary ones."""
    return tf.where(indices < 0, indices + tf.cast(size, indices.dtype), indices)


def _places(x: Any, indices: Any, axis: int) -> Any:
    """Returns positions on all axes: `indices` on one axis, and their own places on the others."""
    if indices.shape.rank != x.shape.rank:
        raise popart_exception(
            "The indices must have as many axes as what they are positions of. Received: shapes "
            f"{indices.shape} and {x.shape}"
        )
    sizes, indices = sizes_of(indices), whole_positions(indices)
    axis = axis_within(axis, len(sizes))
    _check_not_empty(x, [axis], indices, indices.shape)
    _check_within(x, axis, indices)
    _check_known(x, [axis], indices)
    grid = tf.meshgrid(*(tf.range(tf.cast(n, indices.dtype)) for n in sizes), indexing="ij")
    grid[axis] = _from_the_front(indices, sizes_of(x)[axis])
    return tf.stack(grid, axis=-1)


def _front_places(x: Any, indices: Any, begin: int = 0) -> Any:
    """Returns positions on the axes from `begin` on, one in each place of the last axis."""
    num_axes = indices.shape[-1] if indices.shape.rank else None
    if num_axes is None or begin + num_axes > x.shape.rank:
        raise popart_exception(
            "The last axis of the indices has a position for each of the first axes of what they "
            f"are positions of. Received: shapes {indices.shape} and {x.shape}"
        )
    axes, indices = range(begin, begin + num_axes), whole_positions(indices)
    _check_not_empty(x, axes, indices, indices.shape[:-1])
    _check_known(x, axes, indices)
    return _from_the_front(indices, tf.stack([sizes_of(x)[axis] for axis in axes]))


def _check_not_empty(x: Any, axes: Iterable[int], indices: Any, places: tf.TensorShape) -> None:
    """Refuses positions on an axis of size 0, for which XLA would read memory of other tensors.

    `places` is the shape of `indices` as far as each element is a place of its own.
    """
    empty = next((axis for axis in axes if x.shape[axis] == 0), None)
    if empty is not None and 0 not in places.as_list():
        raise popart_exception(
            f"There are no positions on axis {empty}, as it has the size 0: only indices without "
            f"elements fit. Received: indices of the shape {indices.shape} into {x.shape}"
        )


def _check_known(x: Any, axes: Iterable[int], indices: Any) -> None:
    """Refuses positions beyond the ends of axes of `x`, if they are known while tracing.

    XLA would take the nearest element, and TensorFlow's executor would fail. With several axes,
    the last axis of `indices` has a position on each.
    """
    sizes = [x.shape[axis] for axis in axes]
    known = None if None in sizes else tf.get_static_value(indices)
    if known is None or not known.size:
        return
    limits = np.array(sizes if len(sizes) > 1 else sizes[0], np.int64)
    outside = np.argwhere((known < -limits) | (known >= limits))
    if len(outside):
        place = tuple(outside[0])
        size = limits[place[-1]] if len(sizes) > 1 else limits
        raise popart_exception(
            f"Positions on an axis of the size {size} are from {-size} to {size - 1}. "
            f"Received: {known[place]}"
        )


def _check_within(x: Any, axis: int, indices: Any) -> None:
    """Refuses indices that are larger than `x` on another axis than the one they index."""
    for other, (most, size) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if other != axis and None not in (most, size) and size > most:
            raise popart_exception(
                "The indices must be within what they are positions of on all axes but `axis`. "
                f"Received: axis={axis}, and shapes {indices.shape} and {x.shape}"
            )


def _updated(
    x: Any,
    places: Any,
    updates: Any,
    reduction: str = "none",
    reductions: Collection[str] = ("none", "add", "mul", "max", "min"),
) -> Any:
    if reduction not in reductions:
        raise popart_exception(
            f"The attribute `reduction` must be one of {', '.join(map(repr, reductions))}. "
            f"Received: {reduction!r}"
        )
    # TensorFlow ends the process if shapes do not fit here.
    wanted = places.shape[:-1] + x.shape[places.shape[-1] :]
    if not updates.shape.is_compatible_with(wanted):
        raise popart_exception(
            f"The updates must have the shape {wanted}, by the shapes of the indices and of what "
            f"is updated. Received: {updates.shape}"
        )
    return _REDUCTIONS[reduction](x, places, updates)


def _multiplied(x: Any, places: Any, updates: Any) -> Any:
    """Multiplies elements by all of their updates; TensorFlow has no such scatter operation."""
    depth = places.shape[-1]
    outer, inner = sizes_of(x)[:depth], sizes_of(x)[depth:]
    strides = [product_of(outer[axis + 1 :]) for axis in range(depth)]
    segments = tf.reduce_sum(places * tf.cast(tf.stack(strides), places.dtype), -1)
    factors = tf.math.unsorted_segment_prod(
        tf.reshape(updates, [-1, *inner]), tf.reshape(segments, [-1]), product_of(outer)
    )
    return x * tf.reshape(factors, sizes_of(x))


# How updates change elements, by the value of the attribute `reduction`.
_REDUCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "none": tf.tensor_scatter_nd_update,
        "add": tf.tensor_scatter_nd_add,
        "mul": _multiplied,
        "max": tf.tensor_scatter_nd_max,
        "min": tf.tensor_scatter_nd_min,
    }
)


@operation("OneHot", since=11, static=["depth"])
def one_hot(indices, depth, values, *, axis):
    # Negative indices count from the end since version 11; before, they were hot nowhere.
    number = _number(depth)
    return one_hot_9(_from_the_front(_whole(indices), number), depth, values, axis=axis)


@operation("OneHot", since=9, static=["depth"])
def one_hot_9(indices, depth, values, *, axis):
    axis = axis_within(axis, indices.shape.rank + 1)
    is_hot = tf.one_hot(_whole(indices), _number(depth), True, False, axis, tf.bool)
    return tf.where(is_hot, values[1], values[0])


def _whole(indices: Any) -> Any:
    return indices if indices.dtype in (tf.int32, tf.int64) else tf.cast(indices, tf.int64)


def _number(given: np.ndarray) -> int:
    """Returns the only element of a tensor, which exporters give with or without an axis."""
    return int(given.item())


@operation("NonZero", since=9, sizes_by_values=True)
def non_zero(x):
    return tf.transpose(tf.where(x != tf.zeros([], x.dtype)))


@operation("Compress", since=9, sizes_by_values=True)
def compress(x, condition, *, axis=None):
    if axis is None:
        x, axis = tf.reshape(x, [-1]), 0
    # ONNX lets the condition be shorter than the axis, so it cannot be used as a mask.
    positions = _positions(condition)
    _check_known(x, [axis_within(axis, x.shape.rank)], positions)
    return tf.gather(x, positions, axis=axis)


def _positions(condition: Any) -> Any:
    """Returns where a condition holds, as an array if it is known.

    The number of positions is a size of the result, which a static program has to know.
    """
    known = tf.get_static_value(condition)
    return tf.where(condition)[:, 0] if known is None else np.flatnonzero(known)


@operation("Unique", since=11, sizes_by_values=True)
def unique(x, *, axis=None, sorted_):
    if axis is None:
        x, axis = tf.reshape(x, [-1]), 0
    axis = axis_within(axis, x.shape.rank)
    # TensorFlow returns values in the order of their first occurrence, which is what ONNX means by
    # "not sorted"; it has no index of that occurrence.
    values, inverse, counts = tf.raw_ops.UniqueWithCountsV2(x=x, axis=[axis], out_idx=tf.int64)
    values.set_shape([None if i == axis else n for i, n in enumerate(x.shape)])
    number = tf.size(counts)
    firsts = tf.math.unsorted_segment_min(tf.range(tf.size(inverse, tf.int64)), inverse, number)
    if sorted_:
        order = _sorting(values, axis)
        values, firsts, counts = (
            tf.gather(values, order, axis=axis),
            tf.gather(firsts, order),
            tf.gather(counts, order),
        )
        inverse = tf.gather(tf.math.invert_permutation(order), inverse)
    return values, firsts, tf.cast(inverse, tf.int64), counts


def _sorting(x: Any, axis: int) -> Any:
    """Returns the order that sorts parts along an axis by their first elements, then the second...

    Stable sorts by one column after the other, the last one first, give that order.
    """
    sizes = sizes_of(x)
    number = sizes.pop(axis)
    rows = tf.reshape(tf.experimental.numpy.moveaxis(x, axis, 0), [number, product_of(sizes)])
    order = tf.range(tf.shape(rows)[0])
    for column in reversed(range(rows.shape[1])):
        keys = tf.gather(rows[:, column], order)
        order = tf.gather(order, tf.argsort(keys, stable=True))
    return order


@operation("ReverseSequence", since=10)
def reverse_sequence(x, sequence_lens, *, batch_axis, time_axis):
    return tf.reverse_sequence(x, sequence_lens, time_axis, batch_axis)
