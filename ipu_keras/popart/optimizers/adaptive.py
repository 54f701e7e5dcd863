"""`popart.Adaptive`, which is AdaGrad, RMSProp or AdaDelta, as users choose it."""

from collections.abc import Mapping
from typing import Any

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.optimizers.optimizer import (
    HyperParameter,
    Optimizer,
    data_type,
    decay_rate,
    learning_rate,
)
from ipu_keras.popart.optimizers.values import OptimizerValueMap
from ipu_keras.popart.options.enumerations import AdaptiveMode, DataType, WeightDecayMode
from ipu_keras.popart.options.kinds import BOOL, one_of


class Adaptive(Optimizer):
    """AdaGrad, RMSProp or AdaDelta.

    For a weight `w` and its gradient `g`, which is without the loss scaling:

        g = g + weight decay * w                        (L2Regularization)
        v = alpha * v + (1 - alpha) * g ** 2            (AdaGrad: v + g ** 2)
        c = alpha * c + (1 - alpha) * g                 (CenteredRMSProp)
        u = g / (sqrt(v) + eps)                         (AdaGrad, RMSProp)
        u = g / (sqrt(v - c ** 2) + eps)                (CenteredRMSProp)
        u = g * sqrt(d + eps) / sqrt(v + eps)           (AdaDelta)
        d = alpha * d + (1 - alpha) * u ** 2            (AdaDelta)
        u = b = momentum * b + u                        (if momentum is not a constant 0)
        w = w - learning rate * (u + weight decay * w)  (L2Regularization: without weight decay)

    Args:
        values: Tuples of a value and of whether it is constant, by key: `defaultLearningRate`
            (0.1), `defaultWeightDecay` (0), `defaultAlpha` (0.99), `defaultMomentum` (0),
            `defaultEps` (1e-6) and `lossScaling` (1). Missing values are constant.
        mode: Which of the optimizers to use.
        weight_decay_mode: Whether weights decay directly, or as a part of their gradients.
        accum_type: The type of accumulated gradients; `UNDEFINED` is that of the weight.
        accl1_type: The type in which `v` is kept; `UNDEFINED` is that of the weight.
        accl2_type: The type in which `c` or `d` is kept; `UNDEFINED` is that of the weight.
        accl3_type: The type in which `b` is kept; `UNDEFINED` is that of the weight.
        rmsprop_tf_variant: Whether RMSProp is TensorFlow's: `v` begins with ones, `eps` is added
            below the root, and the momentum keeps steps that have the learning rate.

    Raises:
        TypeError: An argument is of a wrong type.
        popart_exception: There is no such key, a value is out of range, or TensorFlow's variant
            is asked for in a mode other than RMSProp.

    Example:

    >>> adaptive = Adaptive({"defaultAlpha": (0.5, False)}, AdaptiveMode.CenteredRMSProp)
    >>> adaptive.alphas().getDefault()
    OptimizerValue(0.5, False)
    """

    _NAME = "Adaptive"
    _HYPER_PARAMETERS = (
        HyperParameter("learningRate", 0.1, "learning rate", learning_rate),
        HyperParameter("weightDecay", 0.0, "weight decay"),
        HyperParameter("alpha", 0.99, "alpha", decay_rate),
        HyperParameter("momentum", 0.0, "momentum"),
        HyperParameter("eps", 1e-6, "eps"),
    )

    def __init__(
        self,
        values: Mapping[str, Any],
        mode: AdaptiveMode = AdaptiveMode.RMSProp,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        accl3_type: DataType = DataType.FLOAT,
        rmsprop_tf_variant: bool = False,
    ):
        settings = {
            "mode": one_of(AdaptiveMode).taken("mode", mode),
            "weight_decay_mode": one_of(WeightDecayMode).taken(
                "weight_decay_mode", weight_decay_mode
            ),
            "accum_type": data_type("accum_type", accum_type),
            "accl1_type": data_type("accl1_type", accl1_type),
            "accl2_type": data_type("accl2_type", accl2_type),
            "accl3_type": data_type("accl3_type", accl3_type),
            "rmsprop_tf_variant": BOOL.taken("rmsprop_tf_variant", rmsprop_tf_variant),
        }
        if rmsprop_tf_variant and mode not in (AdaptiveMode.RMSProp, AdaptiveMode.CenteredRMSProp):
            raise popart_exception(
                "`rmsprop_tf_variant` is for AdaptiveMode.RMSProp and AdaptiveMode.CenteredRMSProp."
                f" Received: mode={mode!s}, rmsprop_tf_variant=True"
            )
        super().__init__(values, (), settings)

    def learningRates(self) -> OptimizerValueMap:
        """Returns the learning rates, by which updates are multiplied."""
        return self._values["learningRate"]

    def weightDecays(self) -> OptimizerValueMap:
        """Returns the weight decays, the share of a weight added to its update or gradient."""
        return self._values["weightDecay"]

    def alphas(self) -> OptimizerValueMap:
        """Returns alpha, the share of averages that an update keeps."""
        return self._values["alpha"]

    def momentums(self) -> OptimizerValueMap:
        """Returns the momentums, the share of the last step that is taken again."""
        return self._values["momentum"]

    def epss(self) -> OptimizerValueMap:
        """Returns the small numbers that are added to divisors."""
        return self._values["eps"]
