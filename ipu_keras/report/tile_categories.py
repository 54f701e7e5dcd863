"""What lies on each tile, by category of memory, for the map of tiles."""

from dataclasses import replace

import numpy as np

from ipu_keras.cost.flat.memory import held_by_tile
from ipu_keras.cost.model import ModelledProgram

# All that is on a tile besides values: instructions, fields of vertices, gaps, stacks.
PROGRAM = "code, vertex state, gaps and stack"
# Values that are there some of the time, temporaries and message buffers.
SOMETIMES = "activations and buffers"


def bytes_by_tile(model: ModelledProgram) -> dict[str, np.ndarray]:
    """Returns what each tile holds when it is fullest.

    Args:
        model: A model after all passes.

    Returns:
        `(tiles,)` int64 by category, those of the first IPU first. Categories without any bytes
        are left out; the others add up to `memory.peak_by_tile`.
    """
    program, memory = model.program, model.memory
    plans = []
    for ipu in range(memory.num_ipus):
        values = {name: one for name, one in program.values.items() if one.ipu == ipu}
        here = replace(program, values=values)
        plans.append(held_by_tile(here, model.regions, memory.num_tiles_of_ipu))
    held = {name: np.concatenate([plan[name] for plan in plans]) for name in plans[0]}
    always = memory.always_live_by_tile
    found = {
        PROGRAM: always - sum(held.values()),
        **held,
        SOMETIMES: memory.peak_by_tile - always,
    }
    return {name: sizes for name, sizes in found.items() if sizes.any()}


def in_runs(sizes: np.ndarray) -> list[tuple[int, int]]:
    """Joins neighbours that are equal, as most tiles are.

    Returns:
        Pairs of a value and how often it follows itself.

    Example:

    >>> in_runs(np.array([5, 5, 7]))
    [(5, 2), (7, 1)]
    """
    starts = np.flatnonzero(np.diff(sizes, prepend=sizes[:1] - 1))
    lengths = np.diff(starts, append=len(sizes))
    return list(zip(sizes[starts].tolist(), lengths.tolist(), strict=True))
