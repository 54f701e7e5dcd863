"""Runs of rows that are copied from one tensor to another."""

import tensorflow as tf

from ipu_keras.ops.row_gather import num_rows, rows_or_zeros
from ipu_keras.tracing.poplar_operation import poplar_operation

_KIND = "SequenceSlice"


def copied_rows(
    dst: tf.Tensor,
    src: tf.Tensor,
    num_elems: tf.Tensor,
    src_offsets: tf.Tensor,
    dst_offsets: tf.Tensor,
    *,
    zero_unused: bool,
) -> tf.Tensor:
    """Returns `dst` with runs of rows of `src`.

    Where runs overlap, the last one counts. Of a run that reaches over an end of either tensor,
    the rows that are in both are copied. The three tensors about runs are int32 `(runs,)`: the
    number of rows of each run, and its first row in either tensor. With `zero_unused`, rows that
    no run covers become zeros.
    """
    with poplar_operation(_KIND):
        rows, exist = _sources(num_rows(dst), num_rows(src), num_elems, src_offsets, dst_offsets)
        copied = rows_or_zeros(src, rows, exist)
        if zero_unused:
            return copied
        return tf.where(tf.reshape(exist, (-1, *[1] * (dst.shape.rank - 1))), copied, dst)


def _sources(
    size: int | tf.Tensor,
    num_sources: int | tf.Tensor,
    num_elems: tf.Tensor,
    src_offsets: tf.Tensor,
    dst_offsets: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns, for each row of the result, which row is copied to it, and whether one is."""
    rows = tf.range(size)
    distances = src_offsets - dst_offsets
    sources = rows + distances[:, tf.newaxis]
    starts = dst_offsets[:, tf.newaxis]
    covered = (rows >= starts) & (rows < starts + num_elems[:, tf.newaxis])
    covered &= (sources >= 0) & (sources < num_sources)
    # Not a scatter, in which the order of writes to one row is undefined. `(runs, rows)` integers
    # cost little beside the rows themselves.
    numbers = tf.range(tf.shape(num_elems)[0])[:, tf.newaxis]
    last = tf.reduce_max(tf.where(covered, numbers, -1), axis=0)
    return rows + tf.gather(distances, tf.maximum(last, 0)), last >= 0
