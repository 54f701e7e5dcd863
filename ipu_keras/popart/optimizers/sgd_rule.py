"""Computes the updates of stochastic gradient descent.

There are three forms, as in PopART. Without momentum and accumulation there is no state. With
either, `v` is kept: combined with accumulated gradients, it holds the part of the next update that
is known before its gradients are, so that a change of momentum, dampening or weight decay takes
effect one update late; separate from them, it holds the velocity of the last update.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ipu_keras.popart.optimizers.optimizer import LOSS_SCALING
from ipu_keras.popart.optimizers.rule import (
    Accumulator,
    Compound,
    Factors,
    Scalar,
    Slot,
    dtype_of,
    in_float32,
    scalars_of,
)
from ipu_keras.popart.optimizers.sgd import SGD
from ipu_keras.popart.options import prefixes
from ipu_keras.popart.options.enumerations import DataType, SGDAccumulatorAndMomentum

_WITHOUT_STATE = (
    Compound(
        "scaledLearningRate0",
        ("learningRate", "dampening", LOSS_SCALING),
        prefixes.reservedDefaultScaledLearningRate0Prefix,
        prefixes.reservedSpecificScaledLearningRate0Prefix,
        lambda lr, dm, ls: lr * (1 - dm) / ls,
    ),
    Compound(
        "weightDecayScaleFactor0",
        ("weightDecay", "learningRate", "dampening"),
        prefixes.reservedDefaultWeightDecayScaleFactor0Prefix,
        prefixes.reservedSpecificWeightDecayScaleFactor0Prefix,
        lambda wd, lr, dm: 1 - lr * (1 - dm) * wd,
    ),
)


def _with_state(replicas: int, divisor: int) -> tuple[Compound, ...]:
    """Describes the scalars of the forms with state.

    `replicas` is over how many the velocity is summed; 1 if it is separate from the accumulator.
    """
    return (
        Compound(
            "scaledLearningRate1",
            ("learningRate", "velocityScaling"),
            prefixes.reservedDefaultScaledLearningRate1Prefix,
            prefixes.reservedSpecificScaledLearningRate1Prefix,
            lambda lr, vs: lr / (vs * replicas),
        ),
        Compound(
            "dampeningScaleFactor1",
            ("dampening", "velocityScaling", LOSS_SCALING),
            prefixes.reservedDefaultDampeningScaleFactor1Prefix,
            prefixes.reservedSpecificDampeningScaleFactor1Prefix,
            lambda dm, vs, ls: (1 - dm) * vs * replicas / (ls * divisor),
        ),
        Compound(
            "scaledMomentum1",
            ("momentum",),
            prefixes.reservedDefaultScaledMomentum1Prefix,
            prefixes.reservedSpecificScaledMomentum1Prefix,
            lambda mm: mm / replicas,
        ),
        Compound(
            "scaledWeightDecay1",
            ("dampening", "weightDecay", "velocityScaling"),
            prefixes.reservedDefaultScaledWeightDecay1Prefix,
            prefixes.reservedSpecificScaledWeightDecay1Prefix,
            lambda dm, wd, vs: (1 - dm) * wd * vs,
        ),
    )


class SGDRule:
    """The `Rule` of stochastic gradient descent.

    `accumulates` says whether gradients of several micro-batches are summed in an accumulator.
    """

    def __init__(self, optimizer: SGD, factors: Factors, accumulates: bool):
        self._optimizer = optimizer
        self._accumulates = accumulates
        kind = optimizer.settings["accumulatorAndMomentum"]
        self._combined = kind is SGDAccumulatorAndMomentum.Combined
        self._replicas = factors.replicas if self._combined else 1
        self._with_state = _with_state(self._replicas, factors.divisor)
        choice, self._velocity_type = (
            optimizer.settings[key] for key in ("accumType", "accl1Type")
        )
        if self._combined:
            # Accumulator and velocity are one tensor, and users may give its type by either name.
            types = {choice, self._velocity_type} - {DataType.UNDEFINED}
            choice = self._velocity_type = next(iter(types), DataType.UNDEFINED)
        # A combined accumulator is rounded as part of the velocity.
        self.accumulator = Accumulator(choice, accumulates and not self._combined)

    def slots(self, name: str, weight: np.ndarray) -> tuple[Slot, ...]:
        if not self._has_state(name):
            return ()
        dtype = dtype_of(self._velocity_type, weight.dtype)
        if not self._combined:
            return (Slot.of(prefixes.reservedAccl1Prefix(), np.zeros(weight.shape), dtype),)
        # The combined form holds the weight decay of the next update, and so of the first one, too.
        parts = (self._optimizer.value(k, name).val() for k in self._weight_decay.keys)
        initial = self._weight_decay.compute(*parts) * weight.astype(np.float64)
        return (Slot.of(prefixes.reservedAcclPrefix(), initial, dtype),)

    def scalars(self, name: str) -> dict[str, Scalar]:
        compounds = self._with_state if self._has_state(name) else _WITHOUT_STATE
        return scalars_of(compounds, self._optimizer, name)

    def updated(
        self,
        weight: tf.Tensor,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Tensor],
        scalars: Mapping[str, tf.Tensor],
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        if not slots:
            scaled = in_float32(weight) * scalars["weightDecayScaleFactor0"]
            step = in_float32(gradient) * scalars["scaledLearningRate0"]
            return tf.cast(scaled - step, weight.dtype), {}
        ((prefix, velocity),) = slots.items()
        if self._combined:
            return self._combined_update(weight, in_float32(gradient), velocity, scalars)
        weight, new = _separate_update(weight, in_float32(gradient), velocity, scalars)
        return weight, {prefix: new}

    @property
    def _weight_decay(self) -> Compound:
        return next(each for each in self._with_state if each.kind == "scaledWeightDecay1")

    def _has_state(self, name: str) -> bool:
        return self._accumulates or self._optimizer.has_momentum(name)

    def _combined_update(
        self,
        weight: tf.Tensor,
        gradient: tf.Tensor,
        velocity: tf.Tensor,
        scalars: Mapping[str, tf.Tensor],
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Updates a weight, and prepares the part of its next update that needs no gradient.

        Besides `v`, returns the tensors that PopART shows before and after the update.
        """
        # PopART sums the velocities of all replicas, of which each has the momentum; the scalars
        # divide by their number.
        before = self._replicas * in_float32(velocity)
        whole = before + scalars["dampeningScaleFactor1"] * gradient
        new = tf.cast(in_float32(weight) - scalars["scaledLearningRate1"] * whole, weight.dtype)
        decay = scalars["scaledWeightDecay1"] * in_float32(new)
        kept = tf.cast(scalars["scaledMomentum1"] * whole + decay, velocity.dtype)
        return new, {
            prefixes.reservedAcclPrefix(): kept,
            prefixes.reservedAcclFinalOutPrefix(): kept,
            prefixes.reservedAcclToUpdatePrefix(): tf.cast(whole, velocity.dtype),
        }


def _separate_update(
    weight: tf.Tensor,
    gradient: tf.Tensor,
    velocity: tf.Tensor,
    scalars: Mapping[str, tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Updates a weight and its velocity, which is kept apart from accumulated gradients."""
    wide = in_float32(weight)
    remains = scalars["scaledMomentum1"] * in_float32(velocity)
    comes = scalars["dampeningScaleFactor1"] * gradient + scalars["scaledWeightDecay1"] * wide
    velocity = tf.cast(remains + comes, velocity.dtype)
    step = scalars["scaledLearningRate1"] * in_float32(velocity)
    return tf.cast(wide - step, weight.dtype), velocity
