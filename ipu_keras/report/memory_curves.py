"""The memory of a program over its tiles and over time, as pictures draw it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, kw_only=True)
class MemoryCurves:
    """The memory of a program, as pictures draw it.

    Args:
        tile_bytes: The bytes of memory that a tile has.
        peak_by_tile: Bytes on each tile when it is fullest, those of the first IPU first.
        edges: Microseconds from the beginning of a step to that of each compute set, and then
            to the end of the last one.
        live: Bytes over all tiles while each compute set runs.
    """

    tile_bytes: int
    num_ipus: int
    peak_by_tile: tuple[int, ...]
    edges: tuple[float, ...]
    live: tuple[int, ...]


def curves_of(
    *,
    peak_by_tile: Sequence[int],
    tile_bytes: int,
    num_ipus: int,
    cycles: Sequence[int],
    host_cycles: int,
    clock_hz: float,
    live: Sequence[int],
    always_live: int,
) -> MemoryCurves:
    """Returns the curves of a step, which begins with the copies between host and IPU."""
    starts = accumulate(cycles, initial=host_cycles)
    return MemoryCurves(
        tile_bytes=tile_bytes,
        num_ipus=num_ipus,
        peak_by_tile=tuple(peak_by_tile),
        edges=tuple(1e6 * start / clock_hz for start in starts),
        # A program that computes nothing has one position, but no compute set to draw it at.
        live=tuple(always_live + size for size in live[: len(cycles)]),
    )
