"""An optimizer that changes gradients with a function."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.optimizers.ipu_optimizer import IpuOptimizer


class MapGradientOptimizer(IpuOptimizer):
    """Changes gradients, when they are computed, with a function of the gradient and its variable.

    Args:
        wrapped_optimizer: The optimizer to wrap.
        gradient_mapping_function: Takes a gradient and its variable; returns the gradient to
            use. It is not called for variables without a gradient.
        name: Prefix of the operations. Defaults to `"MapGradientOptimizer"`.

    Raises:
        ValueError: `wrapped_optimizer` is not a `tf.compat.v1.train.Optimizer`.
        TypeError: `gradient_mapping_function` is not a function.

    Example:

    >>> weight = tf.Variable(3.0)
    >>> stock = tf.compat.v1.train.GradientDescentOptimizer(0.5)
    >>> optimizer = MapGradientOptimizer(stock, lambda gradient, variable: gradient + variable)
    >>> [(gradient, _)] = optimizer.compute_gradients(lambda: 2.0 * weight, [weight])
    >>> float(gradient)
    5.0
    """

    def __init__(
        self,
        wrapped_optimizer: tf.compat.v1.train.Optimizer,
        gradient_mapping_function: Callable[[Any, Any], Any],
        name: str = "MapGradientOptimizer",
    ):
        super().__init__(wrapped_optimizer, name, argument="wrapped_optimizer")
        if not callable(gradient_mapping_function):
            raise TypeError(
                "`gradient_mapping_function` must be a function of a gradient and its variable. "
                f"Received: gradient_mapping_function={gradient_mapping_function!r}"
            )
        self._gradient_mapping_function = gradient_mapping_function

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple]:
        """Computes gradients with the wrapped optimizer, and changes them.

        Args:
            *args: `loss` and `var_list`, as `IpuOptimizer` takes them.
            **kwargs: Further arguments of the wrapped optimizer's method.

        Returns:
            Pairs of a gradient, or `None`, and its variable.
        """
        found = self._opt.compute_gradients(*args, **kwargs)
        with tf.name_scope(self._name):
            return [
                (None if gradient is None else self._gradient_mapping_function(gradient, v), v)
                for gradient, v in found
            ]
