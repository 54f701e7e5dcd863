"""A program's pipeline in figures: its stages, its phases and how long IPUs wait."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ipu_keras.cost.pipeline.pipeline_run import PipelineRun
from ipu_keras.cost.pipeline.schedule import Activity
from ipu_keras.cost.pipeline.timing import PipelineTiming
from ipu_keras.report.text import PlainTable


@dataclass(frozen=True, kw_only=True)
class StageView:
    """One stage of a pipeline; cycles are those of one micro-batch.

    Args:
        stage: The number of the stage, from 0.
        ipu: The IPU that the stage is on.
        forward_cycles: Tile cycles of its forward part.
        backward_cycles: Tile cycles of its backward part.
        recompute_cycles: Tile cycles of activations that are computed again.
        stash_cycles: Tile cycles in which activations are put into the stash and taken back.
        copy_cycles: Tile cycles of copies to other IPUs, during which all IPUs wait.
        num_stashed: The most micro-batches that are between its forward and its backward part.
    """

    stage: int
    ipu: int
    forward_cycles: int
    backward_cycles: int
    recompute_cycles: int
    stash_cycles: int
    copy_cycles: int
    num_stashed: int

    @property
    def cycles(self) -> int:
        """Tile cycles of its IPU for one micro-batch, without copies to other IPUs."""
        return (
            self.forward_cycles + self.backward_cycles + self.recompute_cycles + self.stash_cycles
        )


@dataclass(frozen=True, kw_only=True)
class PipelineView:
    """A pipeline between two weight updates or, in inference, in one execution.

    Args:
        schedule: The order in which stages run: `"Grouped"`, `"Interleaved"` or `"Sequential"`.
        num_micro_batches: Micro-batches that pass through the pipeline.
        cycles: Tile cycles from the beginning to the end.
        cycles_by_phase: Tile cycles of the phases `"fill"`, `"steady"`, `"drain"` and `"weight
            update"`, where there are any.
        utilisation: Share of the time of all IPUs with a stage in which they do not wait.
        bubble_share: Share of that time in which they wait for each other.
        slowest_stage: The stage with the most cycles for a micro-batch.
        stages: The stages in order of their numbers.
    """

    schedule: str
    num_micro_batches: int
    cycles: int
    cycles_by_phase: Mapping[str, int]
    utilisation: float
    bubble_share: float
    slowest_stage: int
    stages: tuple[StageView, ...]

    def __str__(self) -> str:
        slowest = self.stages[self.slowest_stage]
        return (
            f"{self.schedule} pipeline of {len(self.stages)} stages, "
            f"{self.num_micro_batches:,} micro-batches in {self.cycles:,} cycles: its IPUs are "
            f"busy {self.utilisation:.1%} of the time and wait for {self.bubble_share:.1%}; stage "
            f"{slowest.stage} on IPU {slowest.ipu} is the slowest, with {slowest.cycles:,} cycles "
            "for a micro-batch"
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the pipeline as plain values, in a fixed order."""
        stages = [{**asdict(stage), "cycles": stage.cycles} for stage in self.stages]
        return {**asdict(self), "stages": stages}


def pipeline_view(run: PipelineRun, timing: PipelineTiming) -> PipelineView:
    """Returns the figures of a pipeline whose schedule has been put in time."""
    return PipelineView(
        schedule=run.plan.schedule.name,
        num_micro_batches=run.plan.num_micro_batches,
        cycles=run.cycles,
        cycles_by_phase={phase.value: size for phase, size in timing.cycles_by_phase.items()},
        utilisation=timing.utilisation,
        bubble_share=timing.bubble_share,
        slowest_stage=run.slowest_stage,
        stages=tuple(_stage(run, stage) for stage in range(run.plan.num_stages)),
    )


def _stage(run: PipelineRun, stage: int) -> StageView:
    def cycles(*works: Activity) -> int:
        parts = run.part_cycles.items()
        return sum(size for part, size in parts if part.stage == stage and part.work in works)

    return StageView(
        stage=stage,
        ipu=run.plan.device_mapping[stage],
        forward_cycles=cycles(Activity.FORWARD),
        backward_cycles=cycles(Activity.BACKWARD),
        recompute_cycles=cycles(Activity.RECOMPUTE),
        stash_cycles=cycles(Activity.STASH, Activity.UNSTASH),
        copy_cycles=cycles(Activity.COPY),
        num_stashed=run.plan.stash_counts[stage],
    )


def stage_table(stages: Sequence[StageView]) -> PlainTable:
    """Makes a table with a line for each stage."""
    cycles = ("cycles", "forward", "backward", "recompute", "stash", "copies")
    return PlainTable(
        title="Stages, cycles for a micro-batch",
        columns=("stage", "IPU", *cycles, "batches kept"),
        rows=tuple(
            (
                str(one.stage),
                str(one.ipu),
                f"{one.cycles:,}",
                f"{one.forward_cycles:,}",
                f"{one.backward_cycles:,}",
                f"{one.recompute_cycles:,}",
                f"{one.stash_cycles:,}",
                f"{one.copy_cycles:,}",
                f"{one.num_stashed:,}",
            )
            for one in stages
        ),
    )
