"""Checks of the arguments of `pipelining_ops.pipeline` about how it runs, whoever passes them
on."""

from collections.abc import Mapping
from typing import Any

from ipu_keras.optimizers.accumulator_options import check_choice
from ipu_keras.program import PipelineChoices
from ipu_keras.settings.arguments import noted
from ipu_keras.settings.option_warnings import OPTION_WARNINGS
from ipu_keras.settings.pipeline_choices import (
    MODELLED_POPLAR_OPTIONS,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    idle_poplar_options,
    recomputation_mode,
)

_SWITCHES = (
    "offload_weight_update_variables",
    "replicated_optimizer_state_sharding",
    "offload_activations",
    "offload_gradient_accumulation_buffers",
    "replicated_weight_sharding",
    "offload_weights",
)
_STAGE_OPTIONS = {
    "forward_propagation_stages_poplar_options": "forward_options",
    "backward_propagation_stages_poplar_options": "backward_options",
}

# Names of all arguments that `checked_choices` looks at.
CHOICES = (
    *_SWITCHES,
    *_STAGE_OPTIONS,
    "continuous_weight_updates",
    "pipeline_schedule",
    "recomputation_mode",
    "weight_update_poplar_options",
)


def checked_choices(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `PipelineChoices` that are arguments, from what users gave by name.

    How long lists have to be is only known with the stages.
    """
    for name in _SWITCHES:
        check_choice(name, given.get(name))
    _refuse_continuous(given.get("continuous_weight_updates"))
    _check_sharding(given)
    fields = {name: given[name] for name in _SWITCHES if given.get(name) is not None}
    if fields.get("replicated_optimizer_state_sharding"):
        # Only variables that are offloaded can be sharded, so this settles what was left open.
        fields["offload_weight_update_variables"] = True
    for name, field in _STAGE_OPTIONS.items():
        fields[field] = _stage_options(name, given.get(name))
    fields["weight_update_options"] = _optional(
        "weight_update_poplar_options", given, PipelineStageOptions, None
    )
    return {**fields, **_order(given)}


def warn_of_idle(options: PipelineChoices) -> None:
    """Warns of those of Poplar's options that have no model."""
    update = options.weight_update_options or PipelineStageOptions()
    stages = (*options.forward_options, *options.backward_options, update)
    given = {
        name
        for stage in stages
        for flags in (stage.convolution_options, stage.matmul_options)
        for name in flags or ()
    }
    OPTION_WARNINGS.warn(
        "PipelineStageOptions",
        idle_poplar_options(given),
        lambda names: (
            f"Poplar's {names} has no effect on a stage here: of its options, "
            f"{' and '.join(MODELLED_POPLAR_OPTIONS)} have a model."
        ),
        stacklevel=4,
    )


def _refuse_continuous(continuous: Any) -> None:
    check_choice("continuous_weight_updates", continuous)
    if continuous:
        raise noted(
            NotImplementedError("Continuous weight updates are currently not supported."),
            "A pipeline applies the gradients that it has accumulated. Leave the argument out.",
        )


def _check_sharding(given: Mapping[str, Any]) -> None:
    offload = given.get("offload_weight_update_variables")
    if given.get("replicated_optimizer_state_sharding") and offload is not None and not offload:
        raise noted(
            ValueError(
                "To use replicated_optimizer_state_sharding, optimizer state must be offloaded "
                "by using `offload_weight_update_variables=True`."
            ),
            f"Received: offload_weight_update_variables={offload}",
        )


def _stage_options(name: str, value: Any) -> tuple[PipelineStageOptions, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(
        isinstance(options, PipelineStageOptions) for options in value
    ):
        raise TypeError(
            f"`{name}` must be a list of PipelineStageOptions, one for each stage. "
            f"Received: {name}={value!r}"
        )
    return tuple(value)


def _order(given: Mapping[str, Any]) -> dict[str, Any]:
    schedule = _optional("pipeline_schedule", given, PipelineSchedule, PipelineSchedule.Grouped)
    mode = _optional("recomputation_mode", given, RecomputationMode, RecomputationMode.Auto)
    recomputation_mode(schedule, mode)
    return {"schedule": schedule, "recomputation_mode": mode}


def _optional(name: str, given: Mapping[str, Any], kind: type, default: Any) -> Any:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise TypeError(f"`{name}` must be a {kind.__name__}. Received: {name}={value!r}")
    return value
