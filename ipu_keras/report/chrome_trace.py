"""A step on a timeline, in Chrome's trace event format."""

from collections.abc import Iterator, Sequence
from typing import Any

from ipu_keras.report.rows import Row
from ipu_keras.target import Target

# Threads of the timeline, one above the other.
_HOST, _LAYERS, _PHASES = 0, 1, 2


def chrome_trace(rows: Sequence[Row], target: Target, host_cycles: int) -> dict[str, Any]:
    """The trace of one step.

    Source: Trace Event Format, complete events ("X") and metadata ("M").

    Args:
        rows: In the order of execution.
        target: Whose clock gives the time.
        host_cycles: Of the copies between host and IPU, before the first row.

    Returns:
        What is written as JSON.
    """
    microseconds = 1e6 / target.clock_hz
    events = [
        event
        for ipu in sorted({0, *(row.ipu for row in rows)})
        for event in _names(ipu, target.name)
    ]
    if host_cycles:
        events.append(_event("host copies", _HOST, 0, host_cycles, microseconds, ipu=0))
    start = host_cycles
    for row in rows:
        layer = _event(
            row.layer or row.family, _LAYERS, start, row.cycles, microseconds, ipu=row.ipu
        )
        arguments = {"compute set": row.name, "cycles": row.cycles, "confidence": row.confidence}
        events.append({**layer, "args": arguments})
        for name, cycles in _phases(row):
            events.append(_event(name, _PHASES, start, cycles, microseconds, ipu=row.ipu))
            start += cycles
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _names(ipu: int, target: str) -> Iterator[dict[str, Any]]:
    """Of an IPU's process and its threads."""
    name = f"IPU {ipu} ({target})"
    yield {"ph": "M", "pid": ipu, "name": "process_name", "args": {"name": name}}
    for thread, name in ((_HOST, "host copies"), (_LAYERS, "layers"), (_PHASES, "phases")):
        arguments = {"name": name}
        yield {"ph": "M", "pid": ipu, "tid": thread, "name": "thread_name", "args": arguments}


def _phases(row: Row) -> Iterator[tuple[str, int]]:
    phases = ("sync", row.sync_cycles), ("exchange", row.exchange_cycles)
    yield from (phase for phase in (*phases, ("compute", row.compute_cycles)) if phase[1])


def _event(
    name: str, thread: int, start: int, cycles: int, microseconds: float, *, ipu: int
) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": ipu,
        "tid": thread,
        "name": name,
        "ts": start * microseconds,
        "dur": cycles * microseconds,
    }
