"""Average, maximum and norm poolings of any rank; images have channels last here."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.windows import Windows, windows_of

# Pools images of two axes, given the kernel, strides and pads of these.
_Pool = Callable[[tf.Tensor, list[int], list[int], list[tuple[int, int]]], tf.Tensor]


@operation("AveragePool", since=10, images=["x"], num_images=1)
def average_pool(
    x,
    *,
    auto_pad,
    ceil_mode,
    count_include_pad,
    kernel_shape,
    pads=None,
    strides=None,
):
    asked = {"auto_pad": auto_pad, "pads": pads, "strides": strides}
    windows = windows_of(x, kernel_shape, ceil_mode=bool(ceil_mode), **asked)
    return _averaged(x, windows, windows_of(x, kernel_shape, **asked), count_include_pad)


@operation("AveragePool", since=19, images=["x"], num_images=1)
def average_pool_19(
    x,
    *,
    auto_pad,
    ceil_mode,
    count_include_pad,
    dilations=None,
    kernel_shape,
    pads=None,
    strides=None,
):
    asked = {"auto_pad": auto_pad, "pads": pads, "strides": strides, "dilations": dilations}
    windows = windows_of(x, kernel_shape, ceil_mode=bool(ceil_mode), **asked)
    return _averaged(x, windows, windows_of(x, kernel_shape, **asked), count_include_pad)


@operation("AveragePool", since=22, images=["x"], num_images=1)
def average_pool_22(
    x,
    *,
    auto_pad,
    ceil_mode,
    count_include_pad,
    dilations=None,
    kernel_shape,
    pads=None,
    strides=None,
):
    # Since version 22, `ceil_mode` adds no window that starts in the pads behind an image, as in
    # PyTorch.
    asked = {"auto_pad": auto_pad, "pads": pads, "strides": strides, "dilations": dilations}
    windows = windows_of(x, kernel_shape, ceil_mode=bool(ceil_mode), begins_within=True, **asked)
    return _averaged(x, windows, windows_of(x, kernel_shape, **asked), count_include_pad)


@operation("AveragePool", since=7, images=["x"], num_images=1)
def average_pool_7(x, *, auto_pad, count_include_pad, kernel_shape, pads=None, strides=None):
    return average_pool(
        x,
        auto_pad=auto_pad,
        ceil_mode=0,
        count_include_pad=count_include_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


@operation("AveragePool", images=["x"], num_images=1)
def average_pool_1(x, *, auto_pad, kernel_shape, pads=None, strides=None):
    return average_pool_7(
        x,
        auto_pad=auto_pad,
        count_include_pad=0,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )


@operation("MaxPool", since=10, images=["x"], num_images=1)
def max_pool(
    x,
    *,
    auto_pad,
    ceil_mode,
    dilations=None,
    kernel_shape,
    pads=None,
    storage_order,
    strides=None,
    context,
):
    asked = {"auto_pad": auto_pad, "pads": pads, "strides": strides, "dilations": dilations}
    windows = windows_of(x, kernel_shape, ceil_mode=bool(ceil_mode), **asked)
    return _maximum(x, windows, storage_order, context)


@operation("MaxPool", since=22, images=["x"], num_images=1)
def max_pool_22(
    x,
    *,
    auto_pad,
    ceil_mode,
    dilations=None,
    kernel_shape,
    pads=None,
    storage_order,
    strides=None,
    context,
):
    asked = {"auto_pad": auto_pad, "pads": pads, "strides": strides, "dilations": dilations}
    windows = windows_of(x, kernel_shape, ceil_mode=bool(ceil_mode), begins_within=True, **asked)
    return _maximum(x, windows, storage_order, context)


@operation("MaxPool", since=8, images=["x"], num_images=1)
def max_pool_8(x, *, auto_pad, kernel_shape, pads=None, storage_order, strides=None, context):
    return max_pool(
        x,
        auto_pad=auto_pad,
        ceil_mode=0,
        kernel_shape=kernel_shape,
        pads=pads,
        storage_order=storage_order,
        strides=strides,
        context=context,
    )


@operation("MaxPool", images=["x"], num_images=1)
def max_pool_1(x, *, auto_pad, kernel_shape, pads=None, strides=None, context):
    return max_pool_8(
        x,
        auto_pad=auto_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        storage_order=0,
        strides=strides,
        context=context,
    )


@operation("LpPool", since=2, images=["x"], num_images=1)
def lp_pool(x, *, auto_pad, kernel_shape, p, pads=None, strides=None):
    windows = windows_of(x, kernel_shape, auto_pad=auto_pad, pads=pads, strides=strides)
    return _lp_pooled(x, windows, p)


@operation("LpPool", since=18, images=["x"], num_images=1)
def lp_pool_18(x, *, auto_pad, ceil_mode, dilations=None, kernel_shape, p, pads=None, strides=None):
    windows = windows_of(
        x,
        kernel_shape,
        auto_pad=auto_pad,
        pads=pads,
        strides=strides,
        dilations=dilations,
        ceil_mode=bool(ceil_mode),
    )
    return _lp_pooled(x, windows, p)


@operation("GlobalAveragePool", images=["x"], num_images=1)
def global_average_pool(x):
    return tf.reduce_mean(x, _spatial_axes(x), keepdims=True)


@operation("GlobalMaxPool", images=["x"], num_images=1)
def global_max_pool(x):
    return tf.reduce_max(x, _spatial_axes(x), keepdims=True)


@operation("GlobalLpPool", since=2, images=["x"], num_images=1)
def global_lp_pool(x, *, p):
    return root(tf.reduce_sum(_power(x, p), _spatial_axes(x), keepdims=True), p)


@operation("MaxUnpool", since=9, static=["output_shape"])
def max_unpool(x, indices, output_shape=None, *, kernel_shape, pads=None, strides=None):
    rank = len(kernel_shape)
    strides = [1] * rank if strides is None else list(strides)
    pads = [0] * 2 * rank if pads is None else list(pads)
    sizes = [
        (size - 1) * stride - begin - end + kernel
        for size, stride, begin, end, kernel in zip(
            x.shape[2:], strides, pads[:rank], pads[rank:], kernel_shape, strict=True
        )
    ]
    # `output_shape` does not change what the indices mean: they count in the sizes that follow
    # from the attributes, and zeros fill up what is wanted beyond these.
    wanted = [-1, -1, *sizes] if output_shape is None else output_shape.tolist()
    missing = [want - size for want, size in zip(wanted[2:], sizes, strict=False)]
    if len(wanted) != rank + 2 or min(missing) < 0:
        raise popart_exception(
            f"`output_shape` must have {rank + 2} sizes, at least {sizes} for the images. "
            f"Received: {wanted}"
        )
    batch = tf.shape(x)[0] if x.shape[0] is None else x.shape[0]
    shape = [batch, x.shape[1], *sizes]
    places = tf.reshape(tf.cast(indices, tf.int32), [-1, 1])
    total = tf.reduce_prod(tf.stack(shape))
    flat = tf.scatter_nd(places, tf.reshape(x, [-1]), tf.reshape(total, [1]))
    return tf.pad(tf.reshape(flat, shape), [(0, 0), (0, 0), *((0, size) for size in missing)])


def _averaged(
    x: tf.Tensor, windows: Windows, without_ceil: Windows, count_include_pad: int
) -> tf.Tensor:
    is_dilated = any(dilation > 1 for dilation in windows.dilations)
    if not windows.are_padded and not is_dilated:
        return _pooled(x, windows, _average)
    if not count_include_pad and not is_dilated and _is_same(windows):
        return _pooled(x, windows, _average_of_same)
    # `ceil_mode` lets the last window reach beyond the pads; what it meets there never counts.
    counts = _counts(windows, without_ceil if count_include_pad else None)
    if is_dilated:
        return tf.add_n(_seen(x, windows, 0)) / tf.constant(counts[..., None], x.dtype)
    average = _pooled(tf.pad(x, [(0, 0), *windows.pads, (0, 0)]), windows, _average)
    return average / tf.constant(counts[..., None] / math.prod(windows.kernel), x.dtype)


def _maximum(x: tf.Tensor, windows: Windows, storage_order: int, context: Any) -> Any:
    if any(dilation > 1 for dilation in windows.dilations):
        result = tf.reduce_max(tf.stack(_seen(x, windows, _lowest(x.dtype))), 0)
    else:
        result = _pooled(x, windows, _largest)
    if not context.is_needed(1):
        return result
    return result, _to_model(_indices(x, windows, column_major=storage_order == 1))


def _lp_pooled(x: tf.Tensor, windows: Windows, p: int) -> tf.Tensor:
    powers = _power(x, p)
    if any(dilation > 1 for dilation in windows.dilations):
        return root(tf.add_n(_seen(powers, windows, 0)), p)
    padded = tf.pad(powers, [(0, 0), *windows.pads, (0, 0)])
    return root(_pooled(padded, windows, _average) * math.prod(windows.kernel), p)


def root(powers: tf.Tensor, p: int) -> tf.Tensor:
    """Returns the p-th root of sums of powers, whose gradient is zero at zero.

    The gradient of TensorFlow's root is infinite there, and NaN behind a product with zero; the
    inner `tf.where` keeps zeros away from it.
    """
    if p == 1:
        return powers
    is_zero = powers == 0
    some = tf.where(is_zero, tf.ones_like(powers), powers)
    rooted = tf.sqrt(some) if p == 2 else tf.pow(some, tf.constant(1 / p, powers.dtype))
    return tf.where(is_zero, tf.zeros_like(powers), rooted)


def _power(x: tf.Tensor, p: int) -> tf.Tensor:
    if p < 1:
        raise popart_exception(f"`p` must be at least 1. Received: {p}")
    return tf.square(x) if p == 2 else tf.abs(x) if p == 1 else tf.pow(tf.abs(x), p)


def _spatial_axes(x: tf.Tensor) -> list[int]:
    return list(range(1, len(x.shape) - 1))


def _pooled(x: tf.Tensor, windows: Windows, pool: _Pool) -> tf.Tensor:
    """Pools two axes at a time, as TensorFlow's kernels for three axes know float32 only."""
    kernel, strides, pads = list(windows.kernel), list(windows.strides), windows.pads
    if len(kernel) == 1:
        flat = tf.expand_dims(x, 2)
        return tf.squeeze(pool(flat, [*kernel, 1], [*strides, 1], [*pads, (0, 0)]), 2)
    if len(kernel) == 2:
        return pool(x, kernel, strides, pads)
    sizes = x.shape.as_list()
    planes = tf.reshape(x, [-1, *sizes[-3:]])
    planes = pool(planes, kernel[-2:], strides[-2:], pads[-2:])
    inner = planes.shape.as_list()[1:]
    rows = tf.reshape(planes, [-1, *sizes[1:-3], math.prod(inner)])
    before = replace(
        windows,
        **{
            name: getattr(windows, name)[:-2]
            for name in ("sizes", "kernel", "strides", "dilations", "begins", "ends")
        },
    )
    outer = _pooled(rows, before, pool)
    return tf.reshape(outer, [-1, *outer.shape[1:-1], *inner])


def _average(x: tf.Tensor, kernel: Sequence[int], strides: Sequence[int], pads: object):
    return tf.nn.avg_pool2d(x, kernel, strides, "VALID")


def _average_of_same(x: tf.Tensor, kernel: Sequence[int], strides: Sequence[int], pads: object):
    return tf.nn.avg_pool2d(x, kernel, strides, "SAME")


def _largest(
    x: tf.Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> tf.Tensor:
    if any(pad > 0 for both in pads for pad in both):
        # Programs are modelled by XLA's operations, and TensorFlow's pooling with explicit pads has
        # no translation to XLA.
        x = tf.pad(x, [(0, 0), *pads, (0, 0)], constant_values=_lowest(x.dtype))
    return tf.nn.max_pool2d(x, kernel, strides, "VALID")


def _lowest(dtype: tf.DType) -> float | int:
    return -math.inf if dtype.is_floating else dtype.min


def _is_same(windows: Windows) -> bool:
    """Whether these windows are those of TensorFlow's "SAME", whose average leaves out pads."""
    return windows.counts == [
        -(-size // stride) for size, stride in zip(windows.sizes, windows.strides, strict=True)
    ] and windows.pads == [
        (total // 2, total - total // 2)
        for total in (
            max((count - 1) * stride + kernel - size, 0)
            for count, stride, kernel, size in zip(
                windows.counts, windows.strides, windows.kernel, windows.sizes, strict=True
            )
        )
    ]


def _counts(windows: Windows, counted: Windows | None) -> np.ndarray:
    """Counts the elements of each window that lie in the images, or in the pads of `counted`."""
    result = np.ones((), np.float64)
    for axis, count in enumerate(windows.counts):
        first = 0 if counted is None else -counted.begins[axis]
        last = windows.sizes[axis] + (0 if counted is None else counted.ends[axis])
        starts = np.arange(count) * windows.strides[axis] - windows.begins[axis]
        places = starts[:, None] + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        seen = ((places >= first) & (places < last)).sum(1).clip(1)
        result = np.multiply.outer(result, seen)
    return result


def _seen(x: tf.Tensor, windows: Windows, around: float) -> list[tf.Tensor]:
    """Returns the parts of images, padded with `around`, that each element of the kernel meets."""
    padded = tf.pad(x, [(0, 0), *windows.pads, (0, 0)], constant_values=around)
    found = []
    for place in itertools.product(*map(range, windows.kernel)):
        ranges = [
            slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride)
            for at, dilation, count, stride in zip(
                place, windows.dilations, windows.counts, windows.strides, strict=True
            )
        ]
        found.append(padded[(slice(None), *ranges)])
    return found


def _indices(x: tf.Tensor, windows: Windows, *, column_major: bool) -> tf.Tensor:
    """Returns where in the model's flat tensor the largest element of each window is.

    ONNX counts with channels before the spatial axes, and over the whole batch.
    """
    rank = len(windows.kernel)
    which = tf.argmax(tf.stack(_seen(x, windows, _lowest(x.dtype))), 0, tf.int64)
    within = np.indices(windows.kernel).reshape(rank, -1)
    image = math.prod(windows.sizes)
    place = tf.zeros_like(which)
    for axis in range(rank):
        later = windows.sizes[:axis] if column_major else windows.sizes[axis + 1 :]
        offsets = within[axis] * windows.dilations[axis] - windows.begins[axis]
        starts = np.arange(windows.counts[axis]) * windows.strides[axis]
        shape = [-1 if at == axis else 1 for at in range(rank)] + [1]
        at = tf.gather(tf.constant(offsets, tf.int64), which) + starts.reshape(shape)
        place += at * math.prod(later)
    channels = x.shape[-1]
    place += tf.range(channels, dtype=tf.int64) * image
    batch = tf.range(tf.shape(x, tf.int64)[0]) * channels * image
    return place + tf.reshape(batch, [-1, *[1] * (rank + 1)])


def _to_model(images: tf.Tensor) -> tf.Tensor:
    rank = len(images.shape)
    return tf.transpose(images, [0, rank - 1, *range(1, rank - 1)])
