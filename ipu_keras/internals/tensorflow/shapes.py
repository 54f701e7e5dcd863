"""Shapes of tensors, which TensorFlow 1 makes of dimensions that are no integers."""

from typing import Any


def static_sizes(tensor: Any) -> tuple[Any, ...]:
    """The sizes of a tensor or an array, `None` where one is not known.

    In TensorFlow 1's mode `tensor.shape[0]` is an object that cannot be negated, hashed or compared
    with `None`. All that computes with sizes of tensors asks here.

    Args:
        tensor: Of a known rank; or a variable, or a `TensorSpec`.

    Example:

    >>> import tensorflow as tf
    >>> static_sizes(tf.TensorSpec([None, 3]))
    (None, 3)
    """
    return tuple(getattr(size, "value", size) for size in tensor.shape)
