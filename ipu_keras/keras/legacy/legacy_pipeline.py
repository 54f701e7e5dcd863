"""The common base of `PipelineModel` and `PipelineSequential`, and checks of their arguments."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ipu_keras.keras.extensions.pipelining_options import PipeliningOptions, pipelining_options
from ipu_keras.keras.legacy.legacy_model import LegacyModel, checked_count
from ipu_keras.keras.legacy.legacy_on_ipu import LegacyOnIpu
from ipu_keras.ops.argument_checks import positive_integer
from ipu_keras.settings.arguments import noted
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_keras.settings.pipeline_choices import PipelineSchedule


class LegacyPipeline(LegacyModel):
    """A legacy model in stages, each step of which is one execution of the pipeline.

    So evaluation and prediction take as many batches in a step as training does.
    """

    _ipu = functools.cached_property(lambda model: PipelineOnIpu(model, LegacyModel))


class PipelineOnIpu(LegacyOnIpu):
    """The `ModelOnIpu` of a legacy model in stages."""

    def batches_per_step(self, name: str) -> int:
        """Returns the batches that go through the pipeline in a step, whatever the mode."""
        return self.options.pipelining.steps_per_replica or 1


def pipeline_options(
    count: Any, device_mapping: Any, batch_serialization_iterations: Any, kwargs: Mapping[str, Any]
) -> PipeliningOptions:
    """Checks the arguments of a pipelined model's constructor and returns them as options.

    Gradients are added, for the reasons that `legacy_model.accumulation` has. `count` is batches
    per weight update, and `kwargs` are the arguments that go on to `pipelining_ops.pipeline`.
    """
    if count is None:
        raise noted(
            ValueError("gradient_accumulation_count must be specified."),
            "It is how many batches go through the pipeline for a weight update: pass it to "
            "the constructor.",
        )
    count = checked_count(count)
    if device_mapping is not None and not isinstance(device_mapping, list | tuple):
        raise noted(
            TypeError("device_mapping argument needs to be a list or a tuple."),
            f"Received: device_mapping={device_mapping!r}",
        )
    _check_serialization(batch_serialization_iterations, kwargs.get("pipeline_schedule"))
    return pipelining_options(
        count,
        None if device_mapping is None else list(device_mapping),
        kwargs.get("accumulate_outfeed"),
        GradientAccumulationReductionMethod.SUM,
        {name: value for name, value in kwargs.items() if name != "accumulate_outfeed"},
    )


def check_num_stages(num_stages: int, device_mapping: Sequence[int] | None) -> None:
    """Refuses fewer than two stages, and a mapping of another length."""
    if num_stages < 2:
        raise noted(
            ValueError("Pipeline requires at least two computational stages."),
            f"Use `Model` or `Sequential` for a single one. Received: {num_stages}",
        )
    if device_mapping is not None and len(device_mapping) != num_stages:
        raise noted(
            ValueError(
                f"Each stage must be mapped to an IPU: {len(device_mapping)} mappings != "
                f"{num_stages} stages"
            ),
            "Give `device_mapping` one IPU for each stage. Received: "
            f"device_mapping={list(device_mapping)}",
        )


def _check_serialization(iterations: Any, schedule: Any) -> None:
    iterations = positive_integer("batch_serialization_iterations", iterations)
    if iterations == 1:
        return
    if schedule is not PipelineSchedule.Sequential:
        raise noted(
            NotImplementedError(
                "Batch serialization is only supported with the `Sequential` schedule."
            ),
            "Pass `pipeline_schedule=PipelineSchedule.Sequential`, or leave "
            f"`batch_serialization_iterations` out. Received: {iterations} with {schedule}",
        )
    raise NotImplementedError(
        "`batch_serialization_iterations` above 1, which is experimental on hardware, is not "
        "implemented here: programs have no loop in a stage over parts of a batch. Use a smaller "
        f"batch and a larger `gradient_accumulation_count`. Received: {iterations}"
    )
