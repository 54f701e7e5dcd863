"""Rows of a tensor by their numbers, some of which may not exist."""

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.tracing.poplar_operation import differentiable


def rows_or_zeros(params: tf.Tensor, indices: tf.Tensor, exist: tf.Tensor) -> tf.Tensor:
    """Returns rows of a tensor, `(*indices.shape, *params.shape[1:])`, and zeros where there is
    none.

    An index out of range is an error, the last row, or garbage, depending on what runs
    TensorFlow's own operations; here all get zeros. The gradient is dense, as on an IPU: rows
    that were taken several times get the sum, so optimizers that square it do so once. `exist`
    says which of the indices count; the others may have any value.

    Example:

    >>> rows_or_zeros(tf.constant([[1.0], [2.0]]), tf.constant([1, 7]), tf.constant([True, False]))
    <tf.Tensor: shape=(2, 1), dtype=float32, numpy=
    array([[2.],
           [0.]], dtype=float32)>
    """
    row = params.shape[1:]
    if static_sizes(params)[0] == 0:
        # TensorFlow refuses to gather from a tensor without rows, even if no row is used.
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
    """Adds values `(*indices.shape, ...)` to `size` rows of zeros, those that `exist` says."""
    # Negative segments are dropped, whoever runs the operation.
    return tf.math.unsorted_segment_sum(
        values, tf.where(exist, indices, -tf.ones_like(indices)), size
    )


def num_rows(params: tf.Tensor) -> int | tf.Tensor:
    """Returns the size of the first axis, which is open only while Keras makes a model."""
    return tf.shape(params)[0] if static_sizes(params)[0] is None else static_sizes(params)[0]


def _beside(exist: tf.Tensor, row: tf.TensorShape) -> tf.Tensor:
    """Returns the tensor with axes of size 1 where rows have theirs."""
    for _ in range(row.rank):
        exist = exist[..., tf.newaxis]
    return exist
