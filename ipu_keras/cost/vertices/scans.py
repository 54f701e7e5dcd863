"""Costs cumulative sums and their like on the tiles of an IPU: a guess.

No library of Poplar publishes a scan. Counted is what a program does that divides the work,
about two operations for each element.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import num_tiles_of
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, divided_cost
from ipu_keras.cost.tile.vertex_rates import ELEMENTWISE
from ipu_keras.cost.vertices.context import CostContext
from ipu_keras.ir import TensorSpec, num_elements, scanned_axis
from ipu_keras.machine.target import Target

# Each tile scans what it has (`vertices.scan`); if several tiles have parts of one scan, what
# their parts come to meets on other tiles and is scanned there, in one stage or, as reductions
# do, in several; then what comes before each part goes back to its tile, and is combined with
# all that this has.
_MAX_STAGES = 3


@dataclass(frozen=True)
class _Level:
    """What the tile with the most scans at a time: so many scans of so many elements each."""

    num_scans: int
    num_elements: int

    @property
    def size(self) -> int:
        return self.num_scans * self.num_elements


def cost_of_scan(one: ComputeSet, context: CostContext) -> Cost:
    """Costs a window over all elements before each."""
    op, source = one.ops[-1], one.operands[0]
    axis, operation = scanned_axis(op), op.attributes["operation"]
    assert axis is not None, "it is what makes the family"
    # A computation of which nothing is known is costed as code that nobody scheduled.
    own = operation if operation in ELEMENTWISE else "map"
    parts = op.attributes.get("operations") or (own,)
    return replace(
        scan_cost(context.target, operations=parts, source=source, axis=axis),
        tiles=num_tiles_of(source, context.target),
        vertex=f"scan {operation} {source.dtype}",
    )


def scan_cost(target: Target, *, operations: Sequence[str], source: TensorSpec, axis: int) -> Cost:
    """Costs the fastest way to combine each element with all before it along an axis."""
    tiles = num_tiles_of(source, target)
    # What lies apart, because it is not the last axis, is first brought together.
    is_apart = math.prod(source.shape[axis + 1 :]) > 1
    received = math.ceil(source.nbytes / tiles) if is_apart else 0
    length = source.shape[axis]
    num_scans = num_elements(source) // length
    # Scans are whole on their tile if there are as many as tiles with a part of the tensor.
    parts = min(max(tiles // num_scans, 1), length)
    counts = range(1, _MAX_STAGES + 1) if parts > 1 else (0,)
    ways = [_levels(length, num_scans, parts, tiles, count) for count in counts]
    found = [_cycles(target, operations, source, levels, received) for levels in ways]
    return min(found, key=lambda way: way.cycles)


def _levels(length: int, num_scans: int, parts: int, tiles: int, num_stages: int) -> list[_Level]:
    """Returns the parts of scans, and the stages, about equally large, in which their sums meet."""
    together = math.ceil(parts ** (1 / max(num_stages, 1)))
    levels = [_Level(math.ceil(num_scans * parts / tiles), math.ceil(length / parts))]
    for _ in range(num_stages):
        meeting, parts = min(together, parts), math.ceil(parts / together)
        levels.append(_Level(math.ceil(num_scans * parts / tiles), meeting))
    return levels


def _cycles(
    target: Target,
    operations: Sequence[str],
    source: TensorSpec,
    levels: Sequence[_Level],
    received: int,
) -> Cost:
    """Costs the way up all levels, and down again to the first."""
    up = [
        vertices.scan(
            target,
            operations=operations,
            dtype=source.dtype,
            num_scans=level.num_scans,
            num_elements=level.num_elements,
        )
        for level in levels
    ]
    down = [
        vertices.fused(
            target,
            operations=[(name, 2) for name in operations],
            dtype=source.dtype,
            num_elements=level.size,
            num_inputs=2,
        )
        for level in levels[:-1]
    ]
    item = source.nbytes // num_elements(source)
    sums = [level.size * item for level in levels[1:]]
    moved = [received, *sums, *sums]
    return divided_cost(
        target,
        cycles=sum(vertex.cycles for vertex in (*up, *down)),
        num_compute_sets=len(up) + len(down),
        moved=moved,
    )
