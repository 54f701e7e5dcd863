"""The options of a pipelined model as one frozen value, and their checks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.keras.extensions.accumulation_options import (
    accumulation_steps,
    refuse_unknown,
)
from ipu_keras.optimizers.accumulator_options import DTypeChoice, check_choice, dtype_choice
from ipu_keras.optimizers.pipeline_arguments import CHOICES, checked_choices, warn_of_idle
from ipu_keras.program import PipelineChoices
from ipu_keras.settings.arguments import name_or_none, noted
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod

# Arguments of `pipelining_ops.pipeline` that are other arguments of `set_pipelining_options`.
_OTHER_ARGUMENTS = {
    "gradient_accumulation_count": "gradient_accumulation_steps_per_replica",
    "device_mapping": "device_mapping",
    "accumulate_outfeed": "accumulate_outfeed",
    "reduction_method": "gradient_accumulation_reduction_method",
}
# Filled in from the model and its data, which leaves no place for a value of the user's.
_BY_KERAS = (
    "computational_stages",
    "repeat_count",
    "inputs",
    "infeed_queue",
    "outfeed_queue",
    "optimizer_function",
)
_NOT_WITH_KERAS = ("outfeed_loss", "outfeed_mask", "batch_serialization_iterations")

_DTYPES = ("gradient_accumulation_dtype", "accumulate_outfeed_dtype")
_KNOWN = (*CHOICES, *_DTYPES, "name")


@dataclass(frozen=True, kw_only=True)
class PipeliningOptions(PipelineChoices):
    """The arguments of `set_pipelining_options`, without effect on models without stages.

    Args:
        steps_per_replica: Steps per weight update; training does not begin without it.
        device_mapping: The IPU of each stage; `None` for one after the other.
        accumulate_outfeed: Whether metrics reach the host once for all accumulated steps.
    """

    steps_per_replica: int | None = None
    reduction: GradientAccumulationReductionMethod = GradientAccumulationReductionMethod.SUM
    device_mapping: tuple[int, ...] | None = None
    accumulate_outfeed: bool = False
    accumulate_outfeed_dtype: DTypeChoice = None
    gradient_accumulation_dtype: DTypeChoice = None
    name: str | None = None


def pipelining_options(
    steps_per_replica: Any,
    device_mapping: Any,
    accumulate_outfeed: Any,
    reduction: Any,
    kwargs: Mapping[str, Any],
) -> PipeliningOptions:
    """Checks the arguments of `set_pipelining_options` and returns them as one value.

    How long lists have to be is only known with the stages. `kwargs` are those that go on to
    `pipelining_ops.pipeline`.
    """
    steps_per_replica = accumulation_steps(steps_per_replica)
    _check_device_mapping(device_mapping)
    check_choice("accumulate_outfeed", accumulate_outfeed)
    method = GradientAccumulationReductionMethod.parse(
        "gradient_accumulation_reduction_method", reduction
    )
    options = PipeliningOptions(
        steps_per_replica=steps_per_replica,
        reduction=method,
        device_mapping=None if device_mapping is None else tuple(device_mapping),
        accumulate_outfeed=bool(accumulate_outfeed),
        **_checked_kwargs(kwargs),
    )
    warn_of_idle(options)
    return options


def _check_device_mapping(device_mapping: Any) -> None:
    if device_mapping is None:
        return
    integers = isinstance(device_mapping, list) and all(
        isinstance(ipu, int) and not isinstance(ipu, bool) and ipu >= 0 for ipu in device_mapping
    )
    if not integers:
        raise noted(
            ValueError("Expected `device_mapping` to be a list of integers."),
            f"Each is the IPU of a stage, from 0. Received: device_mapping={device_mapping!r}",
        )


def _checked_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the forwarded arguments as fields of the options, only those that are given."""
    _check_keys(kwargs)
    name = name_or_none("name", kwargs.get("name"))
    dtypes = {name: dtype_choice(name, kwargs.get(name)) for name in _DTYPES}
    return {**checked_choices(kwargs), **dtypes, "name": name}


def _check_keys(kwargs: Mapping[str, Any]) -> None:
    for key, argument in _OTHER_ARGUMENTS.items():
        if key in kwargs:
            raise ValueError(
                f"Found `{key}` key in `pipelining_kwargs`. Set the `{argument}` argument to "
                "`set_pipelining_options` instead."
            )
    refused = dict.fromkeys(_BY_KERAS, "is automatically set by Keras")
    refused.update(dict.fromkeys(_NOT_WITH_KERAS, "is not compatible with Keras"))
    for key, why in refused.items():
        if key in kwargs:
            raise ValueError(f"Found `{key}` key in `pipelining_kwargs`. This argument {why}.")
    refuse_unknown("pipeline()", kwargs, _KNOWN)
