"""Costs combining several values to one: on the tiles that have them, then between tiles."""

import math
from collections.abc import Collection
from dataclasses import replace

from ipu_keras.cost.flat.layouts import elements_per_tile, item_bytes, num_tiles_of
from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost, arrival_cycles
from ipu_keras.cost.tile.exchange import sync_cycles
from ipu_keras.cost.tile.vertices import VertexCycles
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import Target

# poplin sums its partials in at most three stages, too.
_MAX_STAGES = 3


def reduction_cost(
    target: Target,
    *,
    operation: str,
    source: TensorSpec,
    axes: Collection[int],
    num_outputs: int,
    dtype: str,
) -> Cost:
    """Costs a reduction: each tile reduces what it has; that meets in one or more stages.

    `axes` are those that disappear, `num_outputs` the elements of all results; tiles find float32
    for sums of halves.
    """
    outputs = max(num_outputs, 1)
    on_tile = elements_per_tile(source, target)
    tiles = num_tiles_of(source, target)
    found = min(_results_on_tile(source, axes, on_tile), outputs)
    first = _reduced(target, operation, source.dtype, found, on_tile)
    # So many tiles have a part of a result.
    parts = max(min(tiles * found // outputs, tiles), 1)
    partials = replace(source, dtype=dtype)
    ways = [
        _stages(target, operation, partials, outputs, parts, count)
        for count in range(1, _MAX_STAGES + 1)
    ]
    cycles, received, exchange, stages = min(ways, key=lambda stage: stage[0] + stage[2])
    return Cost(
        compute_cycles=first.cycles + cycles + target.launch_cycles * (1 + stages),
        exchange_cycles=exchange,
        sync_cycles=sync_cycles(target, num_ipus=1) * stages,
        exchange_bytes=received,
        num_vertices=1 + stages,
        tiles=tiles,
        vertex=f"reduce {operation} {source.dtype}",
        confidence=first.confidence,
        detail=f"{1 + stages} stages",
    )


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
) -> tuple[int, int, int, int]:
    """Returns compute cycles, bytes received, exchange cycles and the number of stages."""
    if parts <= 1:
        return 0, 0, 0, 0
    # As in poplibs' reduction planner, as many partials meet in every stage; exchanged bytes and
    # added partials count.
    together = math.ceil(parts ** (1 / count))
    cycles = exchange = received = 0
    for _ in range(count):
        remaining = math.ceil(parts / together)
        # The results of a stage are spread over all tiles, so that none adds more than it must.
        owners = min(target.num_tiles, outputs * remaining)
        results = math.ceil(outputs * remaining / owners)
        num_bytes = results * together * item_bytes(partials)
        exchange += arrival_cycles(target, num_bytes)
        received = max(received, num_bytes)
        cycles += _reduced(target, operation, partials.dtype, results, results * together).cycles
        parts = remaining
    return cycles, received, exchange, count


def _reduced(
    target: Target, operation: str, dtype: str, outputs: int, elements: int
) -> VertexCycles:
    return vertices.reduce(
        target,
        operation=operation,
        dtype=dtype,
        num_outputs=outputs,
        num_partials=max(math.ceil(elements / max(outputs, 1)), 1),
    )
