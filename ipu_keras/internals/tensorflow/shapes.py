"""Shapes of tensors, whose sizes are no integers in TensorFlow 1."""

from typing import Any


def static_sizes(tensor: Any) -> tuple[Any, ...]:
    """Returns the sizes of a tensor, variable, array or `TensorSpec`; `None` for unknown ones.

    In TensorFlow 1's mode `tensor.shape[0]` is an object that cannot be negated, hashed or
    compared with `None`. All that computes with sizes of tensors asks here.

    Example:

    >>> import tensorflow as tf
    >>> static_sizes(tf.TensorSpec([None, 3]))
    (None, 3)
    """
    return tuple(getattr(size, "value", size) for size in tensor.shape)
