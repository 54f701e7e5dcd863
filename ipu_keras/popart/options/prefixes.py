"""Prefixes of the names of tensors that sessions make, and that can be anchors.

Behind a prefix is the name of a weight or tensor; behind those of an optimizer's scalars the
name of a weight, or for the default of all weights the type, such as
`scaledLearningRate0___default___FLOAT`.
"""

from collections.abc import Callable


def _prefix(prefix: str, what: str) -> Callable[[], str]:
    """Returns a function that returns a prefix."""

    def function() -> str:
        return prefix

    function.__doc__ = f"The prefix of {what}: `{prefix!r}`."
    return function


def _prefixes(scalar: str, what: str) -> tuple[Callable[[], str], Callable[[], str]]:
    """Returns those of an optimizer's scalar: of the default, and of a single weight's."""
    default = _prefix(f"{scalar}___default___", f"the default {what}")
    return default, _prefix(f"{scalar}___specific___", f"a weight's {what}")


reservedGradientPrefix = _prefix("Gradient___", "gradients")
reservedUpdatedVarPrefix = _prefix("UpdatedVar___", "weights after an update")
reservedAccumPrefix = _prefix("Accum___", "accumulated gradients")
reservedAcclPrefix = _prefix("Accl___", "momentum")
reservedAccl1Prefix = _prefix("Accl1___", "first moments")
reservedAccl2Prefix = _prefix("Accl2___", "second moments")
reservedAccl3Prefix = _prefix("Accl3___", "third moments")
reservedStepPrefix = _prefix("Step___", "numbers of steps")
reservedAcclToReducePrefix = _prefix("AcclToReduce___", "momentum before it is reduced")
reservedAcclToUpdatePrefix = _prefix("AcclToUpdate___", "momentum before it is updated")
reservedAcclFinalOutPrefix = _prefix("AcclFinalOut___", "momentum after the last update")
reservedAdamUpdaterPrefix = _prefix("AdamUpdater___", "Adam's updates")
reservedLambR1SqPrefix = _prefix("LambR1Sq___", "squares of weights' norms")
reservedLambR2SqPrefix = _prefix("LambR2Sq___", "squares of updates' norms")
reservedStashedPrefix = _prefix("Stashed___", "activations that a pipeline keeps")
reservedRestoredPrefix = _prefix("Restored___", "activations that a pipeline takes back")
reservedLossScalingPrefix = _prefix("lossScaling_", "scales of the loss")
reservedRandomSeedPrefix = _prefix("randomSeed___", "the seed of random numbers")
reservedSeedModifierPrefix = _prefix("seedModifier___", "what sets seeds of operations apart")
reservedRemoteArgPrefix = _prefix("remoteArg___", "places in streaming memory")
hostReduceGradCopyPrefix = _prefix("hostReduceGradCopy_", "gradients on their way to the host")
hostReduceVarCopyPrefix = _prefix("hostReduceVarCopy_", "weights on their way from the host")
reservedDefaultWeightDecayScaleFactor0Prefix, reservedSpecificWeightDecayScaleFactor0Prefix = (
    _prefixes("weightDecayScaleFactor0", "weight decay scale factor without momentum")
)
reservedDefaultScaledLearningRate0Prefix, reservedSpecificScaledLearningRate0Prefix = _prefixes(
    "scaledLearningRate0", "scaled learning rate without momentum"
)
reservedDefaultScaledWeightDecay1Prefix, reservedSpecificScaledWeightDecay1Prefix = _prefixes(
    "scaledWeightDecay1", "scaled weight decay with momentum"
)
reservedDefaultScaledLearningRate1Prefix, reservedSpecificScaledLearningRate1Prefix = _prefixes(
    "scaledLearningRate1", "scaled learning rate with momentum"
)
reservedDefaultDampeningScaleFactor1Prefix, reservedSpecificDampeningScaleFactor1Prefix = _prefixes(
    "dampeningScaleFactor1", "dampening scale factor with momentum"
)
reservedDefaultScaledMomentum1Prefix, reservedSpecificScaledMomentum1Prefix = _prefixes(
    "scaledMomentum1", "scaled momentum with momentum"
)
reservedDefaultLearningRatePrefix, reservedSpecificLearningRatePrefix = _prefixes(
    "learningRate", "learning rate"
)
reservedDefaultWeightDecayPrefix, reservedSpecificWeightDecayPrefix = _prefixes(
    "weightDecay", "weight decay"
)
reservedDefaultLossScalingPrefix, reservedSpecificLossScalingPrefix = _prefixes(
    "lossScaling", "loss scaling"
)
reservedDefaultMaxWeightNormPrefix, reservedSpecificMaxWeightNormPrefix = _prefixes(
    "maxWeightNorm", "max weight norm"
)
reservedDefaultAdamBeta1Prefix, reservedSpecificAdamBeta1Prefix = _prefixes("adamBeta1", "beta1")
reservedDefaultAdamBeta2Prefix, reservedSpecificAdamBeta2Prefix = _prefixes("adamBeta2", "beta2")
reservedDefaultAdamEpsPrefix, reservedSpecificAdamEpsPrefix = _prefixes("adamEps", "adam eps")
reservedDefaultStepPrefix, reservedSpecificStepPrefix = _prefixes("step", "step")

__all__ = [name for name in globals() if name.endswith("Prefix")]
for _name in __all__:
    globals()[_name].__name__ = globals()[_name].__qualname__ = _name
