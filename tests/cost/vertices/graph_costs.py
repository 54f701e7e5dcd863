"""What the compute sets of graphs cost, from the graph on."""

from hlo_graphs import graph

from ipu_keras.cost.flat.compute_sets import FlatProgram
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import deduplicate, fuse
from ipu_keras.cost.flat.in_place import share_memory
from ipu_keras.cost.products.planning_options import product_options
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.families import cost_of
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]
TILES, LAUNCH, SYNC, WAY = GC200.num_tiles, 81, 126, 157


def program_costs(program: FlatProgram) -> dict[str, Cost]:
    """By the names of the compute sets of a program."""
    context = CostContext.of(program, GC200, product_options=product_options(0.6))
    return {one.name: cost_of(one, context) for one in program.compute_sets}


def costs(*ops, results=()) -> dict[str, Cost]:
    """By the names of the compute sets that operations become."""
    return program_costs(share_memory(fuse(deduplicate(flatten(graph(*ops, results=results))))))
