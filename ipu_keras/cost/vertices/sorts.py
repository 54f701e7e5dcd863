"""Costs sorting, and finding the largest, on the tiles of an IPU.

popops sorts by a bitonic network: steps over pairs of elements whose distance is a power of two.
The pairs of each step are spread over all tiles anew, so that an exchange comes before each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import elements_per_tile, num_tiles_of
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, divided_cost
from ipu_keras.cost.tile.vertex_rates import element_named
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.ir import TensorSpec, num_elements
from ipu_keras.machine.target import Target


@dataclass(frozen=True)
class _SortingStep:
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
    """Costs sorts along an axis.

    Operands are the keys and what goes with them; `num_largest` is `None` if all are wanted.
    """
    keys = _keys_of(operands[0])
    length = max(keys.shape[axis], 1)
    num_sorts = num_elements(keys) // length
    steps = _steps(length, num_largest) if num_sorts else []
    item = sum(spec.nbytes for spec in (keys, *operands[1:])) // max(num_elements(keys), 1)
    compute, moved = 0, []
    for one in steps:
        pairs = math.ceil(num_sorts * (one.num_elements // 2) / target.num_tiles)
        compute += vertices.compare_and_swap(
            target,
            dtype=keys.dtype,
            num_pairs=pairs,
            num_runs=math.ceil(pairs / target.num_workers / one.distance),
            num_values=len(operands) - 1,
        ).cycles
        moved.append(2 * pairs * item)
    num_casts = 0
    if steps and keys is not operands[0]:
        num_casts, given = 2, operands[0].dtype
        size = elements_per_tile(keys, target)
        for source, made in ((given, keys.dtype), (keys.dtype, given)):
            compute += vertices.cast(
                target, from_dtype=source, to_dtype=made, num_elements=size
            ).cycles
    return divided_cost(
        target, cycles=compute, num_compute_sets=len(steps) + num_casts, moved=moved
    )


def _keys_of(given: TensorSpec) -> TensorSpec:
    """Returns what is compared: popops casts halves to `"float32"` first."""
    is_half = element_named(given.dtype).kind == "float16"
    return TensorSpec(given.shape, "float32") if is_half else given


def _steps(length: int, num_largest: int | None) -> list[_SortingStep]:
    """Returns the steps of a network for so many elements."""
    depth = (length - 1).bit_length()
    # All are sorted by merging runs, each step of a merge at half the distance of the one
    # before. For the largest, runs of their number are sorted; then the larger halves of two
    # runs make one, which is sorted again by a merge, until one is left.
    runs = depth if num_largest is None else min((num_largest - 1).bit_length(), depth)
    steps = [
        _SortingStep(length, 1 << exponent)
        for merged in range(runs)
        for exponent in range(merged, -1, -1)
    ]
    for _ in range(depth - runs):
        steps.append(_SortingStep(length, 1 << runs))
        length = math.ceil(length / 2)
        steps += [_SortingStep(length, 1 << exponent) for exponent in range(runs - 1, -1, -1)]
    return steps
