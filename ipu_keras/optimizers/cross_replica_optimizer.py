"""An optimizer for replicas, which averages their gradients."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ipu_keras.ops.cross_replica_ops import cross_replica_mean
from ipu_keras.optimizers.ipu_optimizer import IpuOptimizer


class CrossReplicaOptimizer(IpuOptimizer):
    """Averages gradients over the replicas of a program before the wrapped optimizer gets them.

    Args:
        opt: The optimizer to wrap.
        name: Prefix of the operations. Defaults to `"CrossReplicaOptimizer"`.

    Raises:
        ValueError: `opt` is not a `tf.compat.v1.train.Optimizer`.

    Example:

    >>> weight = tf.Variable(3.0)
    >>> optimizer = CrossReplicaOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5))
    >>> _ = optimizer.apply_gradients([(tf.constant(2.0), weight)])  # without replicas
    >>> float(weight)
    2.0
    """

    def __init__(self, opt: tf.compat.v1.train.Optimizer, name: str = "CrossReplicaOptimizer"):
        super().__init__(opt, name)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple],
        global_step: Any = None,
        name: str | None = None,
    ) -> Any:
        """Averages gradients over replicas and updates variables.

        Args:
            grads_and_vars: Pairs of a gradient and its variable. Gradients of lookups are
                made dense.
            global_step: A variable to add 1 to after the update; `None` for none.
            name: Name of the returned operation.

        Returns:
            The operation that does it; `None` in eager mode, where it is done.

        Raises:
            ValueError: There is no gradient for any variable.
            TypeError: A gradient has a type that IPUs lack, such as float64.
        """
        with tf.name_scope(self._name):
            averaged = averages(grads_and_vars)
        return super().apply_gradients(averaged, global_step, name)


def averages(grads_and_vars: Iterable[tuple]) -> list[tuple]:
    """Returns pairs of a gradient, or None, and its variable, with gradients averaged over
    replicas."""
    return [
        (None if gradient is None else cross_replica_mean(tf.convert_to_tensor(gradient)), variable)
        for gradient, variable in grads_and_vars
    ]


def without_exchange(optimizer: Any) -> tuple[Any, bool]:
    """Returns what applies gradients after replicas have averaged them, and whether they should.

    `optimizer` is the outermost wrapper, or a plain optimizer.
    """
    averaged = False
    while isinstance(optimizer, IpuOptimizer):
        apply_gradients = type(optimizer).apply_gradients
        if apply_gradients is CrossReplicaOptimizer.apply_gradients:
            averaged = True
        elif apply_gradients is not IpuOptimizer.apply_gradients:
            # A wrapper of the user's may do anything with gradients, so it stays.
            break
        optimizer = optimizer.wrapped
    return optimizer, averaged
