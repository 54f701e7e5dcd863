"""Prefixes of the names of tensors that sessions make, and that can be anchors.

Behind a prefix is the name of a weight or tensor; behind those of an optimizer's scalars the
name of a weight, or for the default of all weights the type, such as
`scaledLearningRate0___default___FLOAT`.
"""

from collections.abc import Callable


def _prefix(name: str, prefix: str, what: str) -> Callable[[], str]:
    """Returns a function that returns a prefix."""

    def function() -> str:
        return prefix

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The prefix of {what}: `{prefix!r}`."
    return function


reservedGradientPrefix = _prefix("reservedGradientPrefix", "Gradient___", "gradients")
reservedUpdatedVarPrefix = _prefix(
    "reservedUpdatedVarPrefix", "UpdatedVar___", "weights after an update"
)
reservedAccumPrefix = _prefix("reservedAccumPrefix", "Accum___", "accumulated gradients")
reservedAcclPrefix = _prefix("reservedAcclPrefix", "Accl___", "momentum")
reservedAccl1Prefix = _prefix("reservedAccl1Prefix", "Accl1___", "first moments")
reservedAccl2Prefix = _prefix("reservedAccl2Prefix", "Accl2___", "second moments")
reservedAccl3Prefix = _prefix("reservedAccl3Prefix", "Accl3___", "third moments")
reservedStepPrefix = _prefix("reservedStepPrefix", "Step___", "numbers of steps")
reservedAcclToReducePrefix = _prefix(
    "reservedAcclToReducePrefix", "AcclToReduce___", "momentum before it is reduced"
)
reservedAcclToUpdatePrefix = _prefix(
    "reservedAcclToUpdatePrefix", "AcclToUpdate___", "momentum before it is updated"
)
reservedAcclFinalOutPrefix = _prefix(
    "reservedAcclFinalOutPrefix", "AcclFinalOut___", "momentum after the last update"
)
reservedAdamUpdaterPrefix = _prefix("reservedAdamUpdaterPrefix", "AdamUpdater___", "Adam's updates")
reservedLambR1SqPrefix = _prefix(
    "reservedLambR1SqPrefix", "LambR1Sq___", "squares of weights' norms"
)
reservedLambR2SqPrefix = _prefix(
    "reservedLambR2SqPrefix", "LambR2Sq___", "squares of updates' norms"
)
reservedStashedPrefix = _prefix(
    "reservedStashedPrefix", "Stashed___", "activations that a pipeline keeps"
)
reservedRestoredPrefix = _prefix(
    "reservedRestoredPrefix", "Restored___", "activations that a pipeline takes back"
)
reservedLossScalingPrefix = _prefix(
    "reservedLossScalingPrefix", "lossScaling_", "scales of the loss"
)
reservedRandomSeedPrefix = _prefix(
    "reservedRandomSeedPrefix", "randomSeed___", "the seed of random numbers"
)
reservedSeedModifierPrefix = _prefix(
    "reservedSeedModifierPrefix", "seedModifier___", "what sets seeds of operations apart"
)
reservedRemoteArgPrefix = _prefix(
    "reservedRemoteArgPrefix", "remoteArg___", "places in streaming memory"
)
reservedDefaultWeightDecayScaleFactor0Prefix = _prefix(
    "reservedDefaultWeightDecayScaleFactor0Prefix",
    "weightDecayScaleFactor0___default___",
    "the default weight decay scale factor without momentum",
)
reservedSpecificWeightDecayScaleFactor0Prefix = _prefix(
    "reservedSpecificWeightDecayScaleFactor0Prefix",
    "weightDecayScaleFactor0___specific___",
    "a weight's weight decay scale factor without momentum",
)
reservedDefaultScaledLearningRate0Prefix = _prefix(
    "reservedDefaultScaledLearningRate0Prefix",
    "scaledLearningRate0___default___",
    "the default scaled learning rate without momentum",
)
reservedSpecificScaledLearningRate0Prefix = _prefix(
    "reservedSpecificScaledLearningRate0Prefix",
    "scaledLearningRate0___specific___",
    "a weight's scaled learning rate without momentum",
)
reservedDefaultScaledWeightDecay1Prefix = _prefix(
    "reservedDefaultScaledWeightDecay1Prefix",
    "scaledWeightDecay1___default___",
    "the default scaled weight decay with momentum",
)
reservedSpecificScaledWeightDecay1Prefix = _prefix(
    "reservedSpecificScaledWeightDecay1Prefix",
    "scaledWeightDecay1___specific___",
    "a weight's scaled weight decay with momentum",
)
reservedDefaultScaledLearningRate1Prefix = _prefix(
    "reservedDefaultScaledLearningRate1Prefix",
    "scaledLearningRate1___default___",
    "the default scaled learning rate with momentum",
)
reservedSpecificScaledLearningRate1Prefix = _prefix(
    "reservedSpecificScaledLearningRate1Prefix",
    "scaledLearningRate1___specific___",
    "a weight's scaled learning rate with momentum",
)
reservedDefaultDampeningScaleFactor1Prefix = _prefix(
    "reservedDefaultDampeningScaleFactor1Prefix",
    "dampeningScaleFactor1___default___",
    "the default dampening scale factor with momentum",
)
reservedSpecificDampeningScaleFactor1Prefix = _prefix(
    "reservedSpecificDampeningScaleFactor1Prefix",
    "dampeningScaleFactor1___specific___",
    "a weight's dampening scale factor with momentum",
)
reservedDefaultScaledMomentum1Prefix = _prefix(
    "reservedDefaultScaledMomentum1Prefix",
    "scaledMomentum1___default___",
    "the default scaled momentum with momentum",
)
reservedSpecificScaledMomentum1Prefix = _prefix(
    "reservedSpecificScaledMomentum1Prefix",
    "scaledMomentum1___specific___",
    "a weight's scaled momentum with momentum",
)
reservedDefaultLearningRatePrefix = _prefix(
    "reservedDefaultLearningRatePrefix", "learningRate___default___", "the default learning rate"
)
reservedSpecificLearningRatePrefix = _prefix(
    "reservedSpecificLearningRatePrefix", "learningRate___specific___", "a weight's learning rate"
)
reservedDefaultWeightDecayPrefix = _prefix(
    "reservedDefaultWeightDecayPrefix", "weightDecay___default___", "the default weight decay"
)
reservedSpecificWeightDecayPrefix = _prefix(
    "reservedSpecificWeightDecayPrefix", "weightDecay___specific___", "a weight's weight decay"
)
reservedDefaultLossScalingPrefix = _prefix(
    "reservedDefaultLossScalingPrefix", "lossScaling___default___", "the default loss scaling"
)
reservedSpecificLossScalingPrefix = _prefix(
    "reservedSpecificLossScalingPrefix", "lossScaling___specific___", "a weight's loss scaling"
)
reservedDefaultMaxWeightNormPrefix = _prefix(
    "reservedDefaultMaxWeightNormPrefix",
    "maxWeightNorm___default___",
    "the default max weight norm",
)
reservedSpecificMaxWeightNormPrefix = _prefix(
    "reservedSpecificMaxWeightNormPrefix",
    "maxWeightNorm___specific___",
    "a weight's max weight norm",
)
reservedDefaultAdamBeta1Prefix = _prefix(
    "reservedDefaultAdamBeta1Prefix", "adamBeta1___default___", "the default beta1"
)
reservedSpecificAdamBeta1Prefix = _prefix(
    "reservedSpecificAdamBeta1Prefix", "adamBeta1___specific___", "a weight's beta1"
)
reservedDefaultAdamBeta2Prefix = _prefix(
    "reservedDefaultAdamBeta2Prefix", "adamBeta2___default___", "the default beta2"
)
reservedSpecificAdamBeta2Prefix = _prefix(
    "reservedSpecificAdamBeta2Prefix", "adamBeta2___specific___", "a weight's beta2"
)
reservedDefaultAdamEpsPrefix = _prefix(
    "reservedDefaultAdamEpsPrefix", "adamEps___default___", "the default adam eps"
)
reservedSpecificAdamEpsPrefix = _prefix(
    "reservedSpecificAdamEpsPrefix", "adamEps___specific___", "a weight's adam eps"
)
reservedDefaultStepPrefix = _prefix(
    "reservedDefaultStepPrefix", "step___default___", "the default step"
)
reservedSpecificStepPrefix = _prefix(
    "reservedSpecificStepPrefix", "step___specific___", "a weight's step"
)
hostReduceGradCopyPrefix = _prefix(
    "hostReduceGradCopyPrefix", "hostReduceGradCopy_", "gradients on their way to the host"
)
hostReduceVarCopyPrefix = _prefix(
    "hostReduceVarCopyPrefix", "hostReduceVarCopy_", "weights on their way from the host"
)
