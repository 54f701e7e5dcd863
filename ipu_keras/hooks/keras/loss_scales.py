"""Whether an optimizer that scales losses updates weights."""

from collections.abc import Callable
from typing import Any

import keras

from ipu_keras.hooks.installation import install


def surround_check_of_gradients(of_all: Callable[[Any], Any]) -> None:
    """Has a function say whether all are finite, of whether the gradients of this process are.

    Args:
        of_all: Takes a boolean scalar, and returns one.
    """

    def checking(original: Callable) -> Callable:
        def check_finite(self, grads):
            return of_all(original(self, grads))

        return check_finite

    install(keras.optimizers.LossScaleOptimizer, "check_finite", checking)
