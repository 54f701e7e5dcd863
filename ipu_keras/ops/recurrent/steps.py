"""What recurrent layers share: their loops over steps, and products over all of them.

The sums of products have the precision of a matrix that was `widened` for them.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.tracing.frontend_attributes import PARTIALS_TYPE, attributed


def num_steps(sequence: tf.Tensor) -> Any:
    """Returns the length of the first axis, as a number if it is known."""
    return tf.shape(sequence)[0] if static_sizes(sequence)[0] is None else static_sizes(sequence)[0]


def loop(step: Callable, steps: Any, *carried: Any) -> Any:
    """Runs a step as a `tf.while_loop`; returns the number of steps and what they carried."""
    return tf.while_loop(
        lambda time, *_: time < steps, step, (tf.constant(0), *carried), maximum_iterations=steps
    )


def arrays(steps: Any, *examples: tf.Tensor) -> list[tf.TensorArray]:
    """Returns an array for each example, with room for one like it from every step."""
    return [tf.TensorArray(e.dtype, steps, element_shape=e.shape) for e in examples]


def shifted(sequence: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Returns, for each step, the entry of the sequence before it; `first` for the first step."""
    return tf.concat([first[tf.newaxis], sequence[:-1]], axis=0)


def widened(matrix: tf.Tensor, partials_dtype: tf.DType | None) -> tf.Tensor:
    """Returns a matrix in the precision in which its products are summed, at least its own."""
    if partials_dtype is None or partials_dtype.size <= matrix.dtype.size:
        return matrix
    return tf.cast(matrix, partials_dtype)


def partial_sums_in(
    partials_dtype: tf.DType | None,
) -> contextlib.AbstractContextManager[None]:
    """While this is open, products of halves round their partial sums if those are to be halves."""
    if partials_dtype != tf.float16 or tf.executing_eagerly():
        return contextlib.nullcontext()
    return attributed(tf.compat.v1.get_default_graph(), PARTIALS_TYPE, "half")


def product(a: tf.Tensor, wide: tf.Tensor, **options: bool) -> tf.Tensor:
    """Returns `a` times a widened matrix, in the precision of `a`."""
    return tf.cast(tf.matmul(tf.cast(a, wide.dtype), wide, **options), a.dtype)


def per_step_product(sequence: tf.Tensor, wide: tf.Tensor, **options: bool) -> tf.Tensor:
    """Returns `(time, batch, n)` times a widened matrix, as one product."""
    flat = product(tf.reshape(sequence, [-1, static_sizes(sequence)[-1]]), wide, **options)
    shape = [-1 if n is None else n for n in (*static_sizes(sequence)[:2], static_sizes(flat)[-1])]
    if shape.count(-1) > 1 or 0 in shape:
        shape = tf.concat([tf.shape(sequence)[:2], [static_sizes(flat)[-1]]], axis=0)
    return tf.reshape(flat, shape)


def product_over_steps(
    a: tf.Tensor, b: tf.Tensor, partials_dtype: tf.DType | None = None
) -> tf.Tensor:
    """Returns the sum over all steps and samples of `a`, transposed, times `b`."""
    a, b = (tf.reshape(t, [-1, static_sizes(t)[-1]]) for t in (a, b))
    return product(a, widened(b, partials_dtype), transpose_a=True)


def sum_over_steps(a: tf.Tensor, partials_dtype: tf.DType | None = None) -> tf.Tensor:
    """Returns the sum over all steps and samples."""
    return tf.cast(tf.reduce_sum(widened(a, partials_dtype), axis=[0, 1]), a.dtype)


def select(mask: tf.Tensor | None, chosen: tf.Tensor, otherwise: Any) -> tf.Tensor:
    """Returns `chosen` where the mask is true, or everywhere if there is no mask."""
    if mask is None:
        return chosen
    return tf.where(mask, chosen, tf.cast(otherwise, chosen.dtype))


def step_mask(mask: tf.Tensor | None) -> tf.Tensor | None:
    """Returns a mask `(time, batch)` in the shape that `select` takes for each step."""
    return None if mask is None else tf.cast(mask, tf.bool)[..., tf.newaxis]
