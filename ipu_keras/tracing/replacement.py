"""Operations that get other results while a graph is built."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from tensorflow.python.framework import op_callbacks


@contextlib.contextmanager
def replaced(
    kind: str, replacement: Callable[[Sequence[tf.Tensor], tf.Tensor], tf.Tensor | None]
) -> Iterator[None]:
    """While graphs are traced, gives the operations of a kind another result.

    Uses TensorFlow's op callbacks. The operation itself stays in the graph,
    without a use. Eager operations are left alone.

    Args:
        kind: TensorFlow's name of an operation type with one result.
        replacement: Takes the inputs and the result of an operation; returns
            what users of the result get, or `None` to leave it.
    """

    def callback(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        if op_type == kind and graph is not None:
            (output,) = outputs
            other = replacement(inputs, output)
            if other is not None:
                return [other]
        return outputs  # `None` would undo what another callback has replaced

    op_callbacks.add_op_callback(callback)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(callback)
