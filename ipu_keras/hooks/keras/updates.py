"""What Keras's optimizers make of gradients before they update weights with them."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras

from ipu_keras.hooks.installation import install


def surround_updates(
    within: Callable[[Any, Sequence[Any]], contextlib.AbstractContextManager[Sequence[Any]]],
) -> None:
    """Opens a context around each update of an optimizer of Keras's.

    Args:
        within: Takes the optimizer and its gradients; gives those that it gets instead.
    """

    def applying(original: Callable) -> Callable:
        def apply(self, grads, trainable_variables=None):
            with within(self, grads) as given:
                return original(self, given, trainable_variables)

        return apply

    for kind in (keras.Optimizer, keras.optimizers.LossScaleOptimizer):
        install(kind, "apply", applying)
