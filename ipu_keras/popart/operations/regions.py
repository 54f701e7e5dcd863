"""Pools and selects regions of images, as object detectors do."""

import itertools

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import operation


@operation("RoiAlign", since=10, images=["x"], num_images=1)
def roi_align(
    x,
    rois,
    batch_indices,
    *,
    mode,
    output_height,
    output_width,
    sampling_ratio,
    spatial_scale,
):
    return _aligned(
        x,
        rois * spatial_scale,
        batch_indices,
        mode,
        (output_height, output_width),
        sampling_ratio,
        least_size=1,
    )


@operation("RoiAlign", since=16, images=["x"], num_images=1)
def roi_align_16(
    x,
    rois,
    batch_indices,
    *,
    coordinate_transformation_mode,
    mode,
    output_height,
    output_width,
    sampling_ratio,
    spatial_scale,
):
    if coordinate_transformation_mode not in ("half_pixel", "output_half_pixel"):
        raise popart_exception(
            "`coordinate_transformation_mode` must be 'half_pixel' or 'output_half_pixel'. "
            f"Received: {coordinate_transformation_mode!r}"
        )
    # "half_pixel", the default since version 16, moves regions half a pixel to the front, and does
    # not widen them to a pixel.
    is_new = coordinate_transformation_mode == "half_pixel"
    return _aligned(
        x,
        rois * spatial_scale - (0.5 if is_new else 0),
        batch_indices,
        mode,
        (output_height, output_width),
        sampling_ratio,
        least_size=0 if is_new else 1,
    )


def _aligned(x, rois, batch_indices, mode, size, sampling_ratio, least_size):
    if mode not in ("avg", "max"):
        raise popart_exception(f"`mode` must be 'avg' or 'max'. Received: {mode!r}")
    _check_regions(x, rois, 4)
    left, top, right, bottom = tf.unstack(rois, axis=1)
    rows, row_counts = _samples(top, bottom, size[0], sampling_ratio, least_size)
    columns, column_counts = _samples(left, right, size[1], sampling_ratio, least_size)
    corners = _corners(x, tf.cast(batch_indices, tf.int32), rows, columns)
    # (regions, output height, samples, output width, samples, channels)
    is_sample = (
        _first(row_counts, tf.shape(rows)[2])[:, None, :, None, None, None]
        & _first(column_counts, tf.shape(columns)[2])[:, None, None, None, :, None]
    )
    if mode == "max":
        # The maximum is that of the weighted corners, and not of the interpolated samples that
        # ONNX's text describes: other implementations have it so.
        largest = tf.reduce_max(tf.stack(corners), 0)
        return tf.reduce_max(tf.where(is_sample, largest, x.dtype.min), [2, 4])
    total = tf.reduce_sum(tf.where(is_sample, tf.add_n(corners), 0), [2, 4])
    count = tf.cast(row_counts * column_counts, x.dtype)
    return total / count[:, None, None, None]


@operation("MaxRoiPool", images=["x"], num_images=1)
def max_roi_pool(x, rois, *, pooled_shape, spatial_scale):
    _check_regions(x, rois, 5)
    batch = tf.cast(rois[:, 0], tf.int32)
    # Regions are rounded to pixels, halves away from zero as C's `round` does; `tf.round` rounds
    # them to even.
    scaled = rois[:, 1:] * spatial_scale
    edges = tf.cast(tf.sign(scaled) * tf.floor(tf.abs(scaled) + 0.5), tf.int32)
    left, top, right, bottom = tf.unstack(edges, axis=1)
    in_rows = _bins(top, bottom, pooled_shape[0], x.shape[1])
    in_columns = _bins(left, right, pooled_shape[1], x.shape[2])
    images = tf.gather(x, batch)
    lowest = tf.constant(x.dtype.min, x.dtype)
    by_row = tf.stack(
        [
            tf.reduce_max(tf.where(inside[:, :, None, None], images, lowest), 1)
            for inside in tf.unstack(in_rows, axis=1)
        ],
        1,
    )
    pooled = tf.stack(
        [
            tf.reduce_max(tf.where(inside[:, None, :, None], by_row, lowest), 2)
            for inside in tf.unstack(in_columns, axis=1)
        ],
        2,
    )
    some_rows, some_columns = tf.reduce_any(in_rows, 2), tf.reduce_any(in_columns, 2)
    is_empty = ~(some_rows[:, :, None] & some_columns[:, None, :])
    return tf.where(is_empty[..., None], tf.zeros_like(pooled), pooled)


@operation("NonMaxSuppression", since=10, sizes_by_values=True)
def non_max_suppression(
    boxes,
    scores,
    max_output_boxes_per_class=None,
    iou_threshold=None,
    score_threshold=None,
    *,
    center_point_box,
):
    batches, classes = scores.shape[:2]
    if batches is None or classes is None:
        raise popart_exception(
            "The numbers of batches and classes must be known before anything runs. Received: "
            f"scores of shape {scores.shape.as_list()}. Give the model's input a shape."
        )
    if max_output_boxes_per_class is None:
        # ONNX's default is 0, which selects nothing.
        return np.zeros((0, 3), np.int64)
    most = tf.cast(tf.reshape(max_output_boxes_per_class, []), tf.int32)
    overlap = 0.0 if iou_threshold is None else tf.reshape(iou_threshold, [])
    least = -np.inf if score_threshold is None else tf.reshape(score_threshold, [])
    if center_point_box:
        x, y, width, height = tf.split(boxes, 4, axis=-1)
        half_height, half_width = height / 2, width / 2
        corners = [y - half_height, x - half_width, y + half_height, x + half_width]
        boxes = tf.concat(corners, -1)
    chosen = []
    for batch, kind in itertools.product(range(batches), range(classes)):
        indices = tf.image.non_max_suppression(
            boxes[batch], scores[batch, kind], most, overlap, least
        )
        found = tf.cast(indices, tf.int64)
        of_all = [tf.fill(tf.shape(found), tf.constant(each, tf.int64)) for each in (batch, kind)]
        chosen.append(tf.stack([*of_all, found], 1))
    return tf.concat(chosen, 0)


def _check_regions(x: tf.Tensor, rois: tf.Tensor, count: int) -> None:
    if len(x.shape) != 4 or rois.shape[-1] != count or len(rois.shape) != 2:
        raise popart_exception(
            f"It takes images of 4 axes, and regions of the shape (number, {count}). Received: "
            f"{len(x.shape)} axes, and regions of the shape {rois.shape.as_list()}"
        )


def _samples(
    begin, end, num_bins: int, sampling_ratio: int, least_size: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns where bins are sampled, `(regions, bins, samples)`, and how often, `(regions,)`."""
    # With a sampling ratio of 0 the number of samples depends on the size of a region; all regions
    # get as many places as the largest needs, and callers mask the rest.
    length = tf.maximum(end - begin, least_size) if least_size else end - begin
    bin_size = length / num_bins
    if sampling_ratio > 0:
        counts = tf.fill(tf.shape(begin), sampling_ratio)
        most = tf.constant(sampling_ratio)
    else:
        counts = tf.cast(tf.math.ceil(bin_size), tf.int32)
        most = tf.reduce_max(counts)
    steps = (tf.cast(tf.range(most), begin.dtype) + 0.5)[None, None, :]
    starts = begin[:, None] + tf.range(num_bins, dtype=begin.dtype) * bin_size[:, None]
    step_size = bin_size / tf.cast(counts, begin.dtype)
    return starts[:, :, None] + steps * step_size[:, None, None], counts


def _first(counts: tf.Tensor, most: tf.Tensor) -> tf.Tensor:
    return tf.range(most)[None, :] < counts[:, None]


def _corners(x, batch, rows, columns) -> list[tf.Tensor]:
    """Returns the four pixels around each sample, each times its weight."""
    row_ends, column_ends = _ends(rows, x.shape[1]), _ends(columns, x.shape[2])
    found = []
    for (row, row_share), (column, column_share) in itertools.product(row_ends, column_ends):
        shape = tf.concat([tf.shape(row), tf.shape(column)[1:]], 0)
        at = [
            tf.broadcast_to(batch[:, None, None, None, None], shape),
            tf.broadcast_to(row[:, :, :, None, None], shape),
            tf.broadcast_to(column[:, None, None, :, :], shape),
        ]
        share = row_share[:, :, :, None, None] * column_share[:, None, None, :, :]
        found.append(tf.gather_nd(x, tf.stack(at, -1)) * tf.cast(share, x.dtype)[..., None])
    return found


def _ends(places: tf.Tensor, size: int) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Returns the pixels before and behind places along an axis, and the weight of each.

    Places more than one pixel outside of the image count nothing.
    """
    is_far = (places < -1) | (places > size)
    places = tf.clip_by_value(places, 0, size - 1)
    first = tf.floor(places)
    share = places - first
    before = tf.cast(first, tf.int32)
    behind = tf.minimum(before + 1, size - 1)
    nothing = tf.zeros_like(share)
    return [
        (before, tf.where(is_far, nothing, 1 - share)),
        (behind, tf.where(is_far, nothing, share)),
    ]


def _bins(begin: tf.Tensor, end: tf.Tensor, count: int, size: int) -> tf.Tensor:
    """Returns which elements of an axis are in each bin of regions, `(regions, bins, size)`."""
    length = tf.cast(tf.maximum(end - begin + 1, 1), tf.float32)[:, None]
    place = tf.range(count, dtype=tf.float32)
    starts = tf.cast(tf.floor(place * (length / count)), tf.int32) + begin[:, None]
    stops = tf.cast(tf.math.ceil((place + 1) * (length / count)), tf.int32) + begin[:, None]
    at = tf.range(size)
    return (at >= starts[:, :, None]) & (at < stops[:, :, None])
