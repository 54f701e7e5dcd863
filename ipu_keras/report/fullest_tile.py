"""The fullest tile in words."""

from ipu_keras.cost.flat.memory import MemoryPlan


def fullest_tile(memory: MemoryPlan) -> str:
    """Names the fullest tile; with several IPUs, tiles are counted within each.

    Example:

    >>> import numpy as np
    >>> fullest_tile(MemoryPlan(peak_by_tile=np.array([1, 2, 3, 2]), num_ipus=2))
    'tile 0 of IPU 1'
    """
    if memory.num_ipus == 1:
        return f"tile {memory.worst_tile}"
    tile = memory.worst_tile % memory.num_tiles_of_ipu
    return f"tile {tile} of IPU {memory.worst_ipu}"
