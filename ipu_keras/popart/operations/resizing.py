"""Resizes tensors one axis after the other, by nearest elements or by interpolation.

All sizes are known while tracing, so places and weights are computed with NumPy.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.sizes import axis_within


@dataclass(frozen=True)
class _Axis:
    """How one axis is resized, from `size` to `new_size` elements.

    `begin` and `end` are those of the region that is cut out, as shares of the axis.
    """

    size: int
    scale: np.float32
    new_size: int
    begin: float = 0.0
    end: float = 1.0

    @property
    def places(self) -> np.ndarray:
        return np.arange(self.new_size, dtype=np.float32)


def _half_pixel(axis: _Axis) -> np.ndarray:
    return (axis.places + np.float32(0.5)) / axis.scale - np.float32(0.5)


def _half_pixel_symmetric(axis: _Axis) -> np.ndarray:
    # The new size is rounded down, and so is less than the scale says: the rest is split to both
    # ends.
    share = axis.new_size / (axis.size * float(axis.scale))
    return np.float32(axis.size / 2 * (1 - share)) + _half_pixel(axis)


def _asymmetric(axis: _Axis) -> np.ndarray:
    return axis.places / axis.scale


def _align_corners(axis: _Axis) -> np.ndarray:
    if axis.new_size == 1:
        return axis.places
    # ONNX computes with the length before it is rounded down to the new size.
    length = np.float32(axis.size) * axis.scale
    return axis.places * np.float32(axis.size - 1) / (length - 1)


def _crop(axis: _Axis) -> np.ndarray:
    last = axis.size - 1
    if axis.new_size == 1:
        return np.array([0.5 * (axis.begin + axis.end) * last], np.float32)
    step = (axis.end - axis.begin) * last / (axis.new_size - 1)
    return (axis.begin * last + axis.places * step).astype(np.float32)


# By `coordinate_transformation_mode`: the place of each new element on the old axis.
_COORDINATES: dict[str, Callable[[_Axis], np.ndarray]] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": lambda a: _half_pixel(a) if a.new_size > 1 else a.places,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": lambda a: (a.places + np.float32(0.5)) / a.scale,
    "tf_crop_and_resize": _crop,
    "half_pixel_symmetric": _half_pixel_symmetric,
}

_ROUNDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@operation("Resize", since=11, static=["roi", "scales", "sizes"], any_order=True)
def resize(
    x,
    roi,
    scales,
    sizes=None,
    *,
    coordinate_transformation_mode,
    cubic_coeff_a,
    exclude_outside,
    extrapolation_value,
    mode,
    nearest_mode,
    context,
):
    # ONNX ignores `roi` in all other modes.
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    axes = _axes(x.shape.as_list(), context.order, roi if crops else None, scales, sizes)
    return _resized(
        x,
        axes,
        coordinate_transformation_mode,
        cubic_coeff_a,
        exclude_outside,
        extrapolation_value,
        mode,
        nearest_mode,
    )


@operation("Resize", since=13, static=["roi", "scales", "sizes"], any_order=True)
def resize_13(
    x,
    roi=None,
    scales=None,
    sizes=None,
    *,
    coordinate_transformation_mode,
    cubic_coeff_a,
    exclude_outside,
    extrapolation_value,
    mode,
    nearest_mode,
    context,
):
    return resize(
        x,
        roi,
        scales,
        sizes,
        coordinate_transformation_mode=coordinate_transformation_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        extrapolation_value=extrapolation_value,
        mode=mode,
        nearest_mode=nearest_mode,
        context=context,
    )


@operation("Resize", since=18, static=["roi", "scales", "sizes"], any_order=True)
def resize_18(
    x,
    roi=None,
    scales=None,
    sizes=None,
    *,
    antialias,
    axes=None,
    coordinate_transformation_mode,
    cubic_coeff_a,
    exclude_outside,
    extrapolation_value,
    keep_aspect_ratio_policy,
    mode,
    nearest_mode,
    context,
):
    shape = x.shape.as_list()
    rank = len(shape)
    chosen = range(rank) if axes is None else [axis_within(axis, rank) for axis in axes]
    in_model = [shape[context.order.permutation(rank).index(axis)] for axis in range(rank)]
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    if roi is not None and roi.size:
        begins_and_ends = np.concatenate([np.zeros(rank), np.ones(rank)])
        places = [*chosen, *(rank + axis for axis in chosen)]
        roi = _of_all_axes("roi", roi, places, begins_and_ends)
    if scales is not None and scales.size:
        scales = _of_all_axes("scales", scales, chosen, np.ones(rank, np.float32))
    if sizes is not None and sizes.size:
        _check_given("sizes", sizes, chosen)
        sizes, scales = _of_aspect_ratio(keep_aspect_ratio_policy, sizes, chosen, in_model)
    resized = _axes(shape, context.order, roi if crops else None, scales, sizes)
    return _resized(
        x,
        resized,
        coordinate_transformation_mode,
        cubic_coeff_a,
        exclude_outside,
        extrapolation_value,
        mode,
        nearest_mode,
        bool(antialias),
    )


def _check_given(name: str, given: np.ndarray, places: Sequence[int]) -> None:
    if given.size != len(places):
        raise popart_exception(
            f"`{name}` must be {len(places)} numbers, by the axes that are resized. "
            f"Received: {given.tolist()}"
        )


def _of_all_axes(
    name: str, given: np.ndarray, places: Sequence[int], others: np.ndarray
) -> np.ndarray:
    """Spreads numbers that are given for a few axes to all axes."""
    _check_given(name, given, places)
    whole = others.copy()
    whole[list(places)] = given
    return whole


def _of_aspect_ratio(
    policy: str, sizes: np.ndarray, chosen: Sequence[int], shape: Sequence[int | None]
) -> tuple[list[int | None], list[np.float32] | None]:
    """Returns the sizes of all axes, and their scales if these do not follow from the sizes."""
    _of("keep_aspect_ratio_policy", policy, {"stretch", "not_larger", "not_smaller"})
    whole = list(shape)
    if policy == "stretch":
        for axis, size in zip(chosen, sizes.tolist(), strict=True):
            whole[axis] = size
        return whole, None
    before = [shape[axis] for axis in chosen]
    if None in before:
        raise popart_exception(
            "The sizes of axes that keep their ratio must be known before anything runs. "
            f"Received: the shape {list(shape)}. Give the model's input a shape."
        )
    shares = sizes / np.array(before, np.float64)
    share = shares.min() if policy == "not_larger" else shares.max()
    scales = [np.float32(1)] * len(whole)
    for axis, size in zip(chosen, before, strict=True):
        assert size is not None
        # ONNX rounds halves up here, and everywhere else sizes down.
        whole[axis], scales[axis] = math.floor(share * size + 0.5), np.float32(share)
    return whole, scales


def _resized(
    x: tf.Tensor,
    axes: Mapping[int, "_Axis"],
    coordinates: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    extrapolation_value: float,
    mode: str,
    nearest_mode: str,
    antialias: bool = False,
) -> tf.Tensor:
    to_places = _of("coordinate_transformation_mode", coordinates, _COORDINATES)
    rounded = _of("nearest_mode", nearest_mode, _ROUNDED)
    _of("mode", mode, {"nearest", "linear", "cubic"})
    crops = coordinates == "tf_crop_and_resize"
    outside = []
    result = x
    for position, axis in axes.items():
        places = to_places(axis)
        if mode == "nearest":
            result = _taken(result, position, rounded(places))
        else:
            scale = min(float(axis.scale), 1.0) if antialias else 1.0
            taps = (
                _linear(places, scale) if mode == "linear" else _cubic(places, cubic_coeff_a, scale)
            )
            result = _interpolated(result, position, places, taps, bool(exclude_outside))
        is_outside = (places < 0) | (places > axis.size - 1)
        if crops and is_outside.any():
            shape = [-1 if at == position else 1 for at in range(len(x.shape))]
            outside.append(is_outside.reshape(shape))
    result = tf.cast(result, x.dtype)
    if not outside:
        return result
    anywhere = np.logical_or.reduce(np.broadcast_arrays(*outside))
    return tf.where(anywhere, tf.cast(extrapolation_value, x.dtype), result)


@operation("Resize", since=10, static=["scales"], any_order=True)
def resize_10(x, scales, *, mode, context):
    return _resized_10(x, scales, mode, context)


@operation("Upsample", since=9, static=["scales"], any_order=True)
def upsample(x, scales, *, mode, context):
    return _upsampled(x, scales, mode, context)


@operation("Upsample", since=7, any_order=True)
def upsample_7(x, *, mode, scales, context):
    return _upsampled(x, scales, mode, context)


@operation("Upsample", any_order=True)
def upsample_1(x, *, height_scale, mode, width_scale, context):
    return _upsampled(x, [1, 1, height_scale, width_scale], mode, context)


def _upsampled(x, scales, mode, context):
    if min(scales) < 1:
        raise popart_exception(f"`scales` must be at least 1. Received: {list(map(float, scales))}")
    return _resized_10(x, scales, mode, context)


def _resized_10(x, scales, mode, context):
    _of("mode", mode, {"nearest", "linear", "bilinear"})
    result = x
    for position, axis in _axes(x.shape.as_list(), context.order, None, scales, None).items():
        places = _asymmetric(axis)
        if mode == "nearest":
            # The text of version 10 does not say which element is the nearest; its examples, and
            # other implementations, do it this way.
            places = np.ceil(places) if axis.scale < 1 else np.floor(places)
            result = _taken(result, position, places)
        else:
            result = _interpolated(result, position, places, _linear(places), False)
    return tf.cast(result, x.dtype)


def _axes(shape, order, roi, scales, sizes) -> dict[int, _Axis]:
    """Returns how axes are resized, by their position in `order`, without those that stay as is."""
    rank = len(shape)
    by_size = sizes is not None and len(sizes)
    has_own_scales = by_size and scales is not None and len(scales)
    if not by_size and (scales is None or not len(scales)):
        raise popart_exception("One of `scales` and `sizes` must be given. Received: neither")
    given = sizes if by_size else scales
    if len(given) != rank or min(each for each in given if each is not None) <= 0:
        raise popart_exception(
            f"`{'sizes' if by_size else 'scales'}` must be {rank} positive numbers, one for each "
            f"axis of the input. Received: {np.asarray(given).tolist()}"
        )
    if roi is not None and len(roi) != 2 * rank:
        raise popart_exception(
            f"`roi` must be {2 * rank} numbers, the begins and then the ends of all axes. "
            f"Received: {np.asarray(roi).tolist()}"
        )
    found = {}
    for position, axis in enumerate(order.permutation(rank)):
        size = shape[position]
        begin, end = (0.0, 1.0) if roi is None else (float(roi[axis]), float(roi[rank + axis]))
        if size is None:
            if roi is None and given[axis] == (None if by_size else 1):
                continue
            raise popart_exception(
                f"The axis {axis} has no size that is known before anything runs, so it cannot "
                "be resized. Give the model's input a shape."
            )
        # The scale applies to the whole axis, whatever region is cut out, as in ONNX's own
        # inference of shapes. It is in float32, which decides how products are rounded down.
        grown = np.floor(np.float32(size) * np.float32(given[axis]))
        new_size = int(given[axis] if by_size else grown)
        scale = np.float32(new_size) / np.float32(size) if by_size else np.float32(given[axis])
        if has_own_scales:
            scale = np.float32(scales[axis])
        if new_size < 1:
            raise popart_exception(
                f"`scales` must leave something of each axis. Received: {given[axis]:g} for the "
                f"axis {axis} of size {size}"
            )
        if new_size != size or scale != 1 or (begin, end) != (0, 1):
            found[position] = _Axis(size, scale, new_size, begin, end)
    return found


def _taken(x: tf.Tensor, position: int, places: np.ndarray) -> tf.Tensor:
    """Takes the elements at `places` along an axis."""
    size = x.shape[position]
    indices = np.clip(places.astype(np.int64), 0, size - 1)
    times = len(indices) // size
    if np.array_equal(indices, np.repeat(np.arange(size), times)):
        # The gradient of repetition is a sum; that of a gather adds up elements one by one.
        return tf.repeat(x, times, axis=position)
    return tf.gather(x, indices, axis=position)


def _linear(places: np.ndarray, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Returns the elements around places and their linear weights, both `(new size, 2)`.

    With a scale below 1 (`antialias`), more elements count, by distances that much shorter.
    """
    elements, distances = _around(places, 1, scale)
    if scale == 1:
        share = places - np.floor(places)
        return elements, np.stack([1 - share, share], 1)
    weights = (1 - distances).clip(0, 1)
    return elements, weights / weights.sum(1, keepdims=True)


def _cubic(places: np.ndarray, a: float, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Does the same as `_linear` for four elements, by the weights of cubic convolution."""
    elements, distances = _around(places, 2, scale)
    near = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    far = ((a * distances - 5 * a) * distances + 8 * a) * distances - 4 * a
    if scale == 1:
        return elements, np.where(distances <= 1, near, far)
    weights = np.where(distances <= 1, near, np.where(distances < 2, far, 0))
    return elements, weights / weights.sum(1, keepdims=True)


def _around(places: np.ndarray, reach: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the elements within reach of places, and their distances times `scale`."""
    first = math.floor(-reach / scale) + 1
    elements = np.floor(places)[:, None] + np.arange(first, 2 - first)
    return elements, np.abs(places[:, None] - elements).astype(np.float64) * scale


def _interpolated(
    x: tf.Tensor,
    position: int,
    places: np.ndarray,
    taps: tuple[np.ndarray, np.ndarray],
    excludes_outside: bool,
) -> tf.Tensor:
    """Adds up weighted elements along an axis as a matrix product, whose gradient is one, too."""
    elements, weights = taps
    size = x.shape[position]
    if excludes_outside:
        weights = np.where((elements < 0) | (elements >= size), 0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    matrix = np.zeros((len(places), size))
    rows = np.arange(len(places))[:, None]
    np.add.at(matrix, (rows, np.clip(elements, 0, size - 1).astype(np.int64)), weights)
    dtype = tf.float64 if x.dtype == tf.float64 else tf.float32
    shape = x.shape.as_list()
    behind = math.prod(shape[position + 1 :])
    flat = tf.reshape(x, [size, behind] if position == 0 else [-1, size, behind])
    result = tf.matmul(tf.constant(matrix, dtype), tf.cast(flat, dtype))
    return tf.reshape(result, [*_sizes(x, position), len(places), *shape[position + 1 :]])


def _sizes(x: tf.Tensor, count: int) -> list:
    """Returns the first sizes; that of an unknown batch is a tensor."""
    dynamic = tf.shape(x)
    return [dynamic[at] if x.shape[at] is None else x.shape[at] for at in range(count)]


def _of(name: str, value: str, choices):
    if value not in choices:
        raise popart_exception(
            f"`{name}` must be one of {', '.join(sorted(choices))}. Received: {value!r}"
        )
    return choices[value] if isinstance(choices, dict) else value
