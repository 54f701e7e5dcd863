"""Computes the updates of AdaGrad, RMSProp and AdaDelta."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ipu_keras.popart.optimizers.adaptive import Adaptive
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
from ipu_keras.popart.options.enumerations import AdaptiveMode, WeightDecayMode

_V, _SECOND = prefixes.reservedAccl1Prefix(), prefixes.reservedAccl2Prefix()
_MOMENTUM = prefixes.reservedAccl3Prefix()


def _compound(kind: str, key: str) -> Compound:
    """Describes a scalar whose prefix PopART shows by no function; its name follows the others."""
    return Compound(kind, (key,), lambda: f"{kind}___default___", lambda: f"{kind}___specific___")


_ALPHA = _compound("adaptiveAlpha", "alpha")
_EPS = _compound("adaptiveEps", "eps")
_OF_MOMENTUM = _compound("adaptiveMomentum", "momentum")


class AdaptiveRule:
    """The `Rule` of AdaGrad, RMSProp and AdaDelta.

    `accumulates` says whether gradients of several micro-batches are summed in an accumulator.
    """

    def __init__(self, optimizer: Adaptive, factors: Factors, accumulates: bool):
        self._optimizer = optimizer
        self.accumulator = Accumulator(optimizer.settings["accum_type"], accumulates)
        self._divisor = factors.divisor
        self._mode = optimizer.settings["mode"]
        decay = optimizer.settings["weight_decay_mode"]
        self._decays_gradients = decay is WeightDecayMode.L2Regularization
        self._is_tensorflow = optimizer.settings["rmsprop_tf_variant"]

    def slots(self, name: str, weight: np.ndarray) -> tuple[Slot, ...]:
        shape, settings = weight.shape, self._optimizer.settings
        first = np.ones(shape) if self._is_tensorflow else np.zeros(shape)
        initial = {_V: (first, "accl1_type")}
        if self._mode in (AdaptiveMode.CenteredRMSProp, AdaptiveMode.AdaDelta):
            initial[_SECOND] = (np.zeros(shape), "accl2_type")
        if self._optimizer.has_momentum(name):
            initial[_MOMENTUM] = (np.zeros(shape), "accl3_type")
        return tuple(
            Slot.of(prefix, value, dtype_of(settings[key], weight.dtype))
            for prefix, (value, key) in initial.items()
        )

    def scalars(self, name: str) -> dict[str, Scalar]:
        alpha = () if self._mode is AdaptiveMode.AdaGrad else (_ALPHA,)
        momentum = (_OF_MOMENTUM,) if self._optimizer.has_momentum(name) else ()
        compounds = (*gradient_compounds(self._divisor), *alpha, *momentum, _EPS)
        return scalars_of(compounds, self._optimizer, name)

    def updated(
        self,
        weight: tf.Tensor,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Tensor],
        scalars: Mapping[str, tf.Tensor],
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        wide, rate = in_float32(weight), scalars["learningRate"]
        wide_gradient = in_float32(gradient) / scalars["lossScaling"]
        if self._decays_gradients:
            wide_gradient += scalars["weightDecay"] * wide
        step, new = self._step(wide_gradient, slots, scalars)
        # TensorFlow's momentum keeps steps that have the learning rate already, so that a change of
        # the rate does not reach them.
        if self._is_tensorflow:
            step *= rate
        if _MOMENTUM in slots:
            old = slots[_MOMENTUM]
            whole = scalars["adaptiveMomentum"] * in_float32(old) + step
            new[_MOMENTUM] = tf.cast(whole, old.dtype)
            step = in_float32(new[_MOMENTUM])
        if not self._is_tensorflow:
            step *= rate
        if not self._decays_gradients:
            step += rate * scalars["weightDecay"] * wide
        return tf.cast(wide - step, weight.dtype), new

    def _step(
        self,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Tensor],
        scalars: Mapping[str, tf.Tensor],
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Computes new averages, and the update without momentum, weight decay, learning rate."""
        eps, square = scalars["adaptiveEps"], tf.square(gradient)
        if self._mode is AdaptiveMode.AdaGrad:
            new = {_V: tf.cast(in_float32(slots[_V]) + square, slots[_V].dtype)}
            return gradient / (tf.sqrt(in_float32(new[_V])) + eps), new
        alpha = scalars["adaptiveAlpha"]
        new = {_V: average(slots[_V], square, alpha)}
        mean_square = in_float32(new[_V])
        if self._mode is AdaptiveMode.AdaDelta:
            step = gradient * tf.sqrt(in_float32(slots[_SECOND]) + eps)
            step /= tf.sqrt(mean_square + eps)
            new[_SECOND] = average(slots[_SECOND], tf.square(step), alpha)
            return step, new
        if self._mode is AdaptiveMode.CenteredRMSProp:
            new[_SECOND] = average(slots[_SECOND], gradient, alpha)
            # The variance of gradients that are always the same may be rounded below zero.
            mean_square = tf.maximum(mean_square - tf.square(in_float32(new[_SECOND])), 0.0)
        if self._is_tensorflow:
            return gradient / tf.sqrt(mean_square + eps), new
        return gradient / (tf.sqrt(mean_square) + eps), new
