"""`popart.Adam`, which is also AdaMax and LAMB, as users choose it."""

from collections.abc import Mapping, Sequence
from typing import Any

from ipu_keras.popart.optimizers.optimizer import (
    HyperParameter,
    Optimizer,
    data_type,
    decay_rate,
    learning_rate,
)
from ipu_keras.popart.optimizers.values import OptimizerValueMap
from ipu_keras.popart.options.enumerations import AdamMode, DataType, WeightDecayMode
from ipu_keras.popart.options.kinds import BOOL, one_of
from ipu_keras.popart.options.settings import ClipNormSettings


class Adam(Optimizer):
    """Adam, AdaMax or LAMB, with weight decay (AdamW) or without.

    For a weight `w` and its gradient `g`, which is without the loss scaling; `t` counts updates:

        g = g + weight decay * w                       (L2Regularization)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g ** 2           (AdaMax: max(beta2 * v, |g|))
        u = m / (1 - beta1 ** t) / (sqrt(v / (1 - beta2 ** t)) + eps)
        u = u + weight decay * w                       (Decay)
        w = w - learning rate * u                      (LAMB: * min(|w|, max weight norm) / |u|)

    Modes with `NoBias` leave out both divisions by `1 - beta ** t`. LAMB's factor is 1 where one
    of its three parts is 0.

    Args:
        values: Tuples of a value and of whether it is constant, by key: `defaultLearningRate`
            (0.1), `defaultWeightDecay` (0), `defaultBeta1` (0.9), `defaultBeta2` (0.999),
            `defaultEps` (1e-6), `defaultMaxWeightNorm` (10) and `lossScaling` (1). Missing values
            are constant.
        mode: Which of the optimizers to use, with or without correction of the bias.
        weight_decay_mode: Whether weights decay directly, or as a part of their gradients.
        accum_type: The type of accumulated gradients; `UNDEFINED` is that of the weight.
        accl1_type: The type in which `m` is kept; `UNDEFINED` is that of the weight.
        accl2_type: The type in which `v` is kept; `UNDEFINED` is that of the weight.
        clip_norm_settings: Groups of weights with the largest norm that the gradients of each
            group may have together.
        scaled_optimizer_state: Whether `m` and `v` are averages of gradients that still have the
            loss scaling, for which float16 may be enough. The averages stay as they are when the
            loss scaling changes.

    Raises:
        TypeError: An argument is of a wrong type.
        popart_exception: There is no such key, or a value is out of range.

    Example:

    >>> lamb = Adam({"defaultLearningRate": (0.5, False)}, AdamMode.Lamb)
    >>> lamb.maxWeightNorms().getDefault()
    OptimizerValue(10.0, True)
    """

    _NAME = "Adam"
    _HYPER_PARAMETERS = (
        HyperParameter("learningRate", 0.1, "learning rate", learning_rate),
        HyperParameter("weightDecay", 0.0, "weight decay"),
        HyperParameter("beta1", 0.9, "beta1", decay_rate),
        HyperParameter("beta2", 0.999, "beta2", decay_rate),
        HyperParameter("eps", 1e-6, "eps"),
        HyperParameter("maxWeightNorm", 10.0, "max weight norm", may_be_infinite=True),
    )

    def __init__(
        self,
        values: Mapping[str, Any],
        mode: AdamMode = AdamMode.Adam,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        scaled_optimizer_state: bool = False,
    ):
        settings = {
            "mode": one_of(AdamMode).taken("mode", mode),
            "weight_decay_mode": one_of(WeightDecayMode).taken(
                "weight_decay_mode", weight_decay_mode
            ),
            "accum_type": data_type("accum_type", accum_type),
            "accl1_type": data_type("accl1_type", accl1_type),
            "accl2_type": data_type("accl2_type", accl2_type),
            "scaled_optimizer_state": BOOL.taken("scaled_optimizer_state", scaled_optimizer_state),
        }
        super().__init__(values, clip_norm_settings, settings)

    def learningRates(self) -> OptimizerValueMap:
        """Returns the learning rates, by which updates are multiplied."""
        return self._values["learningRate"]

    def weightDecays(self) -> OptimizerValueMap:
        """Returns the weight decays, the share of a weight added to its update or gradient."""
        return self._values["weightDecay"]

    def beta1s(self) -> OptimizerValueMap:
        """Returns beta1, the share of the average of gradients that an update keeps."""
        return self._values["beta1"]

    def beta2s(self) -> OptimizerValueMap:
        """Returns beta2, the share of the average of squared gradients that an update keeps."""
        # PopART's own binding returns those of beta1 here, by mistake.
        return self._values["beta2"]

    def epss(self) -> OptimizerValueMap:
        """Returns the small numbers that are added to divisors."""
        return self._values["eps"]

    def maxWeightNorms(self) -> OptimizerValueMap:
        """Returns the largest norms of weights that LAMB takes into account."""
        return self._values["maxWeightNorm"]
