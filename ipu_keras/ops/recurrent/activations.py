"""The activations that a recurrent layer of Popnn can have."""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes


@dataclass(frozen=True)
class Activation:
    """A function of numbers, or of the vector of a gate's numbers, which lies along the last
    axis.

    `slope` is the derivative as a function of the function's result; None if there is no such
    thing, as the function is not elementwise.
    """

    name: str
    function: Callable[[tf.Tensor], tf.Tensor]
    slope: Callable[[tf.Tensor], tf.Tensor] | None

    @property
    def derivative(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """The `slope` of an activation that has one."""
        assert self.slope is not None
        return self.slope

    def of_gates(self, logits: tf.Tensor, num_gates: int) -> tf.Tensor:
        """Returns the activated gates, `(batch, gates * units)`, of logits of that shape."""
        if self.slope is not None:
            return self.function(logits)
        units = static_sizes(logits)[-1] // num_gates
        gates = self.function(tf.reshape(logits, [-1, num_gates, units]))
        return tf.reshape(gates, [-1, num_gates * units])


def _hard_sigmoid(x: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(x * 0.2 + 0.5, 0.0, 1.0)


def _hard_sigmoid_derivative(y: tf.Tensor) -> tf.Tensor:
    return tf.where((y > 0) & (y < 1), tf.cast(0.2, y.dtype), tf.zeros([], y.dtype))


ACTIVATIONS = {
    activation.name: activation
    for activation in (
        Activation("tanh", tf.tanh, lambda y: 1.0 - y * y),
        Activation("relu", tf.nn.relu, lambda y: tf.cast(y > 0, y.dtype)),
        Activation("softmax", tf.nn.softmax, None),
        Activation("sigmoid", tf.sigmoid, lambda y: y * (1.0 - y)),
        Activation("hard_sigmoid", _hard_sigmoid, _hard_sigmoid_derivative),
        Activation("linear", tf.identity, tf.ones_like),
    )
}
