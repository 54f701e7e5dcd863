"""Has processes that train together skip the same updates, whose gradients are not finite."""

import tensorflow as tf

from ipu_keras.hooks.keras.loss_scales import surround_check_of_gradients
from ipu_keras.ipu_strategy import IPUStrategy


def attach_joint_loss_scales() -> None:
    """Has Keras's `LossScaleOptimizer` ask all processes before it updates or skips."""
    surround_check_of_gradients(_of_all)


def _of_all(finite: tf.Tensor) -> tf.Tensor:
    strategy, context = tf.distribute.get_strategy(), tf.distribute.get_replica_context()
    is_joint = isinstance(strategy, IPUStrategy) and strategy.num_replicas_in_sync > 1
    if not is_joint or context is None:
        return finite
    # Gradients are added up within the update: whoever skipped it alone would be waited for.
    others = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.cast(~finite, tf.float32))
    return tf.equal(others, 0.0)
