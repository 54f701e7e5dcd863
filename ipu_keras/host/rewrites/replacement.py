"""Gives operations other results while a graph is traced, and undoes that."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from ipu_keras.host.splitting import before_return
from ipu_keras.internals.fallbacks import fallbacks
from ipu_keras.internals.tensorflow.functions import is_trace
from ipu_keras.internals.tensorflow.operations import add_callback, remove_callback
from ipu_keras.tracing.as_written import AsWritten, Replaced, as_written
from ipu_keras.tracing.extraction import extract


@contextlib.contextmanager
def replaced(
    kinds: Collection[str],
    replacement: Callable[[Sequence[tf.Tensor], tf.Tensor], tf.Tensor | None],
) -> Iterator[list[Replaced]]:
    """While this is open, operations of some kinds in graphs that are traced get another result.

    Uses TensorFlow's op callbacks. The operation itself stays in the graph, without a use, so
    that `undone` can put it back. Eager operations are left alone, and so are those of a session's
    graph, such as initial values of variables that a traced function makes. What is yielded grows
    as graphs are traced.

    Args:
        replacement: Takes the inputs and the first result of an operation; returns what users
            of the result get, or `None` to leave it.
    """
    found: list[Replaced] = []

    def callback(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        is_replaced = op_type in kinds and is_trace(graph)
        if outputs is None:
            # A callback before this one left them alone, such as that of
            # `tf.debugging.enable_check_numerics`, and TensorFlow hands on what it returned.
            if not is_replaced:
                return None
            outputs = graph.get_operation_by_name(op_name).outputs
        if is_replaced:
            output, *others = outputs
            other = fallbacks().attempt(f"replacing {op_type}", replacement, inputs, output)
            if other is not None:
                found.append(Replaced(output, other))
                return [other, *others]
        # `None` would undo what another callback has replaced. A list is returned, as
        # operations return one, and Keras reverses it where a recurrent layer goes backwards.
        return list(outputs)

    add_callback(callback)
    try:
        yield found
    finally:
        remove_callback(callback)


def undone(concrete: Any, replaced: Sequence[Replaced]) -> Any:
    """Returns a traced function without replacements; `None` if a function in it has some."""
    written = as_written(concrete, replaced)
    if not isinstance(written, AsWritten):
        return written
    # TensorFlow takes a call of a function of XLA's for a write, and would run it although
    # nothing uses it.
    return rebuilt(concrete, written.instead, {one.other.op for one in replaced})


def rebuilt(
    concrete: Any,
    instead: Mapping[Any, tf.Tensor] = MappingProxyType({}),
    unused: Collection[tf.Operation] = (),
) -> Any:
    """Makes a traced function anew from what its results and writes need; operations keep names.

    Operations take others `instead` of some tensors, by `ref()`. What is `unused` runs only if
    needed.
    """
    computed = tf.nest.map_structure(before_return, concrete.structured_outputs)
    results = tf.nest.map_structure(lambda tensor: instead.get(tensor.ref(), tensor), computed)
    writes = [op for op in concrete.graph.control_outputs if op not in unused]
    # It takes the place of the whole function, so it has all of its inputs, even those that
    # nothing uses.
    whole = extract(concrete, results, controls=writes, instead=instead, keeps_inputs=True)
    return whole.function
