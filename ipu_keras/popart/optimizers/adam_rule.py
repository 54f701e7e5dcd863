"""Computes the updates of Adam, AdaMax and LAMB."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ipu_keras.popart.optimizers.adam import Adam
from ipu_keras.popart.optimizers.rule import (
    Accumulator,
    Compound,
    Factors,
    Scalar,
    Slot,
    average,
    dtype_of,
    gradient_compounds,
    in_float32,
    scalars_of,
)
from ipu_keras.popart.options import prefixes
from ipu_keras.popart.options.enumerations import AdamMode, WeightDecayMode

_M, _V = prefixes.reservedAccl1Prefix(), prefixes.reservedAccl2Prefix()
_STEP = prefixes.reservedStepPrefix()

_AVERAGES = (
    Compound(
        "adamBeta1",
        ("beta1",),
        prefixes.reservedDefaultAdamBeta1Prefix,
        prefixes.reservedSpecificAdamBeta1Prefix,
    ),
    Compound(
        "adamBeta2",
        ("beta2",),
        prefixes.reservedDefaultAdamBeta2Prefix,
        prefixes.reservedSpecificAdamBeta2Prefix,
    ),
    Compound(
        "adamEps",
        ("eps",),
        prefixes.reservedDefaultAdamEpsPrefix,
        prefixes.reservedSpecificAdamEpsPrefix,
    ),
)
_MAX_WEIGHT_NORM = Compound(
    "maxWeightNorm",
    ("maxWeightNorm",),
    prefixes.reservedDefaultMaxWeightNormPrefix,
    prefixes.reservedSpecificMaxWeightNormPrefix,
)


class AdamRule:
    """The `Rule` of Adam, AdaMax and LAMB.

    `accumulates` says whether gradients of several micro-batches are summed in an accumulator.
    """

    def __init__(self, optimizer: Adam, factors: Factors, accumulates: bool):
        self._optimizer = optimizer
        self.accumulator = Accumulator(optimizer.settings["accum_type"], accumulates)
        self._divisor = factors.divisor
        self._mode = optimizer.settings["mode"]
        self._is_lamb = self._mode in (AdamMode.Lamb, AdamMode.LambNoBias)
        self._has_step = self._mode not in (AdamMode.AdamNoBias, AdamMode.LambNoBias)
        decay = optimizer.settings["weight_decay_mode"]
        self._decays_gradients = decay is WeightDecayMode.L2Regularization
        self._has_scaled_state = optimizer.settings["scaled_optimizer_state"]

    def slots(self, name: str, weight: np.ndarray) -> tuple[Slot, ...]:
        settings, zeros = self._optimizer.settings, np.zeros(weight.shape)
        return (
            Slot.of(_M, zeros, dtype_of(settings["accl1_type"], weight.dtype)),
            Slot.of(_V, zeros, dtype_of(settings["accl2_type"], weight.dtype)),
            *([Slot.of(_STEP, np.zeros(()), np.dtype("float32"))] if self._has_step else []),
        )

    def scalars(self, name: str) -> dict[str, Scalar]:
        compounds = (*gradient_compounds(self._divisor), *_AVERAGES)
        lamb = (_MAX_WEIGHT_NORM,) if self._is_lamb else ()
        return scalars_of((*compounds, *lamb), self._optimizer, name)

    def updated(
        self,
        weight: tf.Tensor,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Tensor],
        scalars: Mapping[str, tf.Tensor],
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        wide = in_float32(weight)
        # A scaled state keeps the magnitude of the loss scaling in gradients, but never the sign,
        # which would turn updates round.
        whole = tf.abs(scalars["lossScaling"]) / self._divisor
        scale = whole if self._has_scaled_state else tf.ones_like(whole)
        wide_gradient = in_float32(gradient) * (scale / scalars["lossScaling"])
        if self._decays_gradients:
            wide_gradient += scalars["weightDecay"] * scale * wide
        new = self._new_slots(wide_gradient, slots, scalars)
        step = self._step(new, scalars, scale)
        if not self._decays_gradients:
            step += scalars["weightDecay"] * wide
        rate = scalars["learningRate"]
        if self._is_lamb:
            rate *= _trust(wide, step, scalars["maxWeightNorm"])
        return tf.cast(wide - rate * step, weight.dtype), new

    def _new_slots(
        self,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Tensor],
        scalars: Mapping[str, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        beta2 = scalars["adamBeta2"]
        if self._mode is AdamMode.AdaMax:
            largest = tf.maximum(beta2 * in_float32(slots[_V]), tf.abs(gradient))
            second = tf.cast(largest, slots[_V].dtype)
        else:
            second = average(slots[_V], tf.square(gradient), beta2)
        new = {_M: average(slots[_M], gradient, scalars["adamBeta1"]), _V: second}
        if self._has_step:
            new[_STEP] = slots[_STEP] + 1
        return new

    def _step(
        self,
        slots: Mapping[str, tf.Tensor],
        scalars: Mapping[str, tf.Tensor],
        scale: tf.Tensor,
    ) -> tf.Tensor:
        """Computes the update without weight decay and learning rate."""
        first, second = in_float32(slots[_M]), in_float32(slots[_V])
        if self._has_step:
            first /= _part_averaged(scalars["adamBeta1"], slots[_STEP])
            second /= _part_averaged(scalars["adamBeta2"], slots[_STEP])
        root = tf.sqrt(second)
        if self._mode is AdamMode.AdaMax and self._has_scaled_state:
            # AdaMax's second moments are not squared, so they have the scale once, and their root
            # has the root of the scale.
            root *= tf.sqrt(scale)
        return first / (root + scalars["adamEps"] * scale)


def _part_averaged(beta: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """Computes 1 - beta ** step by `expm1`, as subtraction loses most digits in the first steps."""
    return -tf.math.expm1(step * tf.math.log(beta))


def _trust(weight: tf.Tensor, step: tf.Tensor, largest: tf.Tensor) -> tf.Tensor:
    """Computes LAMB's trust ratio, by which it multiplies the learning rate; 1 if undefined."""
    weight_norm, step_norm = tf.norm(weight), tf.norm(step)
    capped = tf.minimum(weight_norm, largest)
    is_defined = (capped > 0) & (step_norm > 0)
    return tf.where(is_defined, capped / tf.where(is_defined, step_norm, 1.0), 1.0)
