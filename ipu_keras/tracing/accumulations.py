"""Gradients that the steps of a loop accumulate, noted in the graph of a step."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import is_trace, outermost_trace

_COUNTS = "ipu_accumulated_batches"
_ACCUMULATORS = "ipu_accumulators"
_HIDDEN = "ipu_hides_accumulators"


def note_accumulation(count: int) -> None:
    """Notes in the graph that is being traced that an optimizer updates weights now and then.

    Args:
        count: After how many batches.
    """
    graph = tf.compat.v1.get_default_graph()
    if not tf.executing_eagerly() and is_trace(graph):
        graph.add_to_collection(_COUNTS, count)


def hide_accumulators() -> None:
    """Has what accumulates be known to nobody but the function that is being traced.

    Whoever calls that has to call `begun_accumulators` before.
    """
    tf.compat.v1.get_default_graph().add_to_collection(_HIDDEN, True)


def are_accumulators_hidden() -> bool:
    """Whether the outermost function that is being traced has called `hide_accumulators`."""
    graph = outermost_trace()
    return graph is not None and bool(graph.get_collection(_HIDDEN))


def note_accumulators(variables: Sequence[Any]) -> None:
    """Notes in the outermost function that is being traced which variables begin with zeros.

    Args:
        variables: Of the session's graph around it, of which its scripts know nothing.
    """
    graph = outermost_trace()
    for variable in variables:
        graph.add_to_collection(_ACCUMULATORS, variable)


def begun_accumulators(graph: Any) -> list[tf.Tensor]:
    """Gives accumulators their zeros, in a session that has not done so yet.

    Args:
        graph: Of the function that was traced; the session's is the current one.

    Returns:
        What is there when they have values.
    """
    variables = {id(one): one for one in graph.get_collection(_ACCUMULATORS)}
    return [_begun(variable) for variable in variables.values()]


def _begun(variable: Any) -> tf.Tensor:
    def zeros() -> tf.Tensor:
        done = tf.raw_ops.AssignVariableOp(
            resource=variable.handle, value=tf.zeros(variable.shape, variable.dtype)
        )
        with tf.control_dependencies([done]):
            return tf.constant(True)

    is_there = tf.raw_ops.VarIsInitializedOp(resource=variable.handle)
    return tf.cond(is_there, lambda: tf.constant(True), zeros)


def check_accumulations(graph: Any, num_steps: int) -> None:
    """Checks that a loop ends with an update, as what is left over would be lost.

    Args:
        graph: Of a step.
        num_steps: How many the loop has.

    Raises:
        tf.errors.FailedPreconditionError: It does not.
    """
    for count in graph.get_collection(_COUNTS):
        if num_steps % count:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Detected a gradient accumulation operation in a loop whose number of iterations "
                f"is no multiple of its number of mini-batches, {count}: the last gradients would "
                f"never be applied. Run {num_steps - num_steps % count or count} iterations, or "
                f"accumulate over other `num_mini_batches`. Received: {num_steps} iterations",
            )
