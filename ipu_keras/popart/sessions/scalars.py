"""The numbers of an optimizer on a device, which may change from run to run."""

import contextlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from ipu_keras.popart.optimizers.rules import Scalar


class Scalars:
    """Numbers by name of tensor: constants, and variables for those that are not constant.

    Args:
        scalars: All of them; one name may be there several times, with one value.
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
        """Of all tensors."""
        return list(self._scalars)

    def place(self, device: str, attachment: int) -> None:
        """Says which TensorFlow device has them, before anything is traced.

        Args:
            device: Its name.
            attachment: How often it was attached, after which what it held is gone.
        """
        if (device, attachment) != self._place:
            self._place, self._device = (device, attachment), device
            self._variables.clear()

    def value(self, tensor: str) -> tf.Tensor:
        """A number for the graph that is being traced: a scalar of float32.

        Args:
            tensor: Its name.
        """
        scalar = self._scalars[tensor]
        if scalar.is_const:
            return tf.constant(scalar.value, tf.float32)
        if tensor not in self._variables:
            with tf.init_scope(), tf.device(self._device):
                self._variables[tensor] = tf.Variable(
                    np.float32(scalar.value),
                    trainable=False,
                    experimental_enable_variable_lifting=False,
                )
        return self._variables[tensor].read_value()

    def update(self, scalars: Iterable[Scalar]) -> None:
        """Changes numbers, from the next run on.

        Args:
            scalars: New ones; of constants, the same.
        """
        for each in scalars:
            self._scalars[each.tensor] = each
            if each.tensor in self._variables:
                # A device that was detached gets them when it is attached and prepared again.
                with contextlib.suppress(tf.errors.FailedPreconditionError):
                    self._variables[each.tensor].assign(np.float32(each.value))
