"""Notes in a step's graph what a loop accumulates, and checks that nothing of it is lost."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import is_trace, outermost_trace

_COUNTS = "ipu_accumulated_batches"
_ACCUMULATORS = "ipu_accumulators"
_HIDDEN = "ipu_hides_accumulators"


def note_accumulation(count: int) -> None:
    """Notes in the graph being traced that an optimizer updates weights once in `count` batches."""
    graph = tf.compat.v1.get_default_graph()
    if not tf.executing_eagerly() and is_trace(graph):
        graph.add_to_collection(_COUNTS, count)


def hide_accumulators() -> None:
    """Lets only the function that is being traced know its accumulators.

    Whoever calls that function has to call `begun_accumulators` before.
    """
    tf.compat.v1.get_default_graph().add_to_collection(_HIDDEN, True)


def are_accumulators_hidden() -> bool:
    graph = outermost_trace()
    return graph is not None and bool(graph.get_collection(_HIDDEN))


def note_accumulators(variables: Sequence[Any]) -> None:
    """Notes in the outermost function being traced which variables have to begin with zeros.

    They are in the session's graph around it, but scripts do not know them, so the initializers
    that scripts run do not reach them.
    """
    graph = outermost_trace()
    for variable in variables:
        graph.add_to_collection(_ACCUMULATORS, variable)


def begun_accumulators(graph: Any) -> list[tf.Tensor]:
    """Gives a traced function's accumulators their zeros, in a session that has not done so yet.

    The tensors that it returns exist once the accumulators have values.
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

    # Decided when the session runs, as one graph may serve several sessions.
    is_there = tf.raw_ops.VarIsInitializedOp(resource=variable.handle)
    return tf.cond(is_there, lambda: tf.constant(True), zeros)


def check_accumulations(graph: Any, num_steps: int) -> None:
    """Checks that a loop of `num_steps` steps ends with an update, as the rest would be lost."""
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
