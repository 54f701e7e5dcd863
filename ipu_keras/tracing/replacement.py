"""Operations that get other results while a graph is built."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_callbacks

from ipu_keras.tracing.extraction import extract
from ipu_keras.tracing.splitting import before_return


@dataclass(frozen=True)
class Replaced:
    """A result of an operation that users do not get.

    Args:
        result: Of the operation.
        other: What they get.
    """

    result: tf.Tensor
    other: tf.Tensor


@contextlib.contextmanager
def replaced(
    kind: str, replacement: Callable[[Sequence[tf.Tensor], tf.Tensor], tf.Tensor | None]
) -> Iterator[list[Replaced]]:
    """While graphs are traced, gives the operations of a kind another result.

    Uses TensorFlow's op callbacks. The operation itself stays in the graph,
    without a use. Eager operations are left alone.

    Args:
        kind: TensorFlow's name of an operation type with one result.
        replacement: Takes the inputs and the result of an operation; returns
            what users of the result get, or `None` to leave it.

    Yields:
        What was replaced; it grows as graphs are traced.
    """
    found: list[Replaced] = []

    def callback(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        if op_type == kind and graph is not None:
            (output,) = outputs
            other = replacement(inputs, output)
            if other is not None:
                found.append(Replaced(output, other))
                return [other]
        return outputs  # `None` would undo what another callback has replaced

    op_callbacks.add_op_callback(callback)
    try:
        yield found
    finally:
        op_callbacks.remove_op_callback(callback)


def undone(concrete: Any, replaced: Sequence[Replaced]) -> Any:
    """A traced function as it was without replacements.

    Args:
        concrete: The traced function, a `tf.ConcreteFunction`.
        replaced: What was replaced in it while it was traced.

    Returns:
        A `tf.ConcreteFunction`; `None` if something was replaced in a function that it calls.
    """
    if not replaced:
        return concrete
    if any(one.result.graph is not concrete.graph for one in replaced):
        return None
    instead = {one.other.ref(): one.result for one in replaced}
    computed = tf.nest.map_structure(before_return, concrete.structured_outputs)
    results = tf.nest.map_structure(lambda tensor: instead.get(tensor.ref(), tensor), computed)
    writes = concrete.graph.control_outputs
    return extract(concrete, results, controls=writes, instead=instead).function
