"""What all optimizers have: hyper-parameters with defaults, and with values of single weights.

Here values are checked and compared; the rules (`rule`) compute with them.
"""

import copy
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.optimizers.values import OptimizerValue, OptimizerValueMap
from ipu_keras.popart.options.enumerations import DataType
from ipu_keras.popart.options.kinds import list_of, one_of
from ipu_keras.popart.options.settings import ClipNormSettings
from ipu_keras.settings.option import Constraint

LOSS_SCALING = "lossScaling"

_CLIP_NORMS = list_of(one_of(ClipNormSettings))


def not_negative(value: OptimizerValue) -> tuple[str, str] | None:
    """Checks a value that must not be negative.

    Returns how to call what is wrong, and what the value must be; `None` if it is right.
    """
    return ("Negative", "at least 0") if value.val() < 0 else None


def positive(value: OptimizerValue) -> tuple[str, str] | None:
    """Checks a value that must be positive, as `not_negative` does."""
    return None if value.val() > 0 else ("Non-positive", "more than 0")


def learning_rate(value: OptimizerValue) -> tuple[str, str] | None:
    """Checks a learning rate, which must not be a constant 0, as nothing would be learnt."""
    if value.val() == 0 and value.isConst():
        return "Constant, zero", "more than 0, or one that is not constant, as (0.0, False)"
    return not_negative(value)


def decay_rate(value: OptimizerValue) -> tuple[str, str] | None:
    """Checks the share that an average keeps, which must be less than 1."""
    return ("Too large", "less than 1") if value.val() >= 1 else not_negative(value)


@dataclass(frozen=True)
class HyperParameter:
    """One of an optimizer's hyper-parameters, with its value `unset` if users give none.

    `check` returns how to call what is wrong with a value, and what it must be, or `None`.
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
        """Returns how to call what is wrong with a value, and what it must be; `None` if right."""
        if math.isnan(value.val()) or (math.isinf(value.val()) and not self.may_be_infinite):
            return "No finite", "a finite float32"
        return self.check(value)


class Optimizer:
    """The base class of optimizers, which are `SGD`, `ConstSGD`, `Adam` and `Adaptive`.

    Args:
        values: Tuples of a value and of whether it is constant, by key.
        clip_norm_settings: Groups of weights with the largest norm of their gradients.
        settings: All other choices of users, by the names of the parameters.
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
        """Returns the number that the loss is multiplied by."""
        return self._loss_scaling.val()

    def insertSpecific(self, arg0: str, arg1: Mapping[str, Any], /) -> None:
        """Gives a weight values of its own.

        Args:
            arg0: The name of the weight.
            arg1: Tuples of a value and of whether it is constant, by key, such as
                `{"learningRate": (0.1, False)}`. Missing values are the defaults.

        Raises:
            TypeError: An argument is of a wrong type.
            popart_exception: There is no such key, or a value is out of range; nothing is changed
                then.
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
        """The number that the loss is multiplied by."""
        return self._loss_scaling

    @property
    def clip_norms(self) -> tuple[ClipNormSettings, ...]:
        """The groups of weights whose gradients are clipped together."""
        return self._clip_norms

    @property
    def settings(self) -> Mapping[str, Any]:
        """The choices of users other than values and clip norms, by the names of parameters."""
        return self._settings

    def value(self, key: str, name: str) -> OptimizerValue:
        """Returns the value of a hyper-parameter, or of `lossScaling`, for the weight `name`."""
        return self._loss_scaling if key == LOSS_SCALING else self._values[key].get(name)

    def has_specific(self, name: str) -> bool:
        """Whether a weight has values of its own."""
        return any(name in each.specific for each in self._values.values())

    def has_momentum(self, name: str) -> bool:
        """Whether the momentum of a weight is, or may become, other than 0."""
        return "momentum" in self._values and _is_momentum(self.value("momentum", name))

    def copy(self) -> Self:
        """Returns an optimizer with these values that does not change with this one."""
        # Values are replaced and never changed, so both can share them.
        return copy.copy(self)

    def check_replacement(self, new: "Optimizer") -> None:
        """Refuses an optimizer with which a program made for this one cannot go on.

        Raises:
            TypeError: The argument is no optimizer.
            popart_exception: The new optimizer differs in what is part of the program.
        """
        if not isinstance(new, Optimizer):
            raise TypeError(f"An optimizer is replaced by another one. Received: {new!r}")
        if reason := self._difference(new):
            raise popart_exception(
                f"New optimizer is not a valid replacement. {reason} A session's program is made "
                "for its optimizer: only values that are not constant, as in (0.1, False), change."
            )

    def check_weights(self, names: Collection[str]) -> None:
        """Raises a `popart_exception` if values or clip norms are for weights not in `names`."""
        # Each hyper-parameter has the same weights, as `insertSpecific` completes missing keys.
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
        """Returns values by key, which must be among `keys`."""
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
                # "Constant, zero learning rate" has the number in its words.
                number = f" ({value.val():.7g})" if value.val() else ""
                raise popart_exception(
                    f"{first} {each.words}{number} in {self._NAME}{where}. It must be {expected}. "
                    f"Received: {each.key}={value}"
                )

    def _difference(self, new: "Optimizer") -> str:
        """Says why another optimizer cannot replace this one; empty if it can."""
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
        """Says why values of a hyper-parameter cannot replace the old ones; empty if they can."""
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
    """Checks and returns the type of an optimizer's state, given for the parameter `name`."""
    allowed = (DataType.FLOAT, DataType.FLOAT16, DataType.UNDEFINED)
    constraint = Constraint(
        lambda kept: kept in allowed,
        "DataType.FLOAT, DataType.FLOAT16, or DataType.UNDEFINED for that of the weight",
    )
    return replace(one_of(DataType), constraint=constraint).taken(name, value)


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
    """Whether a momentum is, or may become, other than 0, so that it needs a state."""
    return not value.isConst() or value.val() != 0


def _names(specific: Mapping[str, OptimizerValue]) -> str:
    return ", ".join(map(repr, sorted(specific))) or "no weight"


def _checked_groups(groups: Any) -> tuple[ClipNormSettings, ...]:
    """Checks that largest norms are positive, and that no weight is in two groups."""
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
