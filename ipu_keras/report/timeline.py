"""A step as slices of time, as a value that both trace formats are written from.

Times are tile cycles here: each format rounds them in its own unit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

import numpy as np

from ipu_keras.cost.pipeline.placement import work_of_part
from ipu_keras.cost.pipeline.schedule import Activity, Part
from ipu_keras.cost.pipeline.timing import Event, PipelineTiming
from ipu_keras.report.figures import Figures
from ipu_keras.report.rows import Row

# Tracks of an IPU, in the order in which viewers show them from the top.
TRACKS = ("host copies", "layers", "phases")
_HOST, _LAYERS, _PHASES = TRACKS
# The counter below them.
MEMORY = "live memory"


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Something that takes time.

    Args:
        track: The row that it is shown in, one of `TRACKS`.
        start: Tile cycles after the beginning of the step.
        cycles: Tile cycles that it takes.
        details: What a viewer shows when the slice is clicked.
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
        num_bytes: Bytes over all tiles of the IPU.
    """

    start: int
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class IpuTimeline:
    """What one IPU does in a step.

    Args:
        slices: The slices in order of time; those of a track do not overlap.
        memory: The samples in order of time.
    """

    name: str
    slices: tuple[Slice, ...]
    memory: tuple[MemorySample, ...]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What all IPUs do in one step.

    Args:
        clock_hz: Tile cycles per second.
        ipus: Timelines of the IPUs, in order of their numbers.
    """

    clock_hz: float
    ipus: tuple[IpuTimeline, ...]


def timeline_of(report: Figures) -> Timeline:
    """Returns one step of a program; for a pipeline, everything between two weight updates."""
    target, memory = report.model.target, report.model.memory
    always_live = memory.always_live_by_tile.reshape(memory.num_ipus, -1).sum(axis=1)
    ipus = tuple(
        _timeline_of_ipu(report, ipu, memory.live_by_ipu[ipu] + always_live[ipu])
        for ipu in range(memory.num_ipus)
    )
    return Timeline(clock_hz=target.clock_hz, ipus=ipus)


def _timeline_of_ipu(report: Figures, ipu: int, live: np.ndarray) -> IpuTimeline:
    name, timing = f"IPU {ipu} ({report.model.target.name})", report.pipeline_timing
    run = report.model.pipeline_run
    if run is None or timing is None:
        host = report.host_cycles
        return ipu_timeline(name, report.rows, ipu=ipu, host_cycles=host, live_bytes=live)
    by_part: dict[Part, int] = {}
    for one, num_bytes in zip(report.model.program.compute_sets, live, strict=False):
        part = work_of_part(one, ipu)
        if one.ipu == ipu:
            # A part is one slice for all of its compute sets: it shows the most that any of
            # them needs.
            by_part[part] = max(by_part.get(part, 0), int(num_bytes))
    host = report.host_cycles * run.plan.num_micro_batches
    return pipeline_timeline(name, timing, ipu=ipu, host_cycles=host, live_bytes=by_part)


def ipu_timeline(
    name: str, rows: Sequence[Row], *, ipu: int, host_cycles: int, live_bytes: Iterable[int]
) -> IpuTimeline:
    """Returns the step of one IPU: copies with the host, then one compute set after the other.

    Each compute set is split into synchronization, exchange and compute, in the order in which
    they take place. While another IPU runs one, this one waits.

    Args:
        rows: Rows of all IPUs in the order of execution.
        ipu: The IPU whose rows are shown; the first one exchanges data with the host.
        host_cycles: Tile cycles of the copies between host and IPU.
        live_bytes: Bytes over all tiles of the IPU while each row runs.
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


def pipeline_timeline(
    name: str, timing: PipelineTiming, *, ipu: int, host_cycles: int, live_bytes: Mapping[Part, int]
) -> IpuTimeline:
    """Returns what one IPU of a pipeline does between two weight updates, and when it waits.

    Args:
        ipu: The IPU whose work is shown; the first one exchanges all data with the host at the
            beginning.
        host_cycles: Tile cycles of the copies between host and IPU, for all micro-batches.
        live_bytes: Bytes over all tiles of the IPU while each of its parts runs.
    """
    found = [event for event in timing.events if event.instruction.part.ipu == ipu]
    slices = [_piece(event, host_cycles) for event in found if event.cycles and not _copies(event)]
    slices += _copy_slices(found, host_cycles)
    if found:
        slices += [
            Slice(track=_LAYERS, name="bubble", start=host_cycles + start, cycles=end - start)
            for start, end in timing.bubbles(ipu)
        ]
    slices.sort(key=lambda one: one.start)
    if host_cycles and ipu == 0:
        slices.insert(0, Slice(track=_HOST, name=_HOST, start=0, cycles=host_cycles))
    memory = tuple(
        MemorySample(start=host_cycles + event.start, num_bytes=live_bytes[event.instruction.part])
        for event in found
        if event.instruction.part in live_bytes
    )
    return IpuTimeline(name=name, slices=tuple(slices), memory=memory)


def _copies(event: Event) -> bool:
    return event.instruction.part.work is Activity.COPY


def _piece(event: Event, offset: int) -> Slice:
    part = event.instruction.part
    details: dict[str, int | str] = {"work": part.work.value, "cycles": event.cycles}
    if part.stage is not None:
        details["stage"] = part.stage
        details["micro-batch"] = event.instruction.micro_batch or 0
    return Slice(
        track=_LAYERS,
        name=str(event.instruction),
        start=offset + event.start,
        cycles=event.cycles,
        details=details,
    )


def _copy_slices(events: Iterable[Event], offset: int) -> Iterator[Slice]:
    """Yields copies to several IPUs that begin together as one slice each."""
    copies = [event for event in events if _copies(event) and event.cycles]
    for _, group in groupby(copies, key=lambda event: event.start):
        together = list(group)
        yield Slice(
            track=_LAYERS,
            name=" ".join(str(event.instruction) for event in together),
            start=offset + together[0].start,
            cycles=max(event.cycles for event in together),
            details={"work": Activity.COPY.value},
        )


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
