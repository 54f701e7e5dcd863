"""Has processes that train together clip, or skip, what one process with all replicas would."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from ipu_keras.hooks.keras.updates import surround_updates
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.processes.summed_gradients import are_summed, summed_gradients

_CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")


def attach_joint_updates() -> None:
    """Has gradients added up before Keras's optimizers clip them, or ask whether all are finite.

    Keras would add them up afterwards. A process that skipped an update alone would be waited for.
    """
    surround_updates(_summed)


@contextlib.contextmanager
def _summed(optimizer: Any, gradients: Sequence[Any]) -> Iterator[Sequence[Any]]:
    strategy, context = tf.distribute.get_strategy(), tf.distribute.get_replica_context()
    is_joint = isinstance(strategy, IPUStrategy) and strategy.num_replicas_in_sync > 1
    looks = isinstance(optimizer, keras.optimizers.LossScaleOptimizer) or any(
        getattr(optimizer, name, None) is not None for name in _CLIPPING
    )
    if not (is_joint and looks) or context is None or are_summed():
        yield gradients
        return
    gradients = list(gradients)
    known = [gradient for gradient in gradients if gradient is not None]
    totals = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, known))
    with summed_gradients():
        yield [None if gradient is None else next(totals) for gradient in gradients]
