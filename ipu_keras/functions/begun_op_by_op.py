"""Programs in graphs of functions and sessions that begin op by op, as those of Keras models do.

The graph has both ways of an execution, a branch each. Which one runs is decided before each
execution: of a function by a variable that it captures, of a session by a value that is fed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.functions.program_gradients import either
from ipu_keras.host.first_steps import FirstSteps
from ipu_keras.host.host_program import HostCallable
from ipu_keras.internals.tensorflow.variables import plain_variable


class BegunOpByOp:
    """Has a program in a graph run op by op until XLA pays.

    Args:
        first_steps: Says when XLA pays.
        num_steps: How many steps of the program an execution has.
    """

    def __init__(self, first_steps: FirstSteps, num_steps: int):
        self._first_steps = first_steps
        self._num_steps = num_steps
        self._is_over = False
        self._variable: Any = None
        self._fed: Any = None
        # Outside of what is being traced: in the graph of the session, or eagerly. On the CPU, as
        # replicas begin with equal values after a write on their device.
        with tf.init_scope(), tf.device("/device:CPU:0"):
            if tf.executing_eagerly():
                self._variable = plain_variable(False, trainable=False, name="xla_begun")
            else:
                self._fed = tf.compat.v1.placeholder_with_default(False, (), "xla_begun")

    @classmethod
    def of(cls, host: HostCallable, num_steps: int) -> "BegunOpByOp | None":
        """Returns `None` if XLA compiles all executions of `num_steps` steps, or none of them."""
        first_steps = host.first_steps_in_a_graph
        if first_steps is None or first_steps.are_over(num_steps):
            return None
        return cls(first_steps, num_steps)

    def either(
        self, op_by_op: Callable[..., Any], in_xla: Callable[..., Any]
    ) -> Callable[..., Any]:
        """A function that runs an execution in the way that is right by then.

        Args:
            op_by_op: An execution by TensorFlow's executor.
            in_xla: The same execution, compiled by XLA when it first runs.
        """

        def run(*tensors: tf.Tensor) -> Any:
            begun = self._fed if self._variable is None else self._variable.read_value()
            return either(begun, op_by_op, in_xla)(*tensors)

        return run

    def begin(self) -> None:
        """Decides before an execution how it runs."""
        if self._is_over:
            return
        self._is_over = self._first_steps.are_over(self._num_steps)
        if self._is_over and self._variable is not None:
            self._variable.assign(True)

    def feeds(self) -> dict[Any, np.bool_]:
        """What a session is fed for the next execution, by reference of a tensor."""
        return {self._fed.ref(): np.True_} if self._is_over and self._fed is not None else {}

    def note_execution(self) -> None:
        """Counts an execution that has run."""
        if not self._is_over:
            self._first_steps.note(self._num_steps)
