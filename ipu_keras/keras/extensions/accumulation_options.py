"""The options of gradient accumulation for a model that is not pipelined, and their checks."""

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.optimizers.accumulator_options import DTypeChoice, check_choice, dtype_choice
from ipu_keras.settings.arguments import MOST, integer_in, name_or_none, noted
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod

_OPTIMIZER_ARGUMENTS = (
    "dtype",
    "name",
    "offload_weight_update_variables",
    "replicated_optimizer_state_sharding",
)


@dataclass(frozen=True, kw_only=True)
class AccumulationOptions:
    """The arguments of `set_gradient_accumulation_options`, after their checks.

    Args:
        steps_per_replica: Steps per weight update, where `None` and 1 both mean no accumulation.
        offload_weight_update_variables: Whether variables that only the weight update needs lie
            in remote memory; `None` leaves it to the compiler.
        replicated_optimizer_state_sharding: Whether each replica holds only a part of those
            variables; `None` means that it does if they are offloaded.
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
    """Checks the arguments of `set_gradient_accumulation_options` and returns them as one value.

    `kwargs` are those that go on to the gradient accumulation optimizer.
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
    """Warns of options that change neither the results nor what reports model."""
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
    """Returns a count of accumulated steps once it is checked; `None` means that none was set."""
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
    """Refuses an optimizer that overrides `minimize`, or that wraps one which does.

    Keras 3 never calls `minimize`, so what a user wrote there would be skipped in silence.
    `base` is the optimizer class whose own `minimize` is allowed.
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
    """Returns an optimizer and those that it wraps, such as a `LossScaleOptimizer`'s, outermost
    first."""
    found: list[Any] = [] if optimizer is None else [optimizer]
    for one in found:  # the list grows while it is read: wrappers may be nested
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
    """Raises a `TypeError` if `kwargs` names an argument that `what` does not have."""
    unknown = sorted(set(kwargs) - set(known))
    if unknown:
        raise TypeError(
            f"{what} has no argument {unknown[0]!r}. Its arguments are: {', '.join(sorted(known))}"
        )
