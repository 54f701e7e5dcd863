"""What happens in one step, and when, as a value that the trace formats are written from."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ipu_keras.report.rows import Row

# One above the other, on each IPU.
TRACKS = ("host copies", "layers", "phases")
_HOST, _LAYERS, _PHASES = TRACKS
# The counter below them.
MEMORY = "live memory"


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Something that takes time.

    Args:
        track: One of `TRACKS`.
        name: What happens.
        start: Tile cycles after the beginning of the step.
        cycles: Tile cycles that it takes.
        details: What a viewer shows of it besides.
    """

    track: str
    name: str
    start: int
    cycles: int
    details: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MemorySample:
    """How much memory is in use from a moment on.

    Args:
        start: Tile cycles after the beginning of the step.
        num_bytes: Over all tiles of the IPU.
    """

    start: int
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class IpuTimeline:
    """What one IPU does in a step.

    Args:
        name: Of the IPU.
        slices: Those of a track do not overlap, and are in order of time.
        memory: In order of time.
    """

    name: str
    slices: tuple[Slice, ...]
    memory: tuple[MemorySample, ...]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One step.

    Args:
        clock_hz: Tile cycles per second.
        ipus: One for each IPU, in order of their number.
    """

    clock_hz: float
    ipus: tuple[IpuTimeline, ...]


def ipu_timeline(
    name: str, rows: Sequence[Row], *, ipu: int, host_cycles: int, live_bytes: Iterable[int]
) -> IpuTimeline:
    """The step of one IPU: copies between it and the host, then one compute set after the other.

    Each compute set is split into synchronization, exchange and compute, in the order
    in which they take place. While another IPU runs one, this one waits.

    Args:
        name: Of the IPU.
        rows: Those of all IPUs in the order of execution.
        ipu: Whose rows are shown. The first IPU exchanges data with the host.
        host_cycles: Of the copies between host and IPU.
        live_bytes: While each row runs, over all tiles of the IPU.
    """
    starts = list(accumulate((row.cycles for row in rows), initial=host_cycles))
    slices = []
    if host_cycles and ipu == 0:
        slices.append(Slice(track=_HOST, name=_HOST, start=0, cycles=host_cycles))
    for row, start in zip(rows, starts, strict=False):
        if row.ipu == ipu:
            slices.append(_layer(row, start))
            slices.extend(_phases(row, start))
    # What the first compute set reads is there from the beginning.
    memory = (
        MemorySample(start=start, num_bytes=int(num_bytes))
        for start, num_bytes in zip([0, *starts[1:]], live_bytes, strict=False)
    )
    return IpuTimeline(name=name, slices=tuple(slices), memory=tuple(memory))


def _layer(row: Row, start: int) -> Slice:
    return Slice(
        track=_LAYERS,
        name=row.layer or row.family,
        start=start,
        cycles=row.cycles,
        details={"compute set": row.name, "cycles": row.cycles, "confidence": row.confidence},
    )


def _phases(row: Row, start: int) -> Iterator[Slice]:
    for name in ("sync", "exchange", "compute"):
        cycles = getattr(row, f"{name}_cycles")
        if cycles:
            yield Slice(track=_PHASES, name=name, start=start, cycles=cycles)
        start += cycles
