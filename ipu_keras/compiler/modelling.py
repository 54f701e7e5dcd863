"""What a step would cost on an IPU: the passes, and the value that they hand on.

`MODEL_PASSES` is the table of contents. Each pass is a pure function from a
frozen `Model` to the next one.
"""

import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ipu_keras.compiler.accumulation import accumulate, reduce_over_replicas
from ipu_keras.compiler.batched_lookups import with_batched_lookups
from ipu_keras.compiler.code_sharing import with_own_code
from ipu_keras.compiler.compute_sets import ComputeSet, FlatProgram, deduplicate, flatten, fuse
from ipu_keras.compiler.cost import Cost
from ipu_keras.compiler.costs import CostTable
from ipu_keras.compiler.divisions import with_products_for_divisions
from ipu_keras.compiler.exchange import host_seconds
from ipu_keras.compiler.finer_stages import cut_stages
from ipu_keras.compiler.host_tables import keep_tables_on_host
from ipu_keras.compiler.in_place import share_memory
from ipu_keras.compiler.io_tiles import StepCopies
from ipu_keras.compiler.joint_normalizations import with_normalized_bodies
from ipu_keras.compiler.liveness import schedule
from ipu_keras.compiler.memory import (
    MemoryPlan,
    Overhead,
    Region,
    gap_after,
    joined,
    map_linearly,
    plan_memory,
)
from ipu_keras.compiler.normalizations import fuse_normalizations
from ipu_keras.compiler.offloading import offload
from ipu_keras.compiler.pipeline_model import (
    PipelineRun,
    is_training,
    plan_of,
    run_of,
)
from ipu_keras.compiler.pipeline_placement import place_stages
from ipu_keras.compiler.pipeline_recomputation import recompute_stages
from ipu_keras.compiler.planning import Options, Planning, planning_of
from ipu_keras.compiler.poplar_bodies import with_bodies_in_order
from ipu_keras.compiler.powers import with_products_for_powers
from ipu_keras.compiler.precision import PRECISIONS, with_precision
from ipu_keras.compiler.recomputation import recompute
from ipu_keras.compiler.relu_gradients import with_relu_gradients
from ipu_keras.compiler.stages import shard
from ipu_keras.compiler.step_parts import attribute_parts, sorted_by_part, without_parts
from ipu_keras.ir import Graph
from ipu_keras.pipeline_choices import RecomputationMode, SelectionOrder, recomputation_mode
from ipu_keras.program import Pipeline
from ipu_keras.target import Target

# Bytes of code that have no published size: rough figures from the shares that
# Poplar's reports of large models give to each category.
_VERTEX_CODE_BYTES = 512  # of a type of vertex
_VERTEX_STATE_BYTES = 24  # of a vertex
_CONTROL_CODE_BYTES = 24  # of a compute set
_EXCHANGE_CODE_BYTES = 48  # of an exchange


def is_positive_integer(value: Any) -> bool:
    """Whether a value is a count: an integer above 0, of Python or of NumPy.

    Args:
        value: What a user gave.
    """
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_integer and value >= 1


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What can be chosen about a program besides its content.

    Args:
        available_memory_proportion: Of a tile's memory, what the temporaries of
            a matrix product or convolution may take. Poplibs' default is 0.6.
        convolution_options: Poplar's options of convolutions: `availableMemoryProportion`, which
            goes before the above, and `partialsType`, `"float"` or `"half"`, the type of the sums
            that a product of float16 numbers adds up. Others have no model: `profile` and its like
            warn of them.
        matmul_options: The same of matrix products.
        outlining: Whether calls of an outlined function share their code.
        steps_per_execution: Steps between two exchanges with the host; a step is one batch
            on each replica, whether the weights are updated after it or not.
        dtype: `"float16"` or `"float32"`, if the step's floating point numbers are to
            count as such, whatever they were traced with; see `precision`.
        recomputation: Whether activations are computed again for the gradient instead
            of kept; see `recomputation`.
        num_ipus: IPUs that share the layers; see `stages`. Systems hand out 1, 2, 4, ...
        gradient_accumulation_count: Steps between two weight updates: what was traced in
            the scope of the weight update runs once for as many steps; see `accumulation`.
        gradient_accumulation_dtype: Of what gradients are added up in; by default, of the
            gradients.
        num_replicas: Copies of the program that run at the same time on IPUs of their own.
        pipeline: How the stages of the trace run, each on its IPU; `None` if it has none. The
            micro-batches that pass through are the steps between two weight updates; in
            inference, without accumulation, those of an execution. `num_ipus` stays 1.
        stage_splits: Stages in place of each of the pipeline, which is cut between its layers,
            on as many IPUs in place of one; see `finer_stages`.
        minimum_remote_tensor_size: Bytes from which on the pipeline's variables may be
            in remote memory, or shared among replicas.
        num_io_tiles: Tiles of each IPU for input and output, besides those of the target.
        place_ops_on_io_tiles: Whether input and output are there, so that they pass while the
            other tiles compute; see `io_tiles`.
        io_tile_available_memory_proportion: Of their memory, what data may fill. More data than
            that stays on the other tiles.
        selection_order: Which IPU of a replica gets which shard or stage: copies between
            neighbours go over one link.

    Raises:
        ValueError: A number is out of its range or no number, or there is no such choice.
        TypeError: Poplar's options are no dictionary.
    """

    available_memory_proportion: float = 0.6
    convolution_options: Options = None
    matmul_options: Options = None
    outlining: bool = True
    steps_per_execution: int = 1
    dtype: str | None = None
    recomputation: bool = False
    num_ipus: int = 1
    gradient_accumulation_count: int = 1
    gradient_accumulation_dtype: str | None = None
    num_replicas: int = 1
    pipeline: Pipeline | None = None
    stage_splits: int = 1
    # What is smaller lies on one tile, and would cost more to fetch than it takes.
    minimum_remote_tensor_size: int = 128
    num_io_tiles: int = 0
    place_ops_on_io_tiles: bool = False
    io_tile_available_memory_proportion: float = 0.9
    selection_order: SelectionOrder = SelectionOrder.AUTO

    def __post_init__(self) -> None:
        self._check_counts()
        self._check_proportion("available_memory_proportion", "a number above 0 and at most 1")
        self._check_dtype("dtype", "what the model has")
        self._check_dtype("gradient_accumulation_dtype", "that of the gradients")
        for name in ("outlining", "place_ops_on_io_tiles", "recomputation"):
            switch = getattr(self, name)
            if not isinstance(switch, bool):
                raise ValueError(f"`{name}` must be True or False. Received: {name}={switch!r}")
        self._check_io_tiles()
        if not isinstance(self.selection_order, SelectionOrder):
            raise ValueError(
                "`selection_order` must be a SelectionOrder, such as SelectionOrder.SNAKE. "
                f"Received: selection_order={self.selection_order!r}"
            )
        self._check_pipeline()
        self.planning()

    def _check_counts(self) -> None:
        names = (
            "gradient_accumulation_count",
            "num_replicas",
            "stage_splits",
            "steps_per_execution",
        )
        for name in names:
            count = getattr(self, name)
            if not is_positive_integer(count):
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={count!r}")
        if self.steps_per_execution % self.gradient_accumulation_count:
            raise ValueError(
                "`steps_per_execution` must be a multiple of `gradient_accumulation_count`: "
                "executions end with a weight update. Received: "
                f"steps_per_execution={self.steps_per_execution}, "
                f"gradient_accumulation_count={self.gradient_accumulation_count}"
            )
        if not is_positive_integer(self.num_ipus) or self.num_ipus & (self.num_ipus - 1):
            raise ValueError(
                "`num_ipus` must be a power of two: 1, 2, 4 and so on. "
                f"Received: num_ipus={self.num_ipus!r}"
            )
        for name in (*names, "num_ipus"):
            # NumPy's integers cannot be written down.
            object.__setattr__(self, name, int(getattr(self, name)))
        self._check_not_negative("minimum_remote_tensor_size")

    def _check_not_negative(self, name: str) -> None:
        count = getattr(self, name)
        is_integer = isinstance(count, numbers.Integral) and not isinstance(count, bool)
        if not is_integer or count < 0:
            raise ValueError(f"`{name}` must be an integer, 0 or more. Received: {name}={count!r}")
        object.__setattr__(self, name, int(count))

    def _check_io_tiles(self) -> None:
        self._check_not_negative("num_io_tiles")
        self._check_proportion(
            "io_tile_available_memory_proportion", "a number from 0 to 1", may_be_zero=True
        )
        if self.place_ops_on_io_tiles and not self.num_io_tiles:
            raise ValueError(
                "`place_ops_on_io_tiles` needs tiles for input and output: set `num_io_tiles`. "
                f"Received: place_ops_on_io_tiles={self.place_ops_on_io_tiles}, num_io_tiles=0"
            )

    def _check_proportion(self, name: str, expected: str, *, may_be_zero: bool = False) -> None:
        proportion: Any = getattr(self, name)
        is_number = isinstance(proportion, numbers.Real) and not isinstance(proportion, bool)
        if not is_number or not 0 <= proportion <= 1 or not (proportion or may_be_zero):
            raise ValueError(f"`{name}` must be {expected}. Received: {name}={proportion!r}")
        object.__setattr__(self, name, float(proportion))

    def _check_dtype(self, name: str, default: str) -> None:
        dtype = getattr(self, name)
        # TensorFlow's types equal their names, but cannot be written down.
        if dtype is not None and not (isinstance(dtype, str) and dtype in PRECISIONS):
            raise ValueError(
                f"`{name}` must be one of {', '.join(PRECISIONS)}, or None for {default}. "
                f"Received: {name}={dtype!r}"
            )

    def planning(self) -> Callable[[ComputeSet], Planning]:
        """How the convolutions and products of the program are planned."""
        return planning_of(
            self.available_memory_proportion,
            convolution_options=self.convolution_options,
            matmul_options=self.matmul_options,
            pipeline=self.pipeline_as_cut,
        )

    @property
    def pipeline_as_cut(self) -> Pipeline | None:
        """The pipeline with the stages that it is to have, not those of the trace."""
        return None if self.pipeline is None else self.pipeline.cut(self.stage_splits)

    @property
    def ipus_per_replica(self) -> int:
        """IPUs that a copy of the program has."""
        pipeline = self.pipeline_as_cut
        return self.num_ipus if pipeline is None else pipeline.num_ipus

    def ipu_at(self, position: int) -> int:
        """Which IPU of a replica is the one of a number."""
        is_pipelined = self.pipeline is not None
        return self.selection_order.ipu_at(position, self.ipus_per_replica, pipelined=is_pipelined)

    @property
    def has_parts(self) -> bool:
        """Whether it matters what is traced in the scope of a stage or of the weight update."""
        counts = self.gradient_accumulation_count, self.num_replicas
        return self.pipeline is not None or max(counts) > 1

    @property
    def num_stages(self) -> int:
        """Of the pipeline as it was cut; 0 if there is none."""
        pipeline = self.pipeline_as_cut
        return 0 if pipeline is None else pipeline.num_stages

    def _check_pipeline(self) -> None:
        if self.pipeline is None:
            if self.stage_splits != 1:
                raise ValueError(
                    "`stage_splits` cuts the stages of a `pipeline`, and there is none; "
                    "`num_ipus` shares the layers of a step without stages. "
                    f"Received: stage_splits={self.stage_splits}"
                )
            return
        if not isinstance(self.pipeline, Pipeline):
            raise ValueError(
                "`pipeline` must be a Pipeline, or None for a step without stages. "
                f"Received: pipeline={self.pipeline!r}"
            )
        if self.num_ipus != 1:
            raise ValueError(
                "`num_ipus` shares the layers of a step without stages; with a `pipeline`, its "
                f"`device_mapping` says where they are. Received: num_ipus={self.num_ipus}"
            )
        recomputation_mode(self.pipeline.schedule, self.pipeline.recomputation_mode)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A program on its way through the passes of the cost model.

    Args:
        name: What the program is called.
        graph: One step of it, as HLO, in the precision of the options.
        target: The hardware.
        options: What was chosen.
        program: Its compute sets.
        costs: Of each compute set.
        regions: Where each value lies.
        memory: How full the tiles become.
        host_cycles: Tile cycles of one step in which data moves between host and IPU, and no
            tile computes.
        hidden_host_cycles: In which it moves while tiles compute.
        io_tile_bytes: What tiles for input and output have to hold, if input and output are to be
            there, in bytes.
        pipeline_run: Its pipeline in time, if it has one.
        kept: Its program without recomputation, until it is known which needs less memory.
    """

    name: str
    graph: Graph
    target: Target
    options: ModelOptions
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
    def compute_cycles(self) -> int:
        """Tile cycles of one step without copies between host and IPU.

        A step is one batch on each replica. Of a weight update that follows several steps,
        each has an equal share; in a pipeline, also of the time in which it fills and drains.
        """
        if self.pipeline_run is not None:
            return -(-self.pipeline_run.cycles // self.pipeline_run.plan.num_micro_batches)
        count = self.options.gradient_accumulation_count
        pairs = zip(self.program.compute_sets, self.costs, strict=True)
        return sum(cost.in_step(one, count).cycles for one, cost in pairs)

    @property
    def cycles_per_step(self) -> int:
        """Tile cycles of one step, copies between host and IPU included."""
        return self.compute_cycles + self.host_cycles


def choose_precision(model: Model) -> Model:
    """Gives the graph's floating point numbers the type that was chosen."""
    if model.options.dtype is None:
        return model
    return replace(model, graph=with_precision(model.graph, model.options.dtype))


# What XLA writes in other words than Poplar's libraries, or in more.
_REWRITTEN = (
    with_products_for_powers,
    with_products_for_divisions,
    with_relu_gradients,
    with_batched_lookups,
)


def write_out(model: Model) -> Model:
    """Turns the graph into compute sets."""
    graph, options = model.graph, model.options
    for rewritten in _REWRITTEN:
        graph = rewritten(graph)

    def cycles_of(branch: FlatProgram) -> int:
        costs = _costs(model, branch)
        return sum(
            cost.cycles * one.repeat for one, cost in zip(branch.compute_sets, costs, strict=True)
        )

    program = keep_tables_on_host(flatten(graph, work_of_branch=cycles_of))
    if options.pipeline is not None:
        program = attribute_parts(program, options.pipeline.num_stages)
        program = cut_stages(program, options.pipeline.num_stages, options.stage_splits)
    elif options.has_parts:
        program = attribute_parts(program)
    else:
        program = without_parts(program)
    if not _keeps_checkpoints(options):
        program = replace(program, checkpoints=())
    program = deduplicate(with_normalized_bodies(program))
    program = with_bodies_in_order(fuse(fuse_normalizations(program)))
    return replace(model, program=program)


def _keeps_checkpoints(options: ModelOptions) -> bool:
    """Whether activations are computed again, and not all of a stage at once."""
    pipeline = options.pipeline
    if not options.recomputation or pipeline is None:
        return options.recomputation
    mode = recomputation_mode(pipeline.schedule, pipeline.recomputation_mode)
    return mode is RecomputationMode.RecomputeAndBackpropagateInterleaved


def add_up_gradients(model: Model) -> Model:
    """Adds up the gradients of several steps and replicas before the weight update."""
    options = model.options
    program = reduce_over_replicas(model.program, options.num_replicas)
    if options.gradient_accumulation_count > 1:
        program = accumulate(program, dtype=options.gradient_accumulation_dtype)
    return replace(model, program=program)


def order(model: Model) -> Model:
    """Puts the compute sets in the order of execution."""
    program = schedule(model.program)
    return replace(model, program=sorted_by_part(program, model.options.num_stages))


def reuse_memory(model: Model) -> Model:
    """Writes results over operands that nobody needs any more."""
    return replace(model, program=share_memory(model.program))


def drop_activations(model: Model) -> Model:
    """Computes activations again for the gradient if that was chosen."""
    if not model.options.recomputation:
        return model
    pipeline = model.options.pipeline_as_cut
    if pipeline is None:
        program = recompute(model.program)
        kept = None if program is model.program else model.program
        return replace(model, program=program, kept=kept)
    mode = recomputation_mode(pipeline.schedule, pipeline.recomputation_mode)
    program = recompute_stages(model.program, pipeline.num_stages, mode)
    return replace(model, program=program)


def place_on_ipus(model: Model) -> Model:
    """Shares the layers among the IPUs, or puts stages where they belong."""
    pipeline = model.options.pipeline_as_cut
    if pipeline is None:
        return replace(model, program=shard(model.program, model.options.num_ipus))
    plan = plan_of(model.program, pipeline, model.num_micro_batches)
    program = place_stages(model.program, plan)
    program = offload(
        program,
        pipeline,
        model.options.num_replicas,
        minimum_bytes=model.options.minimum_remote_tensor_size,
    )
    return replace(model, program=program)


def estimate_cycles(model: Model) -> Model:
    """Costs every compute set."""
    return replace(model, costs=_costs(model, model.program))


def _costs(model: Model, program: FlatProgram) -> tuple[Cost, ...]:
    options = model.options
    table = CostTable(
        model.target,
        program,
        planning=options.planning(),
        num_ipus=options.ipus_per_replica * options.num_replicas,
        ipu_at=options.ipu_at,
    )
    return tuple(map(table.cost, program.compute_sets))


def run_pipeline(model: Model) -> Model:
    """Puts the parts of a pipeline in time."""
    pipeline = model.options.pipeline_as_cut
    if pipeline is None:
        return model
    plan = plan_of(model.program, pipeline, model.num_micro_batches)
    return replace(model, pipeline_run=run_of(model.program, model.costs, plan))


def estimate_host_copies(model: Model) -> Model:
    """Costs the infeed and the outfeed; a copy begins and ends once per execution.

    The host prepares what a loop takes from an infeed while the loop runs.
    """
    target, options = model.target, model.options
    steps = options.steps_per_execution
    # Replicas of several IPUs have links to the host of their own.
    sharing = options.num_replicas if options.ipus_per_replica == 1 else 1
    sizes = _copied_bytes(model.program)
    seconds = [
        host_seconds(target, num_bytes * steps * sharing, num_ipus=sharing) if num_bytes else 0
        for num_bytes in sizes
    ]
    host_cycles = math.ceil(sum(seconds) * target.clock_hz / steps)
    if not options.place_ops_on_io_tiles:
        return replace(model, host_cycles=host_cycles)
    begun = [target.host_latency_cycles if num_bytes else 0 for num_bytes in sizes]
    cycles = [s * target.clock_hz - b for s, b in zip(seconds, begun, strict=True)]
    copies = StepCopies(steps, *sizes, *(each / steps for each in cycles))
    model = replace(model, host_cycles=host_cycles, io_tile_bytes=copies.held_bytes)
    if model.io_tile_bytes > model.io_tile_capacity:
        return model
    waiting = copies.waiting_cycles(model.compute_cycles)
    between = copies.exchange_cycles(target, options.num_io_tiles)
    return replace(
        model,
        host_cycles=math.ceil((sum(begun) + waiting) / steps) + between,
        hidden_host_cycles=int((copies.cycles - waiting) / steps),
    )


def _copied_bytes(program: FlatProgram) -> tuple[int, int]:
    """To one replica for a step, and from it, in bytes."""
    fed = sum(v.spec.nbytes for v in program.values.values() if v.role == "argument")
    infeeds = [one for one in program.compute_sets if one.ops[-1].kind == "infeed"]
    fed += sum(one.repeat * one.bytes_written for one in infeeds)
    fetched = sum(
        program.values[name].spec.nbytes
        for name in set(program.results) - set(program.updates)
        if program.values[name].role == "activation"
    )
    return fed, fetched


def fill_tiles(model: Model) -> Model:
    """Places values on the tiles of each IPU and adds up what each tile holds."""
    regions: dict[str, Region] = {}
    plans = []
    for ipu in range(model.options.ipus_per_replica):
        values = {name: v for name, v in model.program.values.items() if v.ipu == ipu}
        program = replace(model.program, values=values)
        here = map_linearly(program, model.target)
        plans.append(_planned(model, ipu, program, here))
        regions.update(here)
    return replace(model, regions=regions, memory=joined(plans))


def _planned(
    model: Model, ipu: int, program: FlatProgram, regions: Mapping[str, Region]
) -> MemoryPlan:
    """The memory of one IPU, on which the program's values are."""
    pairs = list(zip(model.program.compute_sets, model.costs, strict=True))
    sets = model.program.compute_sets
    own = with_own_code(sets) if model.options.outlining else {one.name for one in sets}
    return plan_memory(
        program,
        regions,
        model.target,
        temporary_bytes=[cost.temporary_bytes if one.ipu == ipu else 0 for one, cost in pairs],
        message_bytes=[cost.message_bytes if one.ipu == ipu else 0 for one, cost in pairs],
        overhead=_overhead(
            [cost for one, cost in pairs if one.ipu == ipu and one.name in own], model.target
        ),
    )


def _overhead(costs: Sequence[Cost], target: Target) -> Overhead:
    costs = [part for cost in costs for part in _without_parts(cost)]
    num_vertices = sum(cost.num_vertices * cost.tiles for cost in costs)
    vertex_types = {cost.vertex for cost in costs} - {""}
    exchanges = sum(cost.exchange_bytes > 0 for cost in costs)
    overhead = Overhead(
        vertex_code=_VERTEX_CODE_BYTES * len(vertex_types),
        vertex_state=math.ceil(_VERTEX_STATE_BYTES * num_vertices / target.num_tiles),
        control_code=_CONTROL_CODE_BYTES * len(costs),
        exchange_code=_EXCHANGE_CODE_BYTES * exchanges,
        stack=target.stack_bytes,
    )
    return replace(overhead, gaps=gap_after(overhead.code, target))


def _without_parts(cost: Cost) -> Iterator[Cost]:
    """What has code of its own: of an operation of Poplar's libraries, what it consists of."""
    if not cost.parts:
        yield cost
    for part in cost.parts:
        yield from _without_parts(part)


def keep_what_costs_more_to_drop(model: Model) -> Model:
    """Keeps all activations if their repetition needs no less memory on the fullest tile.

    It has code and vertex state of its own, always live, while what is dropped may not be there
    when the tile is fullest.
    """
    if model.kept is None:
        return model
    kept = replace(model, program=model.kept, kept=None)
    for model_pass in PLACING_PASSES:
        kept = model_pass(kept)
    if kept.memory.max_tile_bytes <= model.memory.max_tile_bytes:
        return kept
    return replace(model, kept=None)


# What depends on the graph and its precision alone comes first.
READING_PASSES = (choose_precision, write_out, add_up_gradients, order)
PLACING_PASSES = (
    place_on_ipus,
    reuse_memory,
    estimate_cycles,
    run_pipeline,
    estimate_host_copies,
    fill_tiles,
)
MODEL_PASSES = (
    *READING_PASSES,
    drop_activations,
    *PLACING_PASSES,
    keep_what_costs_more_to_drop,
)


def model_graph(
    name: str, graph: Graph, target: Target, options: ModelOptions | None = None
) -> Model:
    """Runs every pass over a traced step.

    Args:
        name: What the program is called.
        graph: One step of it; its `form` is `"hlo"`.
        target: The hardware.
        options: What was chosen; defaults to `ModelOptions()`.

    Returns:
        The finished model.
    """
    options = ModelOptions() if options is None else options
    model = Model(name=name, graph=graph, target=target, options=options)
    for model_pass in MODEL_PASSES:
        model = model_pass(model)
    return model
