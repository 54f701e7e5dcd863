"""What it costs to move values on tiles and between them, and to change a part of one."""

from collections.abc import Callable
from dataclasses import replace

from ipu_keras.cost.flat.compute_sets import ComputeSet, is_carry, is_update
from ipu_keras.cost.flat.layouts import (
    bytes_per_tile,
    elements_per_tile,
    item_bytes,
    num_tiles_of,
)
from ipu_keras.cost.vertices import vertices
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.cost.vertices.cost import Cost, started_together
from ipu_keras.cost.vertices.vertices import VertexCycles
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import Target


def cost_of_copy(one: ComputeSet, context: CostContext) -> Cost:
    """Elements keep their order, but come from other tiles.

    Args:
        one: A copy. What a loop carries lies where its first value did, and often stays there.
        context: What it is in.
    """
    if not is_carry(one):
        return _moved(one, context, vertices.copy)
    made = one.writes[0]
    arrives = not context.lie_alike(one.reads[0], made.name)
    received = bytes_per_tile(made.spec, context.target) if arrives else 0
    cycles = _copied(context.target, made.spec)
    return started_together(one, context.target, cycles, received, vertex="copy")


def cost_of_transpose(one: ComputeSet, context: CostContext) -> Cost:
    """Neighbours come from different places: one element at a time.

    Args:
        one: A transpose.
        context: What it is in.
    """
    return _moved(one, context, vertices.rearrange)


def cost_of_dynamic_slice(one: ComputeSet, context: CostContext) -> Cost:
    """A region whose place the program computes is read, or overwritten.

    Args:
        one: A slice or an update.
        context: What it is in.
    """
    target = context.target
    part = one.operands[1] if is_update(one) else one.writes[0].spec
    cycles = vertices.dynamic_slice(
        target,
        dtype=part.dtype,
        num_slices=1,
        slice_elements=elements_per_tile(part, target),
    )
    cost = started_together(one, target, cycles, 0, vertex="dynamic slice")
    return on_a_copy(one, cost, context) if is_update(one) else cost


def on_a_copy(one: ComputeSet, cost: Cost, context: CostContext) -> Cost:
    """The cost of an update, and of a copy if somebody still needs what it would change.

    Args:
        one: The update.
        cost: Of the update in place.
        context: What it is in.
    """
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
    """Copies on the tiles that have the values, which all start together.

    Args:
        one: What puts values of a pipeline away, or takes them back.
        context: What it is in.
    """
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
    """A copy of a tensor on the tiles that have it."""
    size = bytes_per_tile(spec, target)
    return vertices.copy(target, num_bytes=size, atom_bytes=item_bytes(spec))
