"""A step's layers in balanced stages, as modelled."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.table import Table

from ipu_keras.compiler.modelling import ModelOptions
from ipu_keras.compiler.pipeline_schedule import PipelinePlan, overlap
from ipu_keras.compiler.stage_balance import LayerCost, Split, balance, layer_costs, split_at
from ipu_keras.ir import Graph
from ipu_keras.pipeline_choices import PipelineSchedule
from ipu_keras.target import Target


@dataclass(frozen=True, kw_only=True)
class BalancedPipeline:
    """Stages before and after they were balanced.

    Args:
        layers: What each layer costs.
        before: The split into as many layers in each stage.
        after: The split whose slowest stage takes the least.
    """

    layers: tuple[LayerCost, ...]
    before: Split
    after: Split

    def table(self, title: str) -> Table:
        """A line for each stage, before and after.

        Args:
            title: Above it.
        """
        table = Table(title=title, title_justify="left", show_footer=True)
        table.add_column("stage", justify="right", footer="slowest")
        for name, split in (("even", self.before), ("balanced", self.after)):
            verdict = "fits" if split.fits else "does not fit"
            table.add_column(f"{name}: layers", justify="right")
            table.add_column("cycles", footer=f"{split.slowest:,}", justify="right")
            table.add_column("MiB", footer=verdict, justify="right")
        for stage in range(len(self.after.ends)):
            cells = [*_cells(self.before, stage), *_cells(self.after, stage)]
            table.add_row(str(stage), *cells)
        return table


def _cells(split: Split, stage: int) -> list[str]:
    starts = (0, *split.ends)
    size = split.ends[stage] - starts[stage]
    return [str(size), f"{split.cycles[stage]:,}", f"{split.num_bytes[stage] / 2**20:,.1f}"]


def balanced_pipeline(
    graph: Graph,
    num_layers: int,
    num_stages: int,
    *,
    target: Target,
    schedule: PipelineSchedule,
    training: bool,
    options: ModelOptions,
    together: Collection[tuple[int, int]] = (),
    state_share: float = 0.0,
) -> BalancedPipeline:
    """Models the layers of a step and balances stages of them.

    Args:
        graph: The step, traced with layer k in the scope of stage k.
        num_layers: How many there are.
        num_stages: How many stages, each on an IPU of its own.
        target: The hardware.
        schedule: In which order stages run, which says what they have to keep.
        training: Whether the step has a gradient.
        options: Without a pipeline.
        together: First and last layer of runs that may not be cut, as they share variables.
        state_share: Bytes of the optimizer's state for each byte of gradients that the
            step does not show.

    Raises:
        ValueError: There are fewer layers than stages.
    """
    layers = layer_costs(graph, num_layers, target, options, state_share=state_share)
    stashes = _stashes(num_stages, schedule, training=training)
    even = [len(layers) * (stage + 1) // num_stages for stage in range(num_stages)]
    after = balance(layers, stashes, target, together=together)
    return BalancedPipeline(
        layers=layers, before=split_at(layers, even, stashes, target), after=after
    )


def _stashes(num_stages: int, schedule: PipelineSchedule, *, training: bool) -> Sequence[int]:
    ipus = tuple(range(num_stages))
    # So many micro-batches that all stages come to keep what they ever do.
    count = 2 * num_stages * overlap(schedule, ipus, training=training)
    return PipelinePlan(
        device_mapping=ipus, num_micro_batches=count, schedule=schedule, training=training
    ).stash_counts
