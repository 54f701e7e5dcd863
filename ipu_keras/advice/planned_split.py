"""Models what a split of layers into stages costs as a whole, as a report of it would say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.pipeline.schedule import overlap
from ipu_keras.ir import Graph
from ipu_keras.machine.target import Target
from ipu_keras.program import Pipeline
from ipu_keras.settings.pipeline_choices import PipelineSchedule


@dataclass(frozen=True)
class PlannedSplit:
    """Layers in stages that follow each other, modelled as the pipeline that they make.

    Args:
        ends: The number of layers up to the end of each stage.
        cycles: Tile cycles of each stage for one micro-batch, without copies to other IPUs.
        tile_bytes: Bytes on the fullest tile of each stage's IPU, and `capacity` those it has.
    """

    ends: tuple[int, ...]
    cycles: tuple[int, ...]
    tile_bytes: tuple[int, ...]
    capacity: int

    @property
    def slowest(self) -> int:
        """Tile cycles of the slowest stage."""
        return max(self.cycles)

    @property
    def fits(self) -> bool:
        return max(self.tile_bytes) <= self.capacity

    @property
    def stages(self) -> tuple[int, ...]:
        """The stage of each layer."""
        starts = (0, *self.ends)
        return tuple(k for k, end in enumerate(self.ends) for _ in range(end - starts[k]))


def num_micro_batches(num_stages: int, schedule: PipelineSchedule, *, training: bool) -> int:
    """Returns so many micro-batches that all stages come to keep what they ever do."""
    return 2 * num_stages * overlap(schedule, range(num_stages), training=training)


def planned_split(
    graph: Graph,
    ends: Sequence[int],
    *,
    target: Target,
    schedule: PipelineSchedule,
    training: bool,
    options: CostOptions,
) -> PlannedSplit:
    """Models the pipeline that a split makes, with layer k of the trace in the scope of stage k."""
    count = num_micro_batches(len(ends), schedule, training=training)
    pipeline = Pipeline(device_mapping=tuple(range(len(ends))), schedule=schedule)
    chosen = replace(
        options,
        pipeline=pipeline,
        gradient_accumulation_count=count if training else 1,
        steps_per_execution=count,
    )
    model = model_graph("", graph_in_stages(graph, ends), target, chosen)
    assert model.pipeline_run is not None, "it has a pipeline"
    return PlannedSplit(
        ends=tuple(ends),
        cycles=model.pipeline_run.stage_cycles,
        # A pipeline of three stages has four IPUs, of which the last one holds nothing.
        tile_bytes=tuple(int(peak) for peak in model.memory.max_bytes_by_ipu[: len(ends)]),
        capacity=target.tile_bytes,
    )


def graph_in_stages(graph: Graph, ends: Sequence[int]) -> Graph:
    """Returns a graph of layers, each in the scope of a stage, with those of a split instead."""
    starts = (0, *ends)
    return _in_stages(
        graph, {layer: k for k, end in enumerate(ends) for layer in range(starts[k], end)}
    )


def _in_stages(graph: Graph, stages: Mapping[int, int]) -> Graph:
    """Returns a graph whose layers were stages, with the stage of each layer."""
    return replace(
        graph,
        ops=tuple(
            one if one.stage is None else replace(one, stage=stages[one.stage]) for one in graph.ops
        ),
        functions={name: _in_stages(each, stages) for name, each in graph.functions.items()},
    )
