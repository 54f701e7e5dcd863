"""`popart.SGD` and `popart.ConstSGD`: stochastic gradient descent, as users choose it."""

from collections.abc import Mapping, Sequence
from typing import Any

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.optimizers.optimizer import (
    LOSS_SCALING,
    HyperParameter,
    Optimizer,
    data_type,
    learning_rate,
    positive,
)
from ipu_keras.popart.optimizers.values import OptimizerValueMap
from ipu_keras.popart.options.enumerations import DataType, SGDAccumulatorAndMomentum
from ipu_keras.popart.options.kinds import one_of
from ipu_keras.popart.options.settings import ClipNormSettings


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if that is not a constant 0.

    For a weight `w` and its gradient `g`, which is without the loss scaling:

        v = momentum * v + (1 - dampening) * (g + weight decay * w)
        w = w - learning rate * v

    `v` is kept multiplied by the velocity scaling.

    Args:
        values: Tuples of a value and of whether it is constant, by key: `defaultLearningRate`
            (0.1), `defaultWeightDecay` (0), `defaultMomentum` (0), `defaultDampening` (0),
            `defaultVelocityScaling` (1) and `lossScaling` (1). Missing values are constant.
        clip_norm_settings: Groups of weights with the largest norm that the gradients of each
            group may have together.
        accumulatorAndMomentum: Whether gradients are accumulated in `v` (`Combined`), which then
            holds the momentum and weight decay of the next update in advance, or in a tensor of
            their own (`Separate`).
        accumType: The type of accumulated gradients; `UNDEFINED` is that of the weight.
        accl1Type: The type in which `v` is kept; `UNDEFINED` is that of the weight.

    Raises:
        TypeError: An argument is of a wrong type.
        popart_exception: There is no such key, or a value is out of range.

    Example:

    >>> sgd = SGD({"defaultLearningRate": (0.5, False), "defaultMomentum": (0.875, True)})
    >>> sgd.insertSpecific("bias", {"momentum": (0.0, True)})
    >>> sgd.momentums()
    OptimizerValueMap(OptimizerValue(0.875, True), {'bias': OptimizerValue(0.0, True)})
    """

    _NAME = "SGD"
    _HYPER_PARAMETERS = (
        HyperParameter("learningRate", 0.1, "learning rate", learning_rate),
        HyperParameter("weightDecay", 0.0, "weight decay"),
        HyperParameter("momentum", 0.0, "momentum"),
        HyperParameter("dampening", 0.0, "dampening"),
        HyperParameter("velocityScaling", 1.0, "velocity scaling", positive),
    )

    def __init__(
        self,
        values: Mapping[str, Any],
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        accumulatorAndMomentum: SGDAccumulatorAndMomentum = SGDAccumulatorAndMomentum.Combined,
        accumType: DataType = DataType.UNDEFINED,
        accl1Type: DataType = DataType.UNDEFINED,
    ):
        settings = {
            "accumulatorAndMomentum": one_of(SGDAccumulatorAndMomentum).taken(
                "accumulatorAndMomentum", accumulatorAndMomentum
            ),
            "accumType": data_type("accumType", accumType),
            "accl1Type": data_type("accl1Type", accl1Type),
        }
        chosen = {accumType, accl1Type} - {DataType.UNDEFINED}
        combined = accumulatorAndMomentum is SGDAccumulatorAndMomentum.Combined
        if combined and len(chosen) > 1:
            raise popart_exception(
                "SGDAccumulatorAndMomentum.Combined has one tensor for gradients and momentum, of "
                f"one type. Received: accumType={accumType!s}, accl1Type={accl1Type!s}; choose "
                "SGDAccumulatorAndMomentum.Separate for two"
            )
        super().__init__(values, clip_norm_settings, settings)

    def learningRates(self) -> OptimizerValueMap:
        """Returns the learning rates, by which updates are multiplied."""
        return self._values["learningRate"]

    def weightDecays(self) -> OptimizerValueMap:
        """Returns the weight decays, the share of a weight that is added to its gradient."""
        return self._values["weightDecay"]

    def momentums(self) -> OptimizerValueMap:
        """Returns the momentums, the share of the velocity that an update keeps."""
        return self._values["momentum"]

    def dampenings(self) -> OptimizerValueMap:
        """Returns the dampenings, the share of a gradient that is left out."""
        return self._values["dampening"]

    def velocityScalings(self) -> OptimizerValueMap:
        """Returns the velocity scalings, by which the velocity is multiplied where it is kept."""
        return self._values["velocityScaling"]


class ConstSGD(SGD):
    """Stochastic gradient descent with values that never change.

    Args:
        learning_rate: The number by which gradients are multiplied.
        weight_decay: The share of a weight that is added to its gradient.
        loss_scaling: The number by which the loss is multiplied, and updates are divided.
        clip_norm_settings: Groups of weights with the largest norm that the gradients of each
            group may have together.

    Raises:
        TypeError: An argument is of a wrong type.
        popart_exception: A value is out of range.

    Example:

    >>> ConstSGD(0.5).learningRates().getDefault()
    OptimizerValue(0.5, True)
    """

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        loss_scaling: float = 1.0,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ):
        values = {
            "defaultLearningRate": (learning_rate, True),
            "defaultWeightDecay": (weight_decay, True),
            LOSS_SCALING: (loss_scaling, True),
        }
        super().__init__(values, clip_norm_settings)
