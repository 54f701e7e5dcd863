"""An optimizer for models that are sharded over several IPUs."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ipu_keras.optimizers.ipu_optimizer import IpuOptimizer
from ipu_keras.sharding import propagate_sharding


class ShardedOptimizer(IpuOptimizer):
    """Puts the backward pass and the weight update on the shards of the forward pass.

    Outside of graphs, in eager mode, there is nothing to shard.

    Args:
        optimizer: The optimizer to wrap.

    Raises:
        ValueError: `optimizer` is not a `tf.compat.v1.train.Optimizer`.

    Example:

    >>> weight = tf.Variable(3.0)
    >>> optimizer = ShardedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5))
    >>> _ = optimizer.minimize(lambda: 2.0 * weight, var_list=[weight])
    >>> float(weight)
    2.0
    """

    def __init__(self, optimizer: tf.compat.v1.train.Optimizer):
        super().__init__(optimizer, name="ShardedOptimizer", argument="optimizer")

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> list[tuple]:
        """Computes gradients, each operation on the shard of the one whose gradient it is.

        Args:
            loss: The tensor to minimize; a callable that returns it, in eager mode.
            var_list: The variables to train; `None` for all trainable ones of the graph.
            **kwargs: Further arguments of the wrapped optimizer's method.
                `colocate_gradients_with_ops` is always `True`, which is what tells shards.

        Returns:
            Pairs of a gradient, or `None`, and its variable.
        """
        kwargs["colocate_gradients_with_ops"] = True
        found = super().compute_gradients(loss, var_list=var_list, **kwargs)
        _propagate()
        return found

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple],
        global_step: Any = None,
        name: str | None = None,
    ) -> Any:
        """Updates variables, each on its own shard.

        Args:
            grads_and_vars: Pairs of a gradient and its variable, as `compute_gradients` returns.
            global_step: A variable to add 1 to after the update; `None` for none.
            name: Name of the returned operation.

        Returns:
            The operation that does it; `None` in eager mode, where it is done.

        Raises:
            ValueError: There is no gradient for any variable.
        """
        applied = super().apply_gradients(grads_and_vars, global_step, name)
        _propagate()
        return applied


def _propagate() -> None:
    if not tf.executing_eagerly():
        propagate_sharding(tf.compat.v1.get_default_graph())
