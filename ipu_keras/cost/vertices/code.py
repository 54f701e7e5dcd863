"""Estimates how much memory the code and the state of vertices need."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ipu_keras.cost.flat.memory import Overhead, gap_after
from ipu_keras.cost.memory_sizes import (
    CONTROL_CODE_BYTES,
    EXCHANGE_CODE_BYTES,
    VERTEX_CODE_BYTES,
    VERTEX_STATE_BYTES,
)
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.machine.target import Target


def overhead_of(costs: Iterable[Cost], target: Target) -> Overhead:
    """Returns what every tile of an IPU needs besides its values, for what has code of its own."""
    costs = [part for cost in costs for part in _without_parts(cost)]
    state = sum(
        (cost.state_bytes or VERTEX_STATE_BYTES * cost.num_vertices) * cost.tiles for cost in costs
    )
    vertex_types = {cost.vertex for cost in costs} - {""}
    exchanges = sum(cost.exchange_bytes > 0 for cost in costs)
    overhead = Overhead(
        # Vertices of a type share their code on a tile; the state of each is its own. All tiles
        # run the same control program, whether they have vertices or not.
        vertex_code=VERTEX_CODE_BYTES * len(vertex_types),
        vertex_state=math.ceil(state / target.num_tiles),
        control_code=CONTROL_CODE_BYTES * len(costs),
        exchange_code=EXCHANGE_CODE_BYTES * exchanges,
        stack=target.stack_bytes,
    )
    return replace(overhead, gaps=gap_after(overhead.code, target))


def _without_parts(cost: Cost) -> Iterator[Cost]:
    """Yields the parts of an operation of Poplar's libraries, or the whole of another one."""
    if not cost.parts:
        yield cost
    for part in cost.parts:
        yield from _without_parts(part)
