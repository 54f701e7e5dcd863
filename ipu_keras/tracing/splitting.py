"""Parts a traced step into what all steps can compute at once and what they do in turn."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import wrap_function

# Part of both: cheaper to repeat than to keep for all steps.
_REPEATED = frozenset({"Const", "ReadVariableOp"})


@dataclass(frozen=True)
class Part:
    """A part of a step.

    Args:
        function: A `tf.ConcreteFunction` that computes it.
        inputs: Which of the step's inputs it takes, by position.
    """

    function: Any
    inputs: tuple[int, ...]


def split_step(concrete: Any, sequential_ops: Collection[str]) -> tuple[Part, Part]:
    """Parts a step into two functions that together do what it does.

    Args:
        concrete: The traced step, a `tf.ConcreteFunction`.
        sequential_ops: Names of operations for the second part: with each,
            all that depend on it.

    Returns:
        The part without those operations, which returns a list of tensors, and
        the part with them: it takes that list after its inputs, and returns
        what the step does.
    """
    graph = concrete.graph
    feeds = concrete.inputs[: len(concrete.inputs) - len(graph.internal_captures)]
    between = _between(concrete, sequential_ops)
    results = concrete.structured_outputs
    # The operations that only write have no result; they are run as control outputs.
    ends = [*tf.nest.flatten(results), *graph.control_outputs]
    whole = wrap_function.WrappedFunction(graph, wrap_function.VariableHolder())
    first_inputs = _needed_feeds(feeds, between, given=())
    first = whole.prune([feeds[i] for i in first_inputs], between)
    second_inputs = _needed_feeds(feeds, ends, given=between)
    second_feeds = [*(feeds[i] for i in second_inputs), *between]
    # TensorFlow leaves copies of the first part's operations in the second, which nothing runs.
    second = whole.prune(second_feeds, [results, *graph.control_outputs])
    return Part(first, first_inputs), Part(_first_result(second, second_feeds), second_inputs)


def _between(concrete, sequential_ops: Collection[str]) -> list[tf.Tensor]:
    """The values that the first part computes for the second, or for the step's results."""
    inputs = {tensor.ref() for tensor in concrete.inputs}
    operations = concrete.graph.get_operations()
    used = [t for op in operations if op.name in sequential_ops for t in op.inputs]
    used += tf.nest.flatten(concrete.structured_outputs)
    found = {
        tensor.ref(): tensor
        for tensor in used
        if tensor.ref() not in inputs
        and tensor.op.name not in sequential_ops
        and tensor.op.type not in _REPEATED
    }
    return list(found.values())


def _needed_feeds(feeds: Sequence, ends: Sequence, *, given: Sequence) -> tuple[int, ...]:
    """Positions of the feeds that tensors and operations need, apart from given tensors."""
    stops = {tensor.ref() for tensor in given}
    needed: set[Any] = set()
    pending = [end for end in ends if not (isinstance(end, tf.Tensor) and end.ref() in stops)]
    while pending:
        end = pending.pop()
        op = end.op if isinstance(end, tf.Tensor) else end
        if op not in needed:
            needed.add(op)
            pending.extend(op.control_inputs)
            pending.extend(tensor for tensor in op.inputs if tensor.ref() not in stops)
    return tuple(index for index, feed in enumerate(feeds) if feed.op in needed)


def _first_result(function, inputs: Sequence[tf.Tensor]):
    """A function that returns the first of a function's results only."""
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
    only_first = tf.function(lambda *tensors: function(*tensors)[0], autograph=False)
    return only_first.get_concrete_function(*specs)
