"""Gradients of programs in graphs, which XLA's executions have none of.

XLA hands out nothing from within the loops that it has compiled, and gradients need that. So where
they are asked for, TensorFlow's executor runs the program instead.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import call_without_gradients, watch_variables
from ipu_keras.internals.tensorflow.operations import set_attribute, set_input

_GRADIENT = "IpuProgram"
_COLLECTION = "ipu_executions_by_xla"


def either(
    in_xla: tf.Tensor, by_executor: Callable[..., Any], by_xla: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns a function that runs an execution in one of two ways.

    Args:
        in_xla: Whether XLA's is right.
        by_executor: An execution by TensorFlow's executor.
        by_xla: The same execution, compiled by XLA when it first runs.
    """

    def run(*tensors: tf.Tensor) -> Any:
        structure: list[Any] = []

        def branch(execute: Callable[..., Any]) -> list[tf.Tensor]:
            found = execute(*tensors)
            structure[:] = [found]
            # A branch without results would be an operation, which has no structure.
            return [*tf.nest.flatten(found), tf.constant(0)]

        never = tf.constant(False)
        found = tf.cond(in_xla, lambda: branch(by_xla), lambda: branch(by_executor))
        if isinstance(by_xla, ExecutionByXla):
            by_xla.note_choice(never)
        return tf.nest.pack_sequence_as(structure[0], list(found)[:-1])

    return run


class ExecutionByXla:
    """An execution in one of two branches, which the other is taken for if there are gradients.

    Args:
        compiled: The program, a traced function that XLA compiles.
    """

    def __init__(self, compiled: Any):
        self._compiled = compiled
        self._choice: Any = None
        self._never: Any = None

    def __call__(self, *tensors: tf.Tensor) -> Any:
        """Puts it into the graph of its branch."""
        graph = tf.compat.v1.get_default_graph()
        graph.add_to_collection(_COLLECTION, self)
        watch_variables(graph, self._compiled.graph.variables)
        # One name for all of them, as TensorFlow keeps for ever what is registered.
        calls = dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), _GRADIENT)
        with graph.gradient_override_map(calls):
            return call_without_gradients(self._compiled, tensors)

    def note_choice(self, never: tf.Tensor) -> None:
        """Remembers the operation with the branches, which was made last; `never` is false."""
        operations = reversed(never.graph.get_operations())
        self._choice = next(op for op in operations if op.type in ("If", "StatelessIf"))
        self._never = never
        # TensorFlow would take the branches apart, and complain of the loop in the one that never
        # runs.
        set_attribute(self._choice, "_lower_using_switch_merge", tf.compat.v1.AttrValue(b=False))

    def leave_to_executor(self) -> None:
        """Has the other branch run from now on, whatever was to decide that."""
        set_input(self._choice, self._never)


@tf.RegisterGradient(_GRADIENT)
def _gradients(operation: tf.Operation, *_: tf.Tensor | None) -> list[tf.Tensor | None]:
    """Returns gradients that nobody takes, as the branch does not run any more."""
    (execution,) = operation.graph.get_collection(_COLLECTION)
    execution.leave_to_executor()
    return [tf.zeros_like(one) if one.dtype.is_floating else None for one in operation.inputs]
