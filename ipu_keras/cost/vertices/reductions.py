"""Costs combining several values to one: on the tiles that have them, then between tiles."""

import functools
import math
from collections.abc import Collection

from ipu_keras.cost.flat.layouts import elements_per_tile, item_bytes, num_tiles_of
from ipu_keras.cost.memory_sizes import VERTEX_STATE_BYTES
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, arrival_cycles
from ipu_keras.cost.tile.exchange import sync_cycles
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import Target

# poplin sums its partials in at most three stages, too.
_MAX_STAGES = 3
_SUMS = frozenset({"add", "multiply"})
# popops deals results to tiles in grains of so many, for vectors of them (`ReductionPlan`).
_GRAIN = 8


def reduction_cost(
    target: Target,
    *,
    operation: str,
    source: TensorSpec,
    axes: Collection[int],
    num_outputs: int,
) -> Cost:
    """Costs a reduction: each tile reduces what it has; that meets in one or more stages.

    `axes` are those that disappear, `num_outputs` the elements of all results.
    """
    return _cost(target, operation, source, frozenset(axes), num_outputs)


# Models have few different reductions, and searches for fixes cost all of them for each program.
@functools.lru_cache(maxsize=4096)
def _cost(
    target: Target, operation: str, source: TensorSpec, axes: frozenset[int], num_outputs: int
) -> Cost:
    outputs = max(num_outputs, 1)
    on_tile = elements_per_tile(source, target)
    tiles = num_tiles_of(source, target)
    found = min(_results_on_tile(source, axes, on_tile), outputs)
    first = vertices.reduce(
        target,
        operation=operation,
        dtype=source.dtype,
        num_outputs=found,
        num_partials=math.ceil(on_tile / found),
        strided=found > 1 and not _ends_in(source, axes),
    )
    # So many tiles have a part of a result.
    parts = max(min(tiles * found // outputs, tiles), 1)
    # popops adds up halves in float32, also where the sum is a half.
    is_sum = operation in _SUMS and source.dtype == "float16"
    partials = TensorSpec((), "float32" if is_sum else source.dtype)
    later: list[Cost] = []
    if parts > 1:
        ways = (
            _stages(target, operation, partials, outputs, parts, count)
            for count in range(1, _MAX_STAGES + 1)
        )
        later = min(ways, key=lambda stages: sum(stage.cycles for stage in stages))
    return Cost(
        compute_cycles=first.cycles
        + target.launch_cycles
        + sum(stage.compute_cycles for stage in later),
        exchange_cycles=sum(stage.exchange_cycles for stage in later),
        sync_cycles=sum(stage.sync_cycles for stage in later),
        exchange_bytes=max((stage.exchange_bytes for stage in later), default=0),
        num_receivers=max((stage.tiles for stage in later), default=0),
        temporary_bytes=found * item_bytes(partials) if later else 0,
        num_vertices=1 + len(later),
        # Few tiles may have vertices of later stages.
        state_bytes=math.ceil(
            VERTEX_STATE_BYTES * (1 + sum(stage.tiles for stage in later) / tiles)
        ),
        tiles=tiles,
        vertex=f"reduce {operation} {source.dtype}",
        confidence=first.confidence,
        detail=f"{1 + len(later)} stages",
    )


def _ends_in(source: TensorSpec, axes: Collection[int]) -> bool:
    """Whether elements that are neighbours are combined."""
    reduced = {axis % len(source.shape) for axis in axes}
    last = max((axis for axis, size in enumerate(source.shape) if size > 1), default=0)
    return last in reduced


def _results_on_tile(source: TensorSpec, axes: Collection[int], on_tile: int) -> int:
    """Returns of how many results a tile has elements: neighbours, the last axis innermost."""
    reduced = {axis % len(source.shape) for axis in axes}
    found, left = 1, on_tile
    for axis in reversed(range(len(source.shape))):
        taken = min(source.shape[axis], left)
        found *= 1 if axis in reduced else taken
        left = math.ceil(left / max(source.shape[axis], 1))
    return max(found, 1)


def _stages(
    target: Target, operation: str, partials: TensorSpec, outputs: int, parts: int, count: int
) -> list[Cost]:
    """Costs stages that each combine as many partials of a result, where these meet."""
    # As in popops' planner, as many partials meet in every stage.
    together = math.ceil(parts ** (1 / count))
    width = min(outputs, _GRAIN)
    found = []
    for _ in range(count):
        parts = math.ceil(parts / together)
        grains = math.ceil(outputs / width) * parts
        results = width * math.ceil(grains / target.num_tiles)
        cycles = vertices.reduce(
            target,
            operation=operation,
            dtype=partials.dtype,
            num_outputs=results,
            num_partials=together,
            strided=width > 1,
        )
        received = results * together * item_bytes(partials)
        found.append(
            Cost(
                compute_cycles=cycles.cycles + target.launch_cycles,
                exchange_cycles=arrival_cycles(target, received),
                sync_cycles=sync_cycles(target, num_ipus=1),
                exchange_bytes=received,
                tiles=min(grains, target.num_tiles),
            )
        )
    return found
