"""What all optimizers have: hyper-parameters with a default and with values of some weights."""

import copy
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.optimizers.values import OptimizerValue, OptimizerValueMap
from ipu_keras.popart.options.enumerations import DataType
from ipu_keras.popart.options.settings import ClipNormSettings
from ipu_keras.popart.options.values import Kind, list_of, one_of

LOSS_SCALING = "lossScaling"

_CLIP_NORMS = list_of(one_of(ClipNormSettings))


def not_negative(value: OptimizerValue) -> tuple[str, str] | None:
    """How to call what is wrong with a value that must not be negative, and what it must be.

    Args:
        value: It.
    """
    return ("Negative", "at least 0") if value.val() < 0 else None


def positive(value: OptimizerValue) -> tuple[str, str] | None:
    """How to call what is wrong with a value that must be positive, and what it must be.

    Args:
        value: It.
    """
    return None if value.val() > 0 else ("Non-positive", "more than 0")


def learning_rate(value: OptimizerValue) -> tuple[str, str] | None:
    """How to call what is wrong with a learning rate, and what it must be.

    Args:
        value: It.
    """
    if value.val() == 0 and value.isConst():
        return "Constant, zero", "more than 0, or one that is not constant, as (0.0, False)"
    return not_negative(value)


def decay_rate(value: OptimizerValue) -> tuple[str, str] | None:
    """How to call what is wrong with the part that an average keeps, and what it must be.

    Args:
        value: It.
    """
    return ("Too large", "less than 1") if value.val() >= 1 else not_negative(value)


@dataclass(frozen=True)
class HyperParameter:
    """One of an optimizer's hyper-parameters.

    Args:
        key: In values of a weight, such as `learningRate`.
        unset: What it is by default.
        words: How errors call it.
        check: Returns how to call what is wrong with a value, and what it must be.
        may_be_infinite: Whether it can be.
    """

    key: str
    unset: float
    words: str
    check: Callable[[OptimizerValue], tuple[str, str] | None] = not_negative
    may_be_infinite: bool = False

    @property
    def default_key(self) -> str:
        """The key of the default, such as `defaultLearningRate`."""
        return f"default{self.key[0].upper()}{self.key[1:]}"

    def wrong(self, value: OptimizerValue) -> tuple[str, str] | None:
        """How to call what is wrong with a value, and what it must be; nothing if it is right.

        Args:
            value: It.
        """
        if math.isnan(value.val()) or (math.isinf(value.val()) and not self.may_be_infinite):
            return "No finite", "a finite float32"
        return self.check(value)


class Optimizer:
    """How weights change by their gradients. `SGD`, `Adam` and `Adaptive` are optimizers.

    Args:
        values: Tuples of a value and of whether it is constant, by key.
        clip_norm_settings: Groups of weights, and how long their gradients may be.
        settings: What else users chose, by the names of the parameters.
    """

    _NAME: ClassVar[str] = "Optimizer"
    _HYPER_PARAMETERS: ClassVar[tuple[HyperParameter, ...]] = ()

    def __init__(
        self,
        values: Any,
        clip_norm_settings: Sequence[ClipNormSettings],
        settings: Mapping[str, Any],
    ):
        if not self._HYPER_PARAMETERS:
            raise TypeError(
                "Optimizer is what optimizers have in common: make one of SGD, ConstSGD, Adam or "
                "Adaptive."
            )
        keys = [*(each.default_key for each in self._HYPER_PARAMETERS), LOSS_SCALING]
        given = self._checked(values, keys)
        self._loss_scaling = given.get(LOSS_SCALING, OptimizerValue(1.0))
        if self._loss_scaling.val() == 0 or not math.isfinite(self._loss_scaling.val()):
            raise popart_exception(
                f"Loss scaling cannot be 0, and is finite. Received: {self._loss_scaling}"
            )
        self._values = {
            each.key: OptimizerValueMap(given.get(each.default_key, OptimizerValue(each.unset)))
            for each in self._HYPER_PARAMETERS
        }
        self._check_ranges({key: each.getDefault() for key, each in self._values.items()}, "")
        self._clip_norms = _checked_groups(clip_norm_settings)
        self._settings = dict(settings)

    def getLossScalingVal(self) -> float:
        """What the loss is multiplied by."""
        return self._loss_scaling.val()

    def insertSpecific(self, arg0: str, arg1: Mapping[str, Any], /) -> None:
        """Gives a weight values of its own.

        Args:
            arg0: The name of the weight.
            arg1: Tuples of a value and of whether it is constant, by key, such as
                `{"learningRate": (0.1, False)}`. Those that are missing are the defaults.

        Raises:
            TypeError: An argument is of another type.
            popart_exception: There is no such key, or a value is not in range. Nothing changes.
        """
        if not isinstance(arg0, str):
            raise TypeError(f"The name of a weight is a str. Received: {arg0!r}")
        given = self._checked(arg1, list(self._values))
        whole = {key: given.get(key, each.getDefault()) for key, each in self._values.items()}
        self._check_ranges(whole, f" for weight {arg0!r}")
        self._values = {
            key: each.with_specific(arg0, whole[key]) for key, each in self._values.items()
        }

    @property
    def loss_scaling(self) -> OptimizerValue:
        """What the loss is multiplied by."""
        return self._loss_scaling

    @property
    def clip_norms(self) -> tuple[ClipNormSettings, ...]:
        """Groups of weights, and how long their gradients may be."""
        return self._clip_norms

    @property
    def settings(self) -> Mapping[str, Any]:
        """What else users chose, by the names of the parameters."""
        return self._settings

    def value(self, key: str, name: str) -> OptimizerValue:
        """A hyper-parameter of a weight.

        Args:
            key: Of the hyper-parameter, such as `learningRate`, or `lossScaling`.
            name: Of the weight.
        """
        return self._loss_scaling if key == LOSS_SCALING else self._values[key].get(name)

    def has_specific(self, name: str) -> bool:
        """Whether a weight has values of its own.

        Args:
            name: Of the weight.
        """
        return any(name in each.specific for each in self._values.values())

    def has_momentum(self, name: str) -> bool:
        """Whether a weight's momentum is, or can become, another one than 0.

        Args:
            name: Of the weight.
        """
        return "momentum" in self._values and _is_momentum(self.value("momentum", name))

    def copy(self) -> Self:
        """The same optimizer, which does not change with this one."""
        # Values are replaced and never changed: both can have the same ones.
        return copy.copy(self)

    def check_replacement(self, new: "Optimizer") -> None:
        """Refuses optimizers that a program made for this one cannot go on with.

        Args:
            new: Of which values are to be taken.

        Raises:
            TypeError: It is no optimizer.
            popart_exception: It differs in what is part of the program.
        """
        if not isinstance(new, Optimizer):
            raise TypeError(f"An optimizer is replaced by another one. Received: {new!r}")
        if reason := self._difference(new):
            raise popart_exception(
                f"New optimizer is not a valid replacement. {reason} A session's program is made "
                "for its optimizer: only values that are not constant, as in (0.1, False), change."
            )

    def check_weights(self, names: Collection[str]) -> None:
        """Refuses values and groups of tensors that are no weights.

        Args:
            names: Of all weights that are trained.

        Raises:
            popart_exception: There is such a value or group.
        """
        first = next(iter(self._values.values()))
        grouped = [name for group in self._clip_norms for name in group.weightIds]
        for what, given in (
            (f"Specific values of {self._NAME}", list(first.specific)),
            (f"Clip norm settings of {self._NAME}", grouped),
        ):
            if unknown := [name for name in given if name not in names]:
                raise popart_exception(
                    f"{what} are for weights that are trained. Received: "
                    f"{', '.join(map(repr, unknown))}; the weights are "
                    f"{', '.join(map(repr, sorted(names)))}"
                )

    def _checked(self, values: Any, keys: list[str]) -> dict[str, OptimizerValue]:
        """Values by key, if there are hyper-parameters of these keys."""
        if not isinstance(values, Mapping):
            raise TypeError(
                f"Values of {self._NAME} are a dict, such as {{{keys[0]!r}: (0.1, False)}}. "
                f"Received: {values!r}"
            )
        for key in values:
            if key not in keys:
                raise popart_exception(
                    f"Invalid {self._NAME} key, {key}, the allowed keys are ( {' '.join(keys)} )"
                )
        return {key: _value(key, value) for key, value in values.items()}

    def _check_ranges(self, values: Mapping[str, OptimizerValue], where: str) -> None:
        for each in self._HYPER_PARAMETERS:
            value = values[each.key]
            if wrong := each.wrong(value):
                first, expected = wrong
                # A constant zero says so by its words.
                number = f" ({value.val():.7g})" if value.val() else ""
                raise popart_exception(
                    f"{first} {each.words}{number} in {self._NAME}{where}. It must be {expected}. "
                    f"Received: {each.key}={value}"
                )

    def _difference(self, new: "Optimizer") -> str:
        """Why another optimizer does not replace this one; empty if it does."""
        if new._NAME != self._NAME:
            return f"Its type is {new._NAME}, not {self._NAME}."
        for name, value in self._settings.items():
            if new._settings[name] != value:
                return f"Its {name} is {new._settings[name]!s}, not {value!s}."
        if new._clip_norms != self._clip_norms:
            return f"Its clip norm settings are {new._clip_norms}, not {self._clip_norms}."
        if self._loss_scaling.isConst() and new._loss_scaling != self._loss_scaling:
            return f"Its loss scaling is {new._loss_scaling}, not {self._loss_scaling}."
        return next(filter(None, map(self._other_values, new._values.values(), self._values)), "")

    def _other_values(self, new: OptimizerValueMap, key: str) -> str:
        """Why the values of a hyper-parameter do not replace those of this one."""
        old = self._values[key]
        if new.specific.keys() != old.specific.keys():
            return (
                f"It has specific values of {_names(new.specific)}, not of {_names(old.specific)}."
            )
        pairs = [(f"default {key}", old.getDefault(), new.getDefault())]
        pairs += [(f"{key} of {name!r}", old.get(name), new.get(name)) for name in old.specific]
        for words, old_value, new_value in pairs:
            if old_value.isConst() and new_value != old_value:
                return f"Its {words} is {new_value}, not {old_value}."
            if key == "momentum" and _is_momentum(old_value) and not _is_momentum(new_value):
                return f"Its {words} is {new_value}: without momentum there is no such state."
        return ""


def data_type(name: str, value: DataType) -> DataType:
    """The type of an optimizer's state, if it can be.

    Args:
        name: Of the parameter.
        value: What was given.

    Raises:
        TypeError: It is no type.
        popart_exception: No state has this type.
    """
    allowed = (DataType.FLOAT, DataType.FLOAT16, DataType.UNDEFINED)
    wrong = "DataType.FLOAT, DataType.FLOAT16, or DataType.UNDEFINED for that of the weight"
    kind = one_of(DataType)
    return Kind(kind.expected, kind.take, lambda kept: "" if kept in allowed else wrong).taken(
        name, value
    )


def _value(key: str, value: Any) -> OptimizerValue:
    if isinstance(value, OptimizerValue):
        return value
    if isinstance(value, tuple | list):
        return OptimizerValue(value)
    raise TypeError(
        f"The value of {key!r} is a tuple of a number and of whether it is constant, such as "
        f"(0.1, False). Received: {value!r}"
    )


def _is_momentum(value: OptimizerValue) -> bool:
    """Whether it is, or can become, another one than 0."""
    return not value.isConst() or value.val() != 0


def _names(specific: Mapping[str, OptimizerValue]) -> str:
    return ", ".join(map(repr, sorted(specific))) or "no weight"


def _checked_groups(groups: Any) -> tuple[ClipNormSettings, ...]:
    """Clip norm settings, if their norms are positive and no weight is in two of them."""
    kept = _CLIP_NORMS.taken("clip_norm_settings", groups)
    seen: set[str] = set()
    for group in kept:
        if not (group.maxNorm > 0 and math.isfinite(group.maxNorm)):
            raise popart_exception(
                "The largest norm of gradients is positive and finite. Received: "
                f"maxNorm={group.maxNorm} for {list(group.weightIds)}"
            )
        for name in group.weightIds:
            if name in seen:
                raise popart_exception(
                    f"Gradients are clipped once. Received: weight {name!r} more than once in "
                    "clip_norm_settings"
                )
            seen.add(name)
    return tuple(kept)
