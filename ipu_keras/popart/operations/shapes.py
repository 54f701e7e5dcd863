"""Operations that change the shape of a tensor, or return it."""

from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.sizes import axis_within, flattened, sizes_of


@operation("Identity", elementwise=True)
def identity(x):
    return x


@operation("Shape")
def shape(x):
    # A known shape is an array, so that `Reshape` and others of what exporters compute from it know
    # their sizes while tracing.
    sizes = sizes_of(x)
    if x.shape.is_fully_defined():
        return np.array(sizes, np.int64)
    return tf.shape(x, out_type=tf.int64)


@operation("Shape", since=15)
def shape_15(x, *, start, end=None):
    return shape(x)[start:end]


@operation("Size")
def size(x):
    if x.shape.is_fully_defined():
        return np.array(x.shape.num_elements(), np.int64)
    return tf.size(x, out_type=tf.int64)


@operation("Reshape", since=5, static=["shape"])
def reshape(x, shape):
    given = sizes_of(x)
    wanted = shape.tolist()
    for axis, size in enumerate(wanted):
        # In ONNX, 0 copies the size of the input, unless `allowzero` of version 14 is set.
        if size == 0:
            wanted[axis] = given[axis_within(axis, len(given))]
    return tf.reshape(x, wanted)


@operation("Reshape", since=14, static=["shape"])
def reshape_14(x, shape, *, allowzero):
    return tf.reshape(x, shape) if allowzero else reshape(x, shape)


@operation("Flatten")
def flatten(x, *, axis):
    return flattened(x, axis)


@operation("Squeeze")
def squeeze(x, *, axes=None):
    return tf.squeeze(x, axes)


@operation("Squeeze", since=13, static=["axes"])
def squeeze_13(x, axes=None):
    # An empty list of axes squeezes none in ONNX, and all of size 1 in TensorFlow.
    if axes is None:
        return tf.squeeze(x)
    return tf.squeeze(x, axes.ravel().tolist()) if axes.size else x


@operation("Unsqueeze")
def unsqueeze(x, *, axes):
    rank = x.shape.rank + len(axes)
    for axis in sorted(axis_within(axis, rank) for axis in axes):
        x = tf.expand_dims(x, axis)
    return x


@operation("Unsqueeze", since=13, static=["axes"])
def unsqueeze_13(x, axes):
    return unsqueeze(x, axes=axes.ravel().tolist())


@operation("Transpose")
def transpose(x, *, perm=None):
    if perm is not None and sorted(perm) != list(range(x.shape.rank)):
        raise popart_exception(
            f"`perm` must have each of 0 to {x.shape.rank - 1} once. Received: perm={list(perm)}"
        )
    return tf.transpose(x, perm)


@operation("Expand", since=8, static=["shape"])
def expand(x, shape):
    given = sizes_of(x)
    wanted = shape.tolist()
    rank = max(len(given), len(wanted))
    given = [1] * (rank - len(given)) + given
    wanted = [1] * (rank - len(wanted)) + wanted
    return tf.broadcast_to(x, [_common_size(*pair) for pair in zip(given, wanted, strict=True)])


def _common_size(given: Any, wanted: int) -> Any:
    # ONNX's Expand broadcasts both ways: a 1 in its shape keeps the size of the input.
    return given if wanted == 1 else wanted


@operation("Tile", since=6, static=["repeats"])
def tile(x, repeats):
    if x.dtype is tf.uint16:
        # TensorFlow has no kernel for uint16.
        return tf.cast(tf.tile(tf.cast(x, tf.int32), repeats), x.dtype)
    return tf.tile(x, repeats)


@operation("Concat", since=4, axis="axis")
def concat(*inputs, axis):
    return tf.concat(inputs, axis)


@operation("Split", since=2, axis="axis")
def split_2(x, *, axis, split=None, context):
    if split is not None and len(split) != context.num_outputs:
        raise popart_exception(
            f"The attribute `split` must have a length for each of {context.num_outputs} outputs. "
            f"Received: {split}"
        )
    return tuple(tf.split(x, context.num_outputs if split is None else split, axis))


@operation("Split", since=13, static=["split"], axis="axis")
def split_13(x, split=None, *, axis, context):
    lengths = None if split is None else split.tolist()
    return split_2(x, axis=axis, split=lengths, context=context)


@operation("Split", since=18, static=["split"], axis="axis")
def split_18(x, split=None, *, axis, num_outputs=None, context):
    if split is not None or num_outputs is None:
        return split_13(x, split, axis=axis, context=context)
    size = x.shape[axis]
    if num_outputs != context.num_outputs or size is None:
        raise popart_exception(
            f"The attribute `num_outputs` must be the number of outputs, {context.num_outputs}, "
            f"and the axis must have a size that is known. Received: num_outputs={num_outputs}, "
            f"and an axis of size {size}"
        )
    # The parts are of equal size but for the last, which has what is left.
    length = -(-size // num_outputs)
    bounds = [min(part * length, size) for part in range(num_outputs + 1)]
    return tuple(tf.split(x, np.diff(bounds), axis))


@operation("Pad", since=11, static=["pads"], any_order=True)
def pad(x, pads, constant_value=None, *, mode, context):
    _check_pads(pads, x)
    pads = pads.reshape(2, -1)[:, context.order.permutation(x.shape.rank)]
    x = _cropped(x, np.minimum(pads, 0))
    around = np.maximum(pads, 0).T
    if mode == "constant":
        return _surrounded(x, around, constant_value)
    if mode == "reflect":
        return tf.pad(x, around, mode="REFLECT")
    if mode == "edge":
        return _with_edges(x, around)
    raise popart_exception(
        f"The attribute `mode` must be 'constant', 'reflect' or 'edge'. Received: {mode!r}"
    )


@operation("Pad", since=18, static=["pads", "axes"], any_order=True)
def pad_18(x, pads, constant_value=None, axes=None, *, mode, context):
    pads = pads if axes is None else _of_all_axes(pads, axes, x.shape.rank)
    return pad(x, pads, constant_value, mode=mode, context=context)


@operation("Pad", since=19, static=["pads", "axes"], any_order=True)
def pad_19(x, pads, constant_value=None, axes=None, *, mode, context):
    if mode != "wrap":
        return pad_18(x, pads, constant_value, axes, mode=mode, context=context)
    pads = pads if axes is None else _of_all_axes(pads, axes, x.shape.rank)
    _check_pads(pads, x)
    around = pads.reshape(2, -1).T[context.order.permutation(x.shape.rank)]
    for axis, (before, behind) in enumerate(around):
        if before or behind:
            size = sizes_of(x)[axis]
            x = tf.gather(x, tf.range(-before, size + behind) % size, axis=axis)
    return x


def _of_all_axes(pads: np.ndarray, axes: np.ndarray, rank: int) -> np.ndarray:
    """Returns pads for all axes, zero for those that are not named."""
    if pads.size != 2 * axes.size:
        raise popart_exception(
            f"The pads of {axes.size} axes are {2 * axes.size} numbers: before each of them, then "
            f"behind each. Received: {pads.tolist()}, axes={axes.tolist()}"
        )
    whole = np.zeros((2, rank), np.int64)
    whole[:, [axis_within(axis, rank) for axis in axes.tolist()]] = pads.reshape(2, -1)
    return whole.ravel()


@operation("Pad", since=2, any_order=True)
def pad_2(x, *, pads, mode, value, context):
    return pad(x, np.array(pads), tf.cast(value, x.dtype), mode=mode, context=context)


def _check_pads(pads: np.ndarray, x: Any) -> None:
    if pads.size != 2 * x.shape.rank:
        raise popart_exception(
            f"The pads of a tensor of rank {x.shape.rank} are {2 * x.shape.rank} numbers: before "
            f"each axis, then behind each. Received: {pads.tolist()}"
        )


def _cropped(x: Any, pads: np.ndarray) -> Any:
    """Cuts off what negative pads remove."""
    if not pads.any():
        return x
    before, behind = -pads
    sizes = sizes_of(x)
    return tf.slice(x, before, [n - m for n, m in zip(sizes, before + behind, strict=True)])


def _surrounded(x: Any, around: np.ndarray, value: Any) -> Any:
    if value is None:
        return tf.pad(x, around)
    value = tf.reshape(value, [])
    if tf.is_symbolic_tensor(value) and tf.get_static_value(value) is not None:
        return tf.pad(x, around, constant_values=value)
    # TensorFlow's padding has no gradient for the value around, which may be a trained tensor.
    return tf.where(tf.pad(tf.ones_like(x, tf.bool), around), tf.pad(x, around), value)


def _with_edges(x: Any, around: np.ndarray) -> Any:
    for axis, (before, behind) in enumerate(around):
        if before or behind:
            size = sizes_of(x)[axis]
            positions = tf.range(-before, size + behind)
            x = tf.gather(x, tf.clip_by_value(positions, 0, size - 1), axis=axis)
    return x


@operation("Trilu", since=14, static=["k"])
def trilu(x, k=None, *, upper):
    rows, columns = (tf.range(size, dtype=tf.int64) for size in sizes_of(x)[-2:])
    diagonal = columns - rows[:, tf.newaxis] - (0 if k is None else int(k.item()))
    return tf.where(diagonal >= 0 if upper else diagonal <= 0, x, tf.zeros([], x.dtype))


@operation("CenterCropPad", since=18, static=["shape"])
def center_crop_pad(x, shape, *, axes=None):
    sizes = sizes_of(x)
    axes = range(len(sizes)) if axes is None else [axis_within(a, len(sizes)) for a in axes]
    if len(axes) != shape.size or None in x.shape.as_list():
        raise popart_exception(
            f"It needs a size for each of {len(axes)} axes, of a tensor whose shape is known. "
            f"Received: {shape.tolist()} for the shape {x.shape}"
        )
    begin, pads, wanted = [0] * len(sizes), np.zeros((len(sizes), 2), np.int64), list(sizes)
    for axis, size in zip(axes, shape.tolist(), strict=True):
        lack = size - sizes[axis]
        wanted[axis] = min(size, sizes[axis])
        begin[axis] = max(-lack, 0) // 2
        pads[axis] = max(lack, 0) // 2, max(lack, 0) - max(lack, 0) // 2
    return tf.pad(tf.slice(x, begin, wanted), pads)
