"""Changes what Keras's batch normalization computes in training."""

from collections.abc import Callable
from typing import Any

import keras

from ipu_keras.hooks.installation import install


def extend_batch_norm(
    in_training: Callable[[Any, Any], Any], moments: Callable[[Any, Any, Any, Any], tuple[Any, Any]]
) -> None:
    """Lets other functions compute what the layer does in training.

    Args:
        in_training: Takes the layer and its inputs; returns the outputs, or `None` to leave
            them to Keras.
        moments: Takes the layer, the mean and variance of a batch, and its mask or `None`;
            returns the mean and variance to normalize with.
    """

    def with_outputs(original: Callable) -> Callable:
        def call(self, inputs, training=None, mask=None):
            outputs = in_training(self, inputs) if training and mask is None else None
            if outputs is not None:
                return outputs
            return original(self, inputs, training=training, mask=mask)

        return call

    def with_moments(original: Callable) -> Callable:
        def _moments(self, inputs, mask):
            mean, variance = original(self, inputs, mask)
            return moments(self, mean, variance, mask)

        return _moments

    install(keras.layers.BatchNormalization, "call", with_outputs)
    install(keras.layers.BatchNormalization, "_moments", with_moments)
