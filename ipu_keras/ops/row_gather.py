"""Rows of a tensor by their numbers, of which some may not exist."""

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.tracing.poplar_operation import differentiable


def rows_or_zeros(params: tf.Tensor, indices: tf.Tensor, exist: tf.Tensor) -> tf.Tensor:
    """Rows of a tensor, and zeros where there is none.

    An index out of range is an error, the last row, or garbage, depending on who runs TensorFlow's
    own operations; here all get zeros. The gradient is dense, as on an IPU: rows that were taken
    several times get the sum, so optimizers that square it do so once.

    Args:
        params: `(rows, ...)`.
        indices: int32 or int64, of any shape.
        exist: Which of the indices to use, a tensor of bool of the same shape. The others may
            have any value.

    Returns:
        A tensor of the shape `(*indices.shape, *params.shape[1:])`.

    Example:

    >>> rows_or_zeros(tf.constant([[1.0], [2.0]]), tf.constant([1, 7]), tf.constant([True, False]))
    <tf.Tensor: shape=(2, 1), dtype=float32, numpy=
    array([[2.],
           [0.]], dtype=float32)>
    """
    row = params.shape[1:]
    if static_sizes(params)[0] == 0:
        # TensorFlow refuses to gather from nothing, even where nothing is used of it.
        return tf.zeros(tf.concat([tf.shape(indices), row], axis=0), params.dtype)

    def run(params):
        def gradient(upstream):
            return sum_of_rows(upstream, indices, exist, num_rows(params))

        found = tf.gather(params, tf.where(exist, indices, tf.zeros_like(indices)))
        return tf.where(_beside(exist, row), found, tf.zeros([], params.dtype)), gradient

    return differentiable(run, params)


def sum_of_rows(
    values: tf.Tensor, indices: tf.Tensor, exist: tf.Tensor, size: int | tf.Tensor
) -> tf.Tensor:
    """Adds values to rows of zeros.

    Args:
        values: `(*indices.shape, ...)`.
        indices: Where each belongs.
        exist: Which of them to add.
        size: How many rows the result has.

    Returns:
        A tensor of the shape `(size, ...)`.
    """
    return tf.math.unsorted_segment_sum(
        values, tf.where(exist, indices, -tf.ones_like(indices)), size
    )


def num_rows(params: tf.Tensor) -> int | tf.Tensor:
    """The size of the first axis, which is open only while Keras makes a model."""
    return tf.shape(params)[0] if static_sizes(params)[0] is None else static_sizes(params)[0]


def _beside(exist: tf.Tensor, row: tf.TensorShape) -> tf.Tensor:
    """The tensor with axes of size 1 where rows have theirs."""
    for _ in range(row.rank):
        exist = exist[..., tf.newaxis]
    return exist
