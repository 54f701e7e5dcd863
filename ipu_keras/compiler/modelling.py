"""What a step would cost on an IPU: the passes, and the value that they hand on.

`MODEL_PASSES` is the table of contents. Each pass is a pure function from a
frozen `Model` to the next one.
"""

import math
from dataclasses import dataclass, field, replace

from ipu_keras.compiler.compute_sets import FlatProgram, deduplicate, flatten, fuse
from ipu_keras.compiler.costs import Cost, CostTable
from ipu_keras.compiler.exchange import host_seconds
from ipu_keras.compiler.in_place import share_memory
from ipu_keras.compiler.liveness import schedule
from ipu_keras.compiler.memory import (
    MemoryPlan,
    Overhead,
    Region,
    gap_after,
    map_linearly,
    plan_memory,
)
from ipu_keras.compiler.normalizations import fuse_normalizations
from ipu_keras.ir import Graph
from ipu_keras.target import Target

# Bytes of code that have no published size: rough figures from the shares that
# Poplar's reports of large models give to each category.
_VERTEX_CODE_BYTES = 512  # of a type of vertex
_VERTEX_STATE_BYTES = 24  # of a vertex
_CONTROL_CODE_BYTES = 24  # of a compute set
_EXCHANGE_CODE_BYTES = 48  # of an exchange


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What can be chosen about a program besides its content.

    Args:
        available_memory_proportion: Of a tile's memory, what the temporaries of
            a matrix product or convolution may take. Poplibs' default is 0.6.
        steps_per_execution: Steps between two exchanges with the host.

    Raises:
        ValueError: A number is out of its range.
    """

    available_memory_proportion: float = 0.6
    steps_per_execution: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.available_memory_proportion <= 1:
            raise ValueError(
                "`available_memory_proportion` must be above 0 and at most 1. "
                f"Received: available_memory_proportion={self.available_memory_proportion}"
            )
        if self.steps_per_execution < 1:
            raise ValueError(
                "`steps_per_execution` must be at least 1. "
                f"Received: steps_per_execution={self.steps_per_execution}"
            )


@dataclass(frozen=True, kw_only=True)
class Model:
    """A program on its way through the passes of the cost model.

    Args:
        name: What the program is called.
        graph: One step of it, as HLO.
        target: The hardware.
        options: What was chosen.
        program: Its compute sets.
        costs: Of each compute set.
        regions: Where each value lies.
        memory: How full the tiles become.
        host_cycles: Tile cycles of one step in which data moves between host and IPU.
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


def write_out(model: Model) -> Model:
    """Turns the graph into compute sets."""
    program = deduplicate(flatten(model.graph))
    return replace(model, program=fuse(fuse_normalizations(program)))


def order(model: Model) -> Model:
    """Puts the compute sets in the order of execution."""
    return replace(model, program=schedule(model.program))


def reuse_memory(model: Model) -> Model:
    """Writes results over operands that nobody needs any more."""
    return replace(model, program=share_memory(model.program))


def estimate_cycles(model: Model) -> Model:
    """Costs every compute set."""
    table = CostTable(
        model.target,
        model.program,
        memory_proportion=model.options.available_memory_proportion,
    )
    return replace(model, costs=tuple(map(table.cost, model.program.compute_sets)))


def estimate_host_copies(model: Model) -> Model:
    """Costs the infeed and the outfeed; a copy begins and ends once per execution."""
    program, target, steps = model.program, model.target, model.options.steps_per_execution
    fed = sum(v.spec.nbytes for v in program.values.values() if v.role == "argument")
    fetched = sum(
        program.values[name].spec.nbytes
        for name in set(program.results) - set(program.updates)
        if program.values[name].role == "activation"
    )
    seconds = sum(
        host_seconds(target, num_bytes * steps, num_ipus=1)
        for num_bytes in (fed, fetched)
        if num_bytes
    )
    return replace(model, host_cycles=math.ceil(seconds * target.clock_hz / steps))


def fill_tiles(model: Model) -> Model:
    """Places values on tiles and adds up what each tile holds."""
    regions = map_linearly(model.program, model.target)
    memory = plan_memory(
        model.program,
        regions,
        model.target,
        temporary_bytes=[cost.temporary_bytes for cost in model.costs],
        message_bytes=[cost.message_bytes for cost in model.costs],
        overhead=_overhead(model),
    )
    return replace(model, regions=regions, memory=memory)


def _overhead(model: Model) -> Overhead:
    costs, target = model.costs, model.target
    num_vertices = sum(cost.num_vertices * cost.tiles for cost in costs)
    vertex_types = {cost.vertex for cost in costs}
    exchanges = sum(cost.exchange_bytes > 0 for cost in costs)
    overhead = Overhead(
        vertex_code=_VERTEX_CODE_BYTES * len(vertex_types),
        vertex_state=math.ceil(_VERTEX_STATE_BYTES * num_vertices / target.num_tiles),
        control_code=_CONTROL_CODE_BYTES * len(costs),
        exchange_code=_EXCHANGE_CODE_BYTES * exchanges,
        stack=target.stack_bytes,
    )
    return replace(overhead, gaps=gap_after(overhead.code, target))


MODEL_PASSES = (write_out, order, reuse_memory, estimate_cycles, estimate_host_copies, fill_tiles)


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
