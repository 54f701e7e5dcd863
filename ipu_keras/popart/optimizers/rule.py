"""Declares the rules by which weights are updated: their state, scalars, and the update itself.

Updates are computed in float32, whatever types weights and state are kept in.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf

from ipu_keras.popart.optimizers.optimizer import LOSS_SCALING, Optimizer
from ipu_keras.popart.options import prefixes
from ipu_keras.popart.options.enumerations import DataType


@dataclass(frozen=True)
class Factors:
    """How many gradients an update adds up.

    Args:
        accumulation: The number of micro-batches of a replica.
        is_mean: Whether an update takes the mean over a replica's micro-batches, and not their
            sum. A mean over replicas is in the gradient already that a rule is given.
    """

    accumulation: int = 1
    replicas: int = 1
    is_mean: bool = False

    @property
    def divisor(self) -> int:
        """The number by which the sum over a replica's micro-batches is divided."""
        return self.accumulation if self.is_mean else 1


@dataclass(frozen=True)
class Scalar:
    """A float32 scalar of an update, which is part of the program if it is constant.

    `tensor` is its name, such as `scaledLearningRate0___default___FLOAT`.
    """

    tensor: str
    value: float
    is_const: bool


@dataclass(frozen=True)
class Slot:
    """A part of an optimizer's state for a weight, such as its velocity.

    `prefix`, such as `Accl___`, comes before the name of the weight in that of the tensor.
    """

    prefix: str
    shape: tuple[int, ...]
    dtype: np.dtype
    initial: np.ndarray

    @classmethod
    def of(cls, prefix: str, initial: np.ndarray, dtype: np.dtype) -> "Slot":
        """Makes a slot of the type `dtype` that begins with a value of any type of floats."""
        with np.errstate(over="ignore", under="ignore"):
            return cls(prefix, initial.shape, dtype, initial.astype(dtype))


@dataclass(frozen=True)
class Accumulator:
    """The tensor in which the gradients of a replica's micro-batches are summed.

    `rounds` says whether sums are rounded to its type before an update uses them.
    """

    choice: DataType
    rounds: bool

    def dtype(self, weight: np.dtype) -> np.dtype:
        """Returns the type of the accumulator for a weight of a type."""
        return dtype_of(self.choice, weight)

    def rounded(self, gradient: tf.Tensor, weight: np.dtype) -> tf.Tensor:
        """Rounds the sum of a batch's gradients as the accumulator would have it."""
        return tf.cast(gradient, self.dtype(weight)) if self.rounds else gradient


class Rule(Protocol):
    """How an optimizer updates weights."""

    def slots(self, name: str, weight: np.ndarray) -> tuple[Slot, ...]:
        """Returns the parts of the state of a weight, given the weight's initial value."""

    def scalars(self, name: str) -> dict[str, Scalar]:
        """Returns the scalars of a weight's update by kind, such as `scaledLearningRate0`."""

    @property
    def accumulator(self) -> Accumulator:
        """The tensor in which the gradients of a replica's micro-batches are summed."""

    def updated(
        self,
        weight: tf.Tensor,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Tensor],
        scalars: Mapping[str, tf.Tensor],
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns a weight and its state after an update, in the types that they had.

        By other prefixes, the state has further tensors of the update that may be anchors. The
        update is the same for any order of the axes, so that weights may be kept in the order that
        convolutions want.

        Args:
            gradient: The gradient of the scaled loss, summed over all micro-batches and replicas,
                in any type of floats, without the factor of automatic loss scaling.
            slots: The state of the weight by prefix.
            scalars: The scalars by kind, float32.
        """


@dataclass(frozen=True)
class Compound:
    """Describes how a scalar of updates is computed from hyper-parameters.

    PopART computes with such products of hyper-parameters, and shows them as tensors. `default` and
    `specific` return the prefix of the name, the latter if the weight has values of its own.
    """

    kind: str
    keys: tuple[str, ...]
    default: Callable[[], str]
    specific: Callable[[], str]
    compute: Callable[..., float] = lambda value: value

    def scalar(self, optimizer: Optimizer, name: str) -> Scalar:
        """Returns the scalar of the weight `name`."""
        values = [optimizer.value(key, name) for key in self.keys]
        # No weight has a loss scaling of its own.
        is_specific = optimizer.has_specific(name) and set(self.keys) != {LOSS_SCALING}
        # Computed in 64 bits, so that only the result is rounded to float32.
        with np.errstate(over="ignore", under="ignore"):
            value = float(np.float32(self.compute(*(each.val() for each in values))))
        return Scalar(
            f"{self.specific()}{name}" if is_specific else f"{self.default()}FLOAT",
            value,
            all(each.isConst() for each in values),
        )


def gradient_compounds(divisor: int) -> tuple[Compound, ...]:
    """Describes the scalars that Adam and Adaptive have in common.

    `divisor`, by which sums over micro-batches are divided, is part of their loss scaling.
    """
    return (
        Compound(
            "learningRate",
            ("learningRate",),
            prefixes.reservedDefaultLearningRatePrefix,
            prefixes.reservedSpecificLearningRatePrefix,
        ),
        Compound(
            "weightDecay",
            ("weightDecay",),
            prefixes.reservedDefaultWeightDecayPrefix,
            prefixes.reservedSpecificWeightDecayPrefix,
        ),
        Compound(
            "lossScaling",
            (LOSS_SCALING,),
            prefixes.reservedDefaultLossScalingPrefix,
            prefixes.reservedSpecificLossScalingPrefix,
            lambda ls: ls * divisor,
        ),
    )


def scalars_of(compounds: Iterable[Compound], optimizer: Optimizer, name: str) -> dict[str, Scalar]:
    """Returns the scalars of the weight `name` by kind."""
    return {each.kind: each.scalar(optimizer, name) for each in compounds}


def dtype_of(choice: DataType, weight: np.dtype) -> np.dtype:
    """Returns the type that users chose for an optimizer's state, or that of the weight."""
    if choice is DataType.UNDEFINED:
        return np.dtype(weight)
    return np.dtype("float32" if choice is DataType.FLOAT else "float16")


def in_float32(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(tensor, tf.float32)


def average(old: tf.Tensor, new: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
    """Moves an average, which stays in its type, towards a new value, both others in float32."""
    return tf.cast(kept * in_float32(old) + (1 - kept) * new, old.dtype)
