"""Gradients that are no longer than users want."""

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
    """Gradients of which no group is longer than its largest norm.

    Args:
        optimizer: That has the groups.
        gradients: By names of weights, summed over all micro-batches and replicas, of the scaled
            loss.
        loss_scaling: What the loss was multiplied by, float32. The norm is that of gradients
            without it.
        factors: How many gradients were summed.
    """
    result = dict(gradients)
    divisor = loss_scaling * factors.divisor
    for group in optimizer.clip_norms:
        members = [name for name in group.weightIds if name in gradients]
        # Divided before they are squared, as squares of scaled gradients may be too large.
        squares = [
            tf.reduce_sum(tf.square(in_float32(gradients[name]) / divisor)) for name in members
        ]
        scale = group.maxNorm / tf.maximum(tf.sqrt(sum(squares)), group.maxNorm)
        for name in members:
            gradient = gradients[name]
            result[name] = tf.cast(in_float32(gradient) * scale, gradient.dtype)
    return result
