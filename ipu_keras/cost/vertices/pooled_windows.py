"""Costs pooling over windows."""

import math

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import elements_per_tile
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, started_together
from ipu_keras.cost.vertices.context import CostContext


def cost_of_pooling(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a reduction over windows, or its gradient, where their results lie."""
    op, output = one.ops[-1], one.writes[0].spec
    cycles = vertices.pooling(
        context.target,
        dtype=output.dtype,
        num_outputs=elements_per_tile(output, context.target),
        window_elements=math.prod(op.attributes["window_size"]),
        backward=op.kind == "select-and-scatter",
    )
    received = context.inputs_per_tile(one)
    return started_together(one, context.target, cycles, received, vertex=op.kind)
