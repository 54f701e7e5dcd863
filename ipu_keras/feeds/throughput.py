"""Measures how fast a dataset is read."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_HOST = "/device:CPU:0"


def measure(
    dataset: tf.data.Dataset, num_epochs: int, elements_per_epoch: int, *, copies: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads a dataset as programs do: in a graph, one element after the other.

    Returns for each epoch its seconds, and its bytes. In a graph, these are tensors that are
    computed anew whenever they are asked for. A dataset with fewer elements ends in an
    `OutOfRangeError`.

    Args:
        num_epochs: How many times the clock is stopped. Each epoch goes on where the one before
            has ended.
        copies: Whether each tensor is copied after it was read.

    Example:

    >>> seconds, num_bytes = measure(tf.data.Dataset.range(8), 2, 4, copies=True)
    >>> num_bytes.numpy().tolist()
    [32, 32]
    """
    with tf.device(_HOST):
        if tf.executing_eagerly():
            epochs = tf.function(_epochs, autograph=False)
            return epochs(dataset, num_epochs, elements_per_epoch, copies)
        return _epochs(dataset, num_epochs, elements_per_epoch, copies)


def _epochs(
    dataset: tf.data.Dataset, num_epochs: int, elements_per_epoch: int, copies: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    if tf.inside_function():
        iterator, ready = iter(dataset), []
    else:
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        ready = [iterator.initializer]

    def epoch(index: tf.Tensor, seconds: tf.TensorArray, num_bytes: tf.TensorArray) -> tuple:
        duration, size = _epoch(iterator, elements_per_epoch, copies)
        return index + 1, seconds.write(index, duration), num_bytes.write(index, size)

    with tf.control_dependencies(ready):
        first = tf.constant(0) + 0
    start = [
        tf.TensorArray(dtype, num_epochs, element_shape=()) for dtype in (tf.float64, tf.int64)
    ]
    _, seconds, num_bytes = tf.while_loop(
        lambda index, *_: index < num_epochs, epoch, [first, *start], parallel_iterations=1
    )
    return seconds.stack(), num_bytes.stack()


def _epoch(iterator: Any, num_elements: int, copies: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns seconds and bytes of reading some elements."""
    begin = tf.timestamp()

    def read(index: tf.Tensor, num_bytes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        tensors = tf.nest.flatten(iterator.get_next(), expand_composites=True)
        # `tf.identity` would hand on the same memory.
        done = [tf.raw_ops.DeepCopy(x=tensor) for tensor in tensors] if copies else tensors
        with tf.control_dependencies(done):
            return index + 1, num_bytes + _size(tensors)

    with tf.control_dependencies([begin]):
        start = [tf.constant(0, tf.int64) + 0, tf.constant(0, tf.int64) + 0]
    _, num_bytes = tf.while_loop(
        lambda index, _: index < num_elements, read, start, parallel_iterations=1
    )
    with tf.control_dependencies([num_bytes]):
        return tf.timestamp() - begin, num_bytes


def _size(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    sizes = [
        tf.reduce_sum(tf.cast(tf.strings.length(tensor), tf.int64))
        if tensor.dtype == tf.string
        else tf.size(tensor, tf.int64) * tensor.dtype.size
        for tensor in tensors
    ]
    return tf.add_n(sizes) if sizes else tf.constant(0, tf.int64)
