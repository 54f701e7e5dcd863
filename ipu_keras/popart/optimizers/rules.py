"""Chooses the rule by which an optimizer updates weights, for sessions that train."""

from ipu_keras.popart.optimizers.adam import Adam
from ipu_keras.popart.optimizers.adam_rule import AdamRule
from ipu_keras.popart.optimizers.adaptive import Adaptive
from ipu_keras.popart.optimizers.adaptive_rule import AdaptiveRule
from ipu_keras.popart.optimizers.clip_norms import clipped as clipped
from ipu_keras.popart.optimizers.optimizer import Optimizer
from ipu_keras.popart.optimizers.rule import Factors as Factors
from ipu_keras.popart.optimizers.rule import Rule as Rule
from ipu_keras.popart.optimizers.rule import Scalar as Scalar
from ipu_keras.popart.optimizers.rule import Slot as Slot
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
