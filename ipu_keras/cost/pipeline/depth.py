"""Knows how many micro-batches the schedule of a pipeline takes at a time.

Whoever only trains asks for this alone, and need not wait for schedules to be imported.
"""

from collections.abc import Sequence

from ipu_keras.settings.arguments import noted
from ipu_keras.settings.pipeline_choices import PipelineSchedule


def overlap(schedule: PipelineSchedule, device_mapping: Sequence[int], *, training: bool) -> int:
    """Returns what the number of micro-batches must be a multiple of.

    - `Grouped`: the number of stages, backward ones included.
    - `Interleaved`: how many rotations of the list of the stages' IPUs, backward ones included,
      have no IPU at the same place. It cannot train several stages of one IPU.
    - `Sequential`: 1.

    Example:

    >>> overlap(PipelineSchedule.Grouped, [0, 1, 2], training=True)
    6
    >>> overlap(PipelineSchedule.Interleaved, [0, 1, 2], training=True)
    3
    """
    if schedule is PipelineSchedule.Sequential:
        return 1
    if schedule is PipelineSchedule.Grouped:
        return len(device_mapping) * (2 if training else 1)
    return len(rotations(devices_of_parts(device_mapping, training=training)))


def depth_message(step: int, num_micro_batches: int) -> str:
    """Says that a number of micro-batches does not suit a schedule with such an `overlap`."""
    return (
        f"The number of iterations of the pipeline must be a multiple of {step}, but it is "
        f"{num_micro_batches}. This number might be called `gradient_accumulation_count` or "
        "`gradient_accumulation_steps_per_replica` in training, and `steps_per_execution` in "
        f"evaluation and prediction: give it {step}, {2 * step}, {3 * step} or so."
    )


def devices_of_parts(device_mapping: Sequence[int], *, training: bool) -> list[int]:
    """Returns the IPU of each part in the order in which a batch passes an interleaved schedule."""
    if not training:
        return list(device_mapping)
    if len(set(device_mapping)) < len(device_mapping):
        raise noted(
            NotImplementedError(
                "The pipelining schedule 'Interleaved' does not currently support multiple "
                "pipeline stages on the same device for training graphs. Please use a "
                "different pipeline schedule."
            ),
            "Give each stage an IPU of its own, or use `PipelineSchedule.Grouped`. Received: "
            f"device_mapping={list(device_mapping)}",
        )
    return [*device_mapping, *reversed(device_mapping)]


def rotations(devices: Sequence[int]) -> tuple[int, ...]:
    """Returns rotations of a list of which no two have the same entry at the same place."""
    # A rotation by r places is what the IPUs do for a micro-batch that begins r steps later.
    found: list[int] = []
    for shift in range(len(devices)):
        if all(_differ(devices, shift - other) for other in found):
            found.append(shift)
    return tuple(found)


def _differ(devices: Sequence[int], shift: int) -> bool:
    return all(device != devices[k - shift] for k, device in enumerate(devices))
