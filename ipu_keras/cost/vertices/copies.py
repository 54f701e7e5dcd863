"""Costs moving values on tiles and between them, and changing a part of one."""

import math
from collections.abc import Callable
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, is_carry, is_update
from ipu_keras.cost.flat.layouts import (
    bytes_per_tile,
    elements_per_tile,
    item_bytes,
    num_tiles_of,
)
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, started_together
from ipu_keras.cost.tile.vertices import VertexCycles
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.ir import TensorSpec, num_elements
from ipu_keras.machine.target import Target


def cost_of_copy(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a copy: elements keep their order, but come from other tiles."""
    if not is_carry(one):
        return _moved(one, context, vertices.copy)
    # What a loop carries lies where its first value did, and often stays on its tiles.
    made = one.writes[0]
    arrives = not context.lie_alike(one.reads[0], made.name)
    received = bytes_per_tile(made.spec, context.target) if arrives else 0
    cycles = _copied(context.target, made.spec)
    return started_together(one, context.target, cycles, received, vertex="copy")


def cost_of_transpose(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a transpose: neighbours come from different places, one element at a time."""
    return _moved(one, context, vertices.rearrange)


def cost_of_dynamic_slice(one: ComputeSet, context: CostContext) -> Cost:
    """Costs reading, or overwriting, a region whose place the program computes."""
    target = context.target
    part = one.operands[1] if is_update(one) else one.writes[0].spec
    cycles = vertices.dynamic_slice(
        target,
        dtype=part.dtype,
        num_slices=1,
        slice_elements=elements_per_tile(part, target),
    )
    # popops lays such tensors so that a tile has all entries of its elements: nothing but the
    # place is sent, whatever it is.
    cost = started_together(one, target, cycles, 0, vertex="dynamic slice")
    return on_a_copy(one, cost, context) if is_update(one) else cost


def on_a_copy(one: ComputeSet, cost: Cost, context: CostContext) -> Cost:
    """Returns the cost of an update, and of a copy if somebody still needs what it would change."""
    made = one.writes[0]
    if made.name in context.in_place:
        return cost
    cycles = _copied(context.target, made.spec).cycles + context.target.launch_cycles
    return replace(
        cost,
        compute_cycles=cost.compute_cycles + cycles,
        num_vertices=cost.num_vertices + 1,
        detail=f"{cost.detail}, on a copy" if cost.detail else "on a copy",
    )


def cost_of_stash(one: ComputeSet, context: CostContext) -> Cost:
    """Costs the copies of a pipeline's stash, on the tiles that have the values."""
    specs = [context.spec(name) for name in one.reads]
    size = sum(bytes_per_tile(spec, context.target) for spec in specs)
    cycles = vertices.copy(context.target, num_bytes=size, atom_bytes=8)
    cost = started_together(one, context.target, cycles, 0, vertex="copy")
    return replace(cost, tiles=max(num_tiles_of(spec, context.target) for spec in specs))


def _moved(one: ComputeSet, context: CostContext, vertex: Callable[..., VertexCycles]) -> Cost:
    spec = one.writes[0].spec
    size = bytes_per_tile(spec, context.target)
    cycles = vertex(context.target, num_bytes=size, atom_bytes=item_bytes(spec))
    return started_together(one, context.target, cycles, size, vertex=vertex.__name__)


def _copied(target: Target, spec: TensorSpec) -> VertexCycles:
    size = bytes_per_tile(spec, target)
    return vertices.copy(target, num_bytes=size, atom_bytes=item_bytes(spec))


def rows_cost(
    one: ComputeSet,
    target: Target,
    vertex: Callable[..., VertexCycles],
    *,
    rows: TensorSpec,
    num_rows: int,
    indices: TensorSpec,
) -> Cost:
    """Costs the rows of one table, whose columns tiles share, by a vertex that looks up or adds."""
    columns = math.ceil(num_elements(rows) / max(num_rows, 1) / target.num_tiles)
    cycles = vertex(target, dtype=rows.dtype, num_indices=num_rows, row_elements=columns)
    received = indices.nbytes + bytes_per_tile(rows, target)
    return started_together(one, target, cycles, received, vertex=one.family)
