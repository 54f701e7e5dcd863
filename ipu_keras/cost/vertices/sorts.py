"""Costs sorting, and finding the largest, on the tiles of an IPU: a guess.

No library of Poplar publishes cycles of a sort. Counted is a bitonic network, as popops has it:
passes over pairs of elements whose distance is a power of two.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import num_tiles_of
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, divided_cost
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.ir import TensorSpec, num_elements
from ipu_keras.machine.target import Target


@dataclass(frozen=True)
class _SortingPass:
    """Comparisons of elements that lie so far apart, among so many elements of one sort."""

    num_elements: int
    distance: int


def cost_of_sort(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a sort, or what finds the largest, whose positions go with them."""
    op = one.ops[-1]
    operands = [*one.operands]
    keys = operands[0]
    (axis,) = op.attributes.get("dimensions", (len(keys.shape) - 1,))
    if op.kind == "topk":
        operands.append(TensorSpec(keys.shape, "int32"))
    count = op.attributes.get("k")
    return replace(
        sort_cost(context.target, operands=operands, axis=axis, num_largest=count),
        tiles=num_tiles_of(keys, context.target),
        vertex=f"sort {keys.dtype}",
    )


def sort_cost(
    target: Target, *, operands: Sequence[TensorSpec], axis: int, num_largest: int | None = None
) -> Cost:
    """Costs the fastest way to divide sorts along an axis among tiles.

    Operands are the keys and what goes with them; `num_largest` is `None` if all are wanted.
    """
    keys = operands[0]
    length = max(keys.shape[axis], 1)
    num_sorts = max(num_elements(keys) // length, 1)
    tiles = num_tiles_of(keys, target)
    is_apart = math.prod(keys.shape[axis + 1 :]) > 1
    passes = _passes(length, num_largest)
    most = min(max(tiles // num_sorts, 1), length)
    ways = [
        _cycles(target, operands, passes, parts, math.ceil(num_sorts * parts / tiles), is_apart)
        # Fewer tiles need fewer exchanges, more compare less: neither is always faster.
        for parts in (1 << exponent for exponent in range(most.bit_length()))
    ]
    return min(ways, key=lambda way: way.cycles)


def _passes(length: int, num_largest: int | None) -> list[_SortingPass]:
    """Returns the passes of a network for so many elements."""
    depth = (length - 1).bit_length()
    # All are sorted by merging runs, each pass of a merge at half the distance of the one
    # before. For the largest, runs of their number are sorted; then the larger halves of two
    # runs make one, which is sorted again by a merge, until one is left.
    runs = depth if num_largest is None else min((num_largest - 1).bit_length(), depth)
    passes = [
        _SortingPass(length, 1 << exponent)
        for merged in range(runs)
        for exponent in range(merged, -1, -1)
    ]
    for _ in range(depth - runs):
        passes.append(_SortingPass(length, 1 << runs))
        length = math.ceil(length / 2)
        passes += [_SortingPass(length, 1 << exponent) for exponent in range(runs - 1, -1, -1)]
    return passes


def _cycles(
    target: Target,
    operands: Sequence[TensorSpec],
    passes: Sequence[_SortingPass],
    parts: int,
    num_sorts: int,
    is_apart: bool,
) -> Cost:
    """Costs the passes with each sort on `parts` tiles, of which one has `num_sorts` at most."""
    keys = operands[0]
    item = sum(spec.nbytes for spec in operands) // max(num_elements(keys), 1)
    largest = num_sorts * math.ceil(passes[0].num_elements / parts) if passes else 0
    lies_so = largest == math.ceil(num_elements(keys) / num_tiles_of(keys, target))
    moved = [] if lies_so and not is_apart else [largest * item]
    compute, num_compute_sets = 0, 0
    for one in passes:
        block = math.ceil(one.num_elements / parts)
        # Passes between elements of one tile need no exchange, and run in the compute set
        # before.
        is_remote = one.distance >= block
        # Of pairs on one tile, both are compared and change places or not; of others, each tile
        # receives the other's part, and keeps the smaller or the larger of each pair.
        compute += vertices.sort_pass(
            target,
            dtype=keys.dtype,
            num_pairs=num_sorts * (block if is_remote else math.ceil(block / 2)),
            num_selections=len(operands) * (1 if is_remote else 2),
        ).cycles
        if is_remote:
            moved.append(num_sorts * block * item)
        if is_remote or not num_compute_sets:
            num_compute_sets += 1
    return divided_cost(target, cycles=compute, num_compute_sets=num_compute_sets, moved=moved)
