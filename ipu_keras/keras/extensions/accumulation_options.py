"""How a model that is not pipelined accumulates gradients: one frozen value, and its checks."""

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.optimizers.accumulator_options import DTypeChoice, check_choice, dtype_choice
from ipu_keras.settings.argument_errors import noted
from ipu_keras.settings.counts import MOST, integer_in
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_keras.settings.names import name_or_none

_OPTIMIZER_ARGUMENTS = (
    "dtype",
    "name",
    "offload_weight_update_variables",
    "replicated_optimizer_state_sharding",
)


@dataclass(frozen=True, kw_only=True)
class AccumulationOptions:
    """What `set_gradient_accumulation_options` has set.

    Args:
        steps_per_replica: Steps per weight update; `None` or 1 for none.
        reduction: How the gradients of these steps become one.
        dtype: Of the accumulators.
        offload_weight_update_variables: Whether variables that only the weight update needs lie
            in remote memory; `None` leaves it to the compiler.
        replicated_optimizer_state_sharding: Whether each replica holds a part of those; `None`
            if they are offloaded.
        name: Of the operations of the weight update; `None` for the default.
    """

    steps_per_replica: int | None = None
    reduction: GradientAccumulationReductionMethod = GradientAccumulationReductionMethod.SUM
    dtype: DTypeChoice = None
    offload_weight_update_variables: bool | None = None
    replicated_optimizer_state_sharding: bool | None = False
    name: str | None = None


def accumulation_options(
    steps_per_replica: Any, reduction: Any, kwargs: Mapping[str, Any]
) -> AccumulationOptions:
    """Checks the arguments of `set_gradient_accumulation_options`.

    Args:
        steps_per_replica: Steps per weight update.
        reduction: A reduction method or its name.
        kwargs: What is forwarded to the gradient accumulation optimizer.

    Raises:
        ValueError: A value is not valid, or a key is another argument's business.
        TypeError: The optimizer has no such argument, or a value has the wrong type.
    """
    steps_per_replica = accumulation_steps(steps_per_replica)
    method = GradientAccumulationReductionMethod.parse(
        "gradient_accumulation_reduction_method", reduction
    )
    _check_keys(kwargs)
    for key in ("offload_weight_update_variables", "replicated_optimizer_state_sharding"):
        check_choice(key, kwargs.get(key))
    name_or_none("name", kwargs.get("name"))
    return AccumulationOptions(
        steps_per_replica=steps_per_replica,
        reduction=method,
        **{**kwargs, "dtype": dtype_choice("dtype", kwargs.get("dtype"))},
    )


def warn_of_no_effect(options: AccumulationOptions) -> None:
    """Warns of options that change neither what is computed nor what reports model.

    Args:
        options: What was set on a model that is not pipelined.
    """
    idle = ("offload_weight_update_variables", "replicated_optimizer_state_sharding", "name")
    given = [name for name in idle if getattr(options, name)]
    if given:
        warnings.warn(
            f"{', '.join(given)} of `set_gradient_accumulation_options` has no effect here: the "
            "host has no remote memory, and reports model it for pipelined models only. Set the "
            "same argument with `set_pipelining_options` to see what it would cost.",
            stacklevel=3,
        )


def accumulation_steps(steps: Any) -> int | None:
    """Checks a count of accumulated steps; `None` stands for not set.

    Args:
        steps: As `settings.counts.positive_integer` takes it.

    Raises:
        ValueError: It is not a positive integer.
    """
    if steps is None:
        return None
    count = integer_in(steps)
    if count is None or not 1 <= count <= MOST:
        raise ValueError(
            "Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got "
            f"{steps} instead."
        )
    return count


def check_minimize(optimizer: Any, base: type) -> None:
    """Checks that an optimizer to be wrapped leaves `minimize` alone.

    Args:
        optimizer: The optimizer of a compiled model; `None` for none. It may wrap others.
        base: The class whose `minimize` it may inherit.

    Raises:
        ValueError: The class of the optimizer, or of one that it wraps, overrides `minimize`.
    """
    inherited = inspect.getattr_static(base, "minimize", None)
    for one in with_wrapped(optimizer, base):
        if inspect.getattr_static(type(one), "minimize", inherited) is not inherited:
            inside = "" if one is optimizer else f" within {type(optimizer).__name__}"
            raise noted(
                ValueError(
                    "When using Gradient Accumulation or Pipelining, the provided optimizer "
                    "must not override OptimizerV2.minimize."
                ),
                f"It is not called then. Received: {type(one).__name__}{inside}",
            )


def with_wrapped(optimizer: Any, base: type) -> list[Any]:
    """An optimizer and those that it wraps, outermost first.

    Args:
        optimizer: Such as a `LossScaleOptimizer`; `None` for none.
        base: The class of what counts as an optimizer among its attributes.
    """
    found: list[Any] = [] if optimizer is None else [optimizer]
    for one in found:  # which grows meanwhile
        values = getattr(one, "__dict__", {}).values()
        found += [v for v in values if isinstance(v, base) and all(v is not f for f in found)]
    return found


def _check_keys(kwargs: Mapping[str, Any]) -> None:
    if "opt" in kwargs:
        raise noted(
            ValueError(
                "Found `opt` key in `gradient_accumulation_optimizer_kwargs`. This is not "
                "supported as the optimizer which the model has been compiled with is "
                "automatically wrapped."
            ),
            "Pass it to `compile`.",
        )
    if "num_mini_batches" in kwargs:
        raise ValueError(
            "Found `num_mini_batches` key in `gradient_accumulation_optimizer_kwargs`. Set the "
            "`gradient_accumulation_steps_per_replica` argument to "
            "`set_gradient_accumulation_options` instead."
        )
    refuse_unknown("GradientAccumulationOptimizerV2", kwargs, _OPTIMIZER_ARGUMENTS)


def refuse_unknown(what: str, kwargs: Mapping[str, Any], known) -> None:
    """Refuses arguments that what they are for does not have.

    Args:
        what: The callable or object that takes the arguments, for the error.
        kwargs: The arguments.
        known: Names of those that it has.

    Raises:
        TypeError: There is such an argument.
    """
    unknown = sorted(set(kwargs) - set(known))
    if unknown:
        raise TypeError(
            f"{what} has no argument {unknown[0]!r}. Its arguments are: {', '.join(sorted(known))}"
        )
