"""What recurrent layers share: their loops over steps, and products over all of them.

Products have their sums in the precision of a matrix that was `widened` for them.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes


def num_steps(sequence: tf.Tensor) -> Any:
    """The length of the first axis, as a number if it is known."""
    return tf.shape(sequence)[0] if static_sizes(sequence)[0] is None else static_sizes(sequence)[0]


def loop(step: Callable, steps: Any, *carried: Any) -> Any:
    """What is left after all steps of the number of steps and of what they carried."""
    return tf.while_loop(
        lambda time, *_: time < steps, step, (tf.constant(0), *carried), maximum_iterations=steps
    )


def arrays(steps: Any, *examples: tf.Tensor) -> list[tf.TensorArray]:
    """An array for each example, with room for one like it of every step."""
    return [tf.TensorArray(e.dtype, steps, element_shape=e.shape) for e in examples]


def shifted(sequence: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """What each step found of a sequence that it continued."""
    return tf.concat([first[tf.newaxis], sequence[:-1]], axis=0)


def widened(matrix: tf.Tensor, partials_dtype: tf.DType | None) -> tf.Tensor:
    """A matrix in the precision in which its products are summed.

    Args:
        matrix: Whose own precision is the least.
        partials_dtype: Of the sums. `None` is the matrix's own.
    """
    if partials_dtype is None or partials_dtype.size <= matrix.dtype.size:
        return matrix
    return tf.cast(matrix, partials_dtype)


def product(a: tf.Tensor, wide: tf.Tensor, **options: bool) -> tf.Tensor:
    """`a` times a widened matrix, in the precision of `a`."""
    return tf.cast(tf.matmul(tf.cast(a, wide.dtype), wide, **options), a.dtype)


def per_step_product(sequence: tf.Tensor, wide: tf.Tensor, **options: bool) -> tf.Tensor:
    """`(time, batch, n)` times a widened matrix, as one product."""
    flat = product(tf.reshape(sequence, [-1, static_sizes(sequence)[-1]]), wide, **options)
    shape = [-1 if n is None else n for n in (*static_sizes(sequence)[:2], static_sizes(flat)[-1])]
    if shape.count(-1) > 1 or 0 in shape:
        shape = tf.concat([tf.shape(sequence)[:2], [static_sizes(flat)[-1]]], axis=0)
    return tf.reshape(flat, shape)


def product_over_steps(
    a: tf.Tensor, b: tf.Tensor, partials_dtype: tf.DType | None = None
) -> tf.Tensor:
    """The sum over all steps and samples of `a`, transposed, times `b`."""
    a, b = (tf.reshape(t, [-1, static_sizes(t)[-1]]) for t in (a, b))
    return product(a, widened(b, partials_dtype), transpose_a=True)


def sum_over_steps(a: tf.Tensor, partials_dtype: tf.DType | None = None) -> tf.Tensor:
    """The sum over all steps and samples."""
    return tf.cast(tf.reduce_sum(widened(a, partials_dtype), axis=[0, 1]), a.dtype)


def select(mask: tf.Tensor | None, chosen: tf.Tensor, otherwise: Any) -> tf.Tensor:
    """What was chosen where the mask says so, or everywhere if there is none."""
    if mask is None:
        return chosen
    return tf.where(mask, chosen, tf.cast(otherwise, chosen.dtype))


def step_mask(mask: tf.Tensor | None) -> tf.Tensor | None:
    """A mask `(time, batch)` as one that numbers of each step can be selected by."""
    return None if mask is None else tf.cast(mask, tf.bool)[..., tf.newaxis]
