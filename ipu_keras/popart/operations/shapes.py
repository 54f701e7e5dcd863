"""Operations that give a tensor another shape, or say which it has."""

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
    sizes = sizes_of(x)
    if x.shape.is_fully_defined():
        return np.array(sizes, np.int64)
    return tf.shape(x, out_type=tf.int64)


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
        # 0 is the size that there is.
        if size == 0:
            wanted[axis] = given[axis_within(axis, len(given))]
    return tf.reshape(x, wanted)


@operation("Flatten")
def flatten(x, *, axis):
    return flattened(x, axis)


@operation("Squeeze")
def squeeze(x, *, axes=None):
    return tf.squeeze(x, axes)


@operation("Unsqueeze")
def unsqueeze(x, *, axes):
    rank = x.shape.rank + len(axes)
    for axis in sorted(axis_within(axis, rank) for axis in axes):
        x = tf.expand_dims(x, axis)
    return x


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
    return given if wanted == 1 else wanted


@operation("Tile", since=6, static=["repeats"])
def tile(x, repeats):
    if x.dtype is tf.uint16:
        # TensorFlow has no kernel for it.
        return tf.cast(tf.tile(tf.cast(x, tf.int32), repeats), x.dtype)
    return tf.tile(x, repeats)


@operation("Concat", since=4, axis="axis")
def concat(*inputs, axis):
    return tf.concat(inputs, axis)


@operation("Split", since=2, axis="axis")
def split(x, *, axis, split=None, context):
    if split is not None and len(split) != context.num_outputs:
        raise popart_exception(
            f"The attribute `split` must have a length for each of {context.num_outputs} outputs. "
            f"Received: {split}"
        )
    return tuple(tf.split(x, context.num_outputs if split is None else split, axis))


@operation("Pad", since=11, static=["pads"], any_order=True)
def pad(x, pads, constant_value=None, *, mode, context):
    if pads.size != 2 * x.shape.rank:
        raise popart_exception(
            f"The pads of a tensor of rank {x.shape.rank} are {2 * x.shape.rank} numbers: before "
            f"each axis, then behind each. Received: {pads.tolist()}"
        )
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


@operation("Pad", since=2, any_order=True)
def pad_2(x, *, pads, mode, value, context):
    return pad(x, np.array(pads), tf.cast(value, x.dtype), mode=mode, context=context)


def _cropped(x: Any, pads: np.ndarray) -> Any:
    """Without what negative pads take away."""
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
    # The gradient of TensorFlow's padding leaves out what is around.
    return tf.where(tf.pad(tf.ones_like(x, tf.bool), around), tf.pad(x, around), value)


def _with_edges(x: Any, around: np.ndarray) -> Any:
    for axis, (before, behind) in enumerate(around):
        if before or behind:
            size = sizes_of(x)[axis]
            positions = tf.range(-before, size + behind)
            x = tf.gather(x, tf.clip_by_value(positions, 0, size - 1), axis=axis)
    return x
