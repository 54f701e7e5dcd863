"""Answers what the passes ask about a pipeline, in the words of its options."""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, FlatProgram
from ipu_keras.cost.pipeline.placement import work_of_part
from ipu_keras.cost.pipeline.schedule import (
    Activity,
    Part,
    PipelinePlan,
    Step,
    check_schedule,
    parts_in_order,
    schedule_pipeline,
)
from ipu_keras.cost.pipeline.shards import COPY_FAMILY
from ipu_keras.cost.pipeline.step_parts import position_of
from ipu_keras.cost.pipeline.timing import PipelineTiming, time_pipeline
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.program import Pipeline


@dataclass(frozen=True, kw_only=True)
class PipelineRun:
    """A pipeline between two weight updates or, in inference, in an execution.

    `part_cycles` are tile cycles of one run of each part that takes any.
    """

    plan: PipelinePlan
    part_cycles: Mapping[Part, int] = field(default_factory=dict)
    cycles: int = 0

    def steps(self) -> tuple[Step, ...]:
        return schedule_pipeline(self.plan)

    def timing(self) -> PipelineTiming:
        return time_pipeline(self.steps(), self.part_cycles)

    @property
    def stage_cycles(self) -> tuple[int, ...]:
        """Tile cycles for each stage to work on one micro-batch, copies not included."""
        totals: Counter[int] = Counter()
        for part, cycles in self.part_cycles.items():
            if part.stage is not None and part.work is not Activity.COPY:
                totals[part.stage] += cycles
        return tuple(totals[stage] for stage in range(self.plan.num_stages))

    @property
    def slowest_stage(self) -> int:
        """The stage that takes the most cycles for a micro-batch."""
        cycles = self.stage_cycles
        return cycles.index(max(cycles))


def plan_of(program: FlatProgram, pipeline: Pipeline, num_micro_batches: int) -> PipelinePlan:
    """Returns how a program's stages are to be ordered."""
    sets = program.compute_sets
    stages = {one.stage for one in sets if one.recomputed}
    return PipelinePlan(
        device_mapping=pipeline.device_mapping,
        num_micro_batches=num_micro_batches,
        schedule=pipeline.schedule,
        training=is_training(program),
        recomputed=tuple(sorted(stage for stage in stages if stage is not None)),
    )


def is_training(program: FlatProgram) -> bool:
    """Whether a program has a gradient or a weight update, once its parts are known."""
    return any(
        one.weight_update or (one.backward and one.stage is not None)
        for one in program.compute_sets
    )


def run_of(program: FlatProgram, costs: Sequence[Cost], plan: PipelinePlan) -> PipelineRun:
    """Puts the costs of compute sets, of one run each, together to those of a pipeline's parts."""
    copies = _copies(program, plan)
    plan = replace(plan, copies=copies)
    steps, scheduled = _scheduled(plan)
    cycles: Counter[Part] = Counter()
    for one, cost in zip(program.compute_sets, costs, strict=True):
        part = work_of_part(one, _source(one, program))
        if part not in scheduled:
            # What skips stages in one direction only waits within a part.
            work = Activity.BACKWARD if one.backward else Activity.FORWARD
            part = Part(work, one.ipu, one.stage, one.backward)
        cycles[part] += cost.cycles * one.repeat
    part_cycles = dict(cycles)
    return PipelineRun(
        plan=plan, part_cycles=part_cycles, cycles=time_pipeline(steps, part_cycles).cycles
    )


# Searches for balanced pipelines model one split after the other, most of them with the same
# copies. A schedule has a part for each stage and micro-batch, so few are kept.
@functools.lru_cache(maxsize=2)
def _scheduled(plan: PipelinePlan) -> tuple[tuple[Step, ...], frozenset[Part]]:
    """Returns the steps of a pipeline, and the parts that they run."""
    steps = schedule_pipeline(plan)
    check_schedule(plan, steps)
    return steps, frozenset(one.part for step in steps for one in step.instructions)


def _source(one: ComputeSet, program: FlatProgram) -> int:
    return program.values[one.reads[0]].ipu if one.reads else one.ipu


def _copies(program: FlatProgram, plan: PipelinePlan) -> dict[int, tuple[int, ...]]:
    """Returns, by position of a part, the IPUs that get something from it."""
    found: dict[int, tuple[int, ...]] = {}
    for one in program.compute_sets:
        if one.family == COPY_FAMILY and not one.weight_update:
            position = position_of(one, plan.num_stages)
            found[position] = (*found.get(position, ()), one.ipu)
    positions = range(len(parts_in_order(plan.num_stages, training=plan.training)))
    return {position: found[position] for position in positions if position in found}
