"""What a rule is by which weights are updated: its state, its scalars, and the update itself."""

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
    """How many gradients there are of an update.

    Args:
        accumulation: Micro-batches of a replica.
        replicas: Copies of the graph.
        is_mean: Whether the mean of a replica's micro-batches is taken, and not their sum. That
            of replicas is a matter of the gradient that a rule is given.
    """

    accumulation: int = 1
    replicas: int = 1
    is_mean: bool = False

    @property
    def divisor(self) -> int:
        """What the sum of a replica's micro-batches is divided by."""
        return self.accumulation if self.is_mean else 1


@dataclass(frozen=True)
class Scalar:
    """A scalar of an update, a float32.

    Args:
        tensor: Its name, such as `scaledLearningRate0___default___FLOAT`.
        value: It.
        is_const: Whether it never changes.
    """

    tensor: str
    value: float
    is_const: bool


@dataclass(frozen=True)
class Slot:
    """A part of an optimizer's state for a weight.

    Args:
        prefix: Of its name, such as `Accl___`; behind it stands the weight's.
        shape: Sizes of the axes.
        dtype: Type of the elements.
        initial: What it is at first.
    """

    prefix: str
    shape: tuple[int, ...]
    dtype: np.dtype
    initial: np.ndarray

    @classmethod
    def of(cls, prefix: str, initial: np.ndarray, dtype: np.dtype) -> "Slot":
        """A slot that begins with a value.

        Args:
            prefix: Of its name.
            initial: The value, of any type of floats.
            dtype: Type of the slot's elements.
        """
        with np.errstate(over="ignore", under="ignore"):
            return cls(prefix, initial.shape, dtype, initial.astype(dtype))


@dataclass(frozen=True)
class Accumulator:
    """What the gradients of a replica's micro-batches are summed in.

    Args:
        choice: The type of its elements, as users chose it.
        rounds: Whether sums have been in it before they are used.
    """

    choice: DataType
    rounds: bool

    def dtype(self, weight: np.dtype) -> np.dtype:
        """The type of its elements.

        Args:
            weight: The weight's type.
        """
        return dtype_of(self.choice, weight)

    def rounded(self, gradient: tf.Tensor, weight: np.dtype) -> tf.Tensor:
        """The sum of a batch's gradients, as it has it.

        Args:
            gradient: It, float32 or of the weight's type.
            weight: The weight's type.
        """
        return tf.cast(gradient, self.dtype(weight)) if self.rounds else gradient


class Rule(Protocol):
    """How an optimizer updates weights."""

    def slots(self, name: str, weight: np.ndarray) -> tuple[Slot, ...]:
        """The state of a weight.

        Args:
            name: Of the weight.
            weight: Its initial value.
        """

    def scalars(self, name: str) -> dict[str, Scalar]:
        """The scalars of a weight's update by kind, such as `scaledLearningRate0`.

        Args:
            name: Of the weight.
        """

    @property
    def accumulator(self) -> Accumulator:
        """What the gradients of a replica's micro-batches are summed in."""

    def updated(
        self,
        weight: tf.Tensor,
        gradient: tf.Tensor,
        slots: Mapping[str, tf.Tensor],
        scalars: Mapping[str, tf.Tensor],
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """A weight and its state after an update, which have the types that they had; by other
        prefixes, what else there is of the update.

        It is the same for any order of the axes.

        Args:
            weight: It.
            gradient: The sum over all micro-batches and replicas of the gradient of the scaled
                loss, in any type of floats; without what automatic loss scaling has multiplied
                it by.
            slots: The state by prefix.
            scalars: The float32 scalars by kind.
        """


@dataclass(frozen=True)
class Compound:
    """How a scalar is made of hyper-parameters.

    Args:
        kind: What it is.
        keys: Of the hyper-parameters.
        default: Returns the prefix of its name if they are the default ones.
        specific: Returns the prefix of its name if they are a weight's own.
        compute: Returns its value, given theirs.
    """

    kind: str
    keys: tuple[str, ...]
    default: Callable[[], str]
    specific: Callable[[], str]
    compute: Callable[..., float] = lambda value: value

    def scalar(self, optimizer: Optimizer, name: str) -> Scalar:
        """The scalar of a weight.

        Args:
            optimizer: That has the hyper-parameters.
            name: Of the weight.
        """
        values = [optimizer.value(key, name) for key in self.keys]
        # Loss scaling is the same for all weights.
        is_specific = optimizer.has_specific(name) and set(self.keys) != {LOSS_SCALING}
        # Python's floats have 64 bits: what is rounded is the result.
        with np.errstate(over="ignore", under="ignore"):
            value = float(np.float32(self.compute(*(each.val() for each in values))))
        return Scalar(
            f"{self.specific()}{name}" if is_specific else f"{self.default()}FLOAT",
            value,
            all(each.isConst() for each in values),
        )


def gradient_compounds(divisor: int) -> tuple[Compound, ...]:
    """How the scalars are made that optimizers with averages of gradients have in common.

    Args:
        divisor: Of gradients, which their loss scaling has in it.
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
    """Scalars by kind.

    Args:
        compounds: How they are made.
        optimizer: That has the hyper-parameters.
        name: Of the weight.
    """
    return {each.kind: each.scalar(optimizer, name) for each in compounds}


def dtype_of(choice: DataType, weight: np.dtype) -> np.dtype:
    """The type of an optimizer's state.

    Args:
        choice: What users chose.
        weight: The weight's type, which that of undefined ones is.
    """
    if choice is DataType.UNDEFINED:
        return np.dtype(weight)
    return np.dtype("float32" if choice is DataType.FLOAT else "float16")


def in_float32(tensor: tf.Tensor) -> tf.Tensor:
    """What updates are computed with, whatever type a tensor is kept in.

    Args:
        tensor: It.
    """
    return tf.cast(tensor, tf.float32)


def average(old: tf.Tensor, new: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
    """A moving average, which has the type that it had.

    Args:
        old: It.
        new: What comes to it, float32.
        kept: How much of it remains, float32.
    """
    return tf.cast(kept * in_float32(old) + (1 - kept) * new, old.dtype)
