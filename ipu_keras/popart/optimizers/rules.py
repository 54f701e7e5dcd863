"""What sessions that train need of an optimizer: the rule of its updates, and clipped gradients."""

from collections.abc import Mapping

import tensorflow as tf

from ipu_keras.popart.optimizers.adam import Adam
from ipu_keras.popart.optimizers.adam_rule import AdamRule
from ipu_keras.popart.optimizers.adaptive import Adaptive
from ipu_keras.popart.optimizers.adaptive_rule import AdaptiveRule
from ipu_keras.popart.optimizers.optimizer import Optimizer
from ipu_keras.popart.optimizers.rule import Factors as Factors
from ipu_keras.popart.optimizers.rule import Rule as Rule
from ipu_keras.popart.optimizers.rule import Scalar as Scalar
from ipu_keras.popart.optimizers.rule import Slot as Slot
from ipu_keras.popart.optimizers.rule import in_float32 as in_float32
from ipu_keras.popart.optimizers.sgd import SGD
from ipu_keras.popart.optimizers.sgd_rule import SGDRule
from ipu_keras.popart.options.prefixes import reservedLossScalingPrefix


def rule_of(optimizer: Optimizer, factors: Factors, accumulates: bool) -> Rule:
    """Returns the rule of an optimizer, which later changes of the optimizer do not change.

    `accumulates` says whether gradients of several micro-batches are summed in an accumulator.
    """
    if isinstance(optimizer, SGD):
        return SGDRule(optimizer.copy(), factors, accumulates)
    if isinstance(optimizer, Adam):
        return AdamRule(optimizer.copy(), factors, accumulates)
    if isinstance(optimizer, Adaptive):
        return AdaptiveRule(optimizer.copy(), factors, accumulates)
    raise TypeError(f"An optimizer is one of PopART's. Received: {optimizer!r}")


def loss_scaling(optimizer: Optimizer) -> Scalar:
    """Returns the number that the loss is multiplied by, as a scalar of the program."""
    value = optimizer.loss_scaling
    return Scalar(f"{reservedLossScalingPrefix()}FLOAT", value.val(), value.isConst())


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
