"""The results of programs that are compiled and do not run: zeros."""

from typing import Any

import tensorflow as tf


def zero_results(concrete: Any) -> Any:
    """Returns zeros in place of what a traced function returns.

    A size that is not known before it runs is 0.
    """
    return tf.nest.map_structure(_zeros, concrete.structured_outputs)


def _zeros(result: Any) -> Any:
    if not isinstance(result, tf.Tensor | tf.TensorSpec):
        return result
    if result.shape.rank is None:
        return tf.zeros([0], result.dtype)
    return tf.zeros([size or 0 for size in result.shape], result.dtype)
