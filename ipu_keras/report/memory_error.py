"""The IPU's own words for a program that does not fit, which scripts look for."""

from ipu_keras.cost.flat.memory import MemoryPlan


def memory_error(memory: MemoryPlan) -> str | None:
    """Returns the message of the IPU's compiler in one line; `None` if the program fits."""
    if memory.fits:
        return None
    # "incode" is Poplar's own spelling.
    if not memory.code_fits:
        return (
            f"tile {memory.worst_tile} _poplar_start must be 0 not {memory.tile_bytes} bytes "
            "from the start of memory. Typically this error occurs when there is too much code "
            f"to fit incode memory. : {memory.code_bytes} bytes of code, but tiles can read "
            f"instructions from {memory.code_region_bytes} bytes only"
        )
    return (
        f"Memory allocation error : Out of memory on tile {memory.worst_tile}: "
        f"{memory.max_tile_bytes} bytes used but tiles only have {memory.tile_bytes} bytes "
        "of memory"
    )
