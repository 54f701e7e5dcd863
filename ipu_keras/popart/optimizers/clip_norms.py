"""Clips gradients to the largest norms that users choose."""

from collections.abc import Mapping

import tensorflow as tf

from ipu_keras.popart.optimizers.optimizer import Optimizer
from ipu_keras.popart.optimizers.rule import Factors, in_float32


def clipped(
    optimizer: Optimizer,
    gradients: Mapping[str, tf.Tensor],
    loss_scaling: tf.Tensor,
    factors: Factors,
) -> dict[str, tf.Tensor]:
    """Scales the gradients of each group of an optimizer to at most the group's largest norm.

    `gradients` are of the scaled loss, summed over all micro-batches and replicas; norms are those
    without the float32 loss scaling.
    """
    result = dict(gradients)
    divisor = loss_scaling * factors.divisor
    for group in optimizer.clip_norms:
        members = [name for name in group.weightIds if name in gradients]
        # Squares of gradients with the loss scaling might overflow, so it is divided out before.
        squares = [
            tf.reduce_sum(tf.square(in_float32(gradients[name]) / divisor)) for name in members
        ]
        scale = group.maxNorm / tf.maximum(tf.sqrt(sum(squares)), group.maxNorm)
        for name in members:
            gradient = gradients[name]
            result[name] = tf.cast(in_float32(gradient) * scale, gradient.dtype)
    return result
