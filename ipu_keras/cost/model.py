"""Holds what a step would cost on an IPU, as far as the passes know it."""

from dataclasses import dataclass, field

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.flat.compute_sets import FlatProgram
from ipu_keras.cost.flat.memory import MemoryPlan, Region
from ipu_keras.cost.pipeline.pipeline_run import PipelineRun, is_training
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.tile.exchange import host_seconds
from ipu_keras.ir import Graph
from ipu_keras.machine.target import Target

_SEED_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class ModelledProgram:
    """A program on its way through the passes of the cost model.

    Args:
        graph: One step of it, as HLO, in the precision of the options.
        host_cycles: Tile cycles of one step in which data moves between host and IPU, and no
            tile computes.
        hidden_host_cycles: Tile cycles in which it moves while tiles compute.
        io_tile_bytes: Bytes that tiles for input and output have to hold, if these are to be
            there.
        kept: The program without recomputation, until it is known which needs less memory.
    """

    name: str
    graph: Graph
    target: Target
    options: CostOptions
    program: FlatProgram = field(default_factory=FlatProgram)
    costs: tuple[Cost, ...] = ()
    regions: dict[str, Region] = field(default_factory=dict)
    memory: MemoryPlan = field(default_factory=MemoryPlan)
    host_cycles: int = 0
    hidden_host_cycles: int = 0
    io_tile_bytes: int = 0
    pipeline_run: PipelineRun | None = None
    kept: FlatProgram | None = None

    @property
    def num_micro_batches(self) -> int:
        """Steps that pass through the pipeline between two weight updates, or in an execution."""
        count = self.options.gradient_accumulation_count
        if count > 1 or is_training(self.program):
            return count
        return self.options.steps_per_execution

    @property
    def io_tile_capacity(self) -> int:
        """Bytes of data that tiles for input and output may hold."""
        options = self.options
        proportion = options.io_tile_available_memory_proportion
        return int(options.num_io_tiles * self.target.tile_bytes * proportion)

    @property
    def seed_cycles(self) -> float:
        """Cycles in which the seed of random numbers is copied, once an execution."""
        if not self.options.copies_seed:
            return 0.0
        return host_seconds(self.target, _SEED_BYTES, num_ipus=1) * self.target.clock_hz

    @property
    def compute_cycles(self) -> int:
        """Tile cycles of one step, a batch on each replica, without copies between host and IPU."""
        # When a weight update follows several steps, each has an equal share of it; in a
        # pipeline, also of the time in which it fills and drains.
        if self.pipeline_run is not None:
            return -(-self.pipeline_run.cycles // self.pipeline_run.plan.num_micro_batches)
        count = self.options.gradient_accumulation_count
        pairs = zip(self.program.compute_sets, self.costs, strict=True)
        return sum(cost.in_step(one, count).cycles for one, cost in pairs)

    @property
    def cycles_per_step(self) -> int:
        """Tile cycles of one step, copies between host and IPU included."""
        return self.compute_cycles + self.host_cycles
