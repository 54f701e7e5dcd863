"""An optimizer's numbers on a device, which may change from run to run without compiling."""

import contextlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from ipu_keras.popart.optimizers.rules import Scalar


class Scalars:
    """Numbers by tensor name: constants in the graph, or variables for those that may change.

    Several of `scalars` may have one name; they have one value then.
    """

    def __init__(self, scalars: Iterable[Scalar]):
        self._scalars = {each.tensor: each for each in scalars}
        self._device = ""
        self._place: tuple[str, int] | None = None
        self._variables: dict[str, tf.Variable] = {}

    def __contains__(self, tensor: str) -> bool:
        return tensor in self._scalars

    @property
    def names(self) -> list[str]:
        return list(self._scalars)

    def place(self, device: str, attachment: int) -> None:
        """Names the TensorFlow device of the variables, before anything is traced.

        Args:
            attachment: How often the device was attached. What it held is gone after each time.
        """
        if (device, attachment) != self._place:
            self._place, self._device = (device, attachment), device
            self._variables.clear()

    def value(self, tensor: str) -> tf.Tensor:
        """Returns a number in the graph that is being traced, as a float32 scalar."""
        scalar = self._scalars[tensor]
        if scalar.is_const:
            return tf.constant(scalar.value, tf.float32)
        if tensor not in self._variables:
            # Variables are made outside the graph that is traced, and are not lifted:
            # `tf.function` would trace anew a step that made variables.
            with tf.init_scope(), tf.device(self._device):
                self._variables[tensor] = tf.Variable(
                    np.float32(scalar.value),
                    trainable=False,
                    experimental_enable_variable_lifting=False,
                )
        return self._variables[tensor].read_value()

    def update(self, scalars: Iterable[Scalar]) -> None:
        """Changes numbers from the next run on; constants among them are the same as before."""
        for each in scalars:
            self._scalars[each.tensor] = each
            if each.tensor in self._variables:
                # A device that was detached gets them when it is attached and prepared again.
                with contextlib.suppress(tf.errors.FailedPreconditionError):
                    self._variables[each.tensor].assign(np.float32(each.value))
