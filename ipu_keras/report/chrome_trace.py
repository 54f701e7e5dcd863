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
        {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": f"IPU 0 ({target.name})"}},
        *(
            {"ph": "M", "pid": 0, "tid": thread, "name": "thread_name", "args": {"name": name}}
            for thread, name in ((_HOST, "host copies"), (_LAYERS, "layers"), (_PHASES, "phases"))
        ),
    ]
    if host_cycles:
        events.append(_event("host copies", _HOST, 0, host_cycles, microseconds))
    start = host_cycles
    for row in rows:
        events.append(
            _event(row.layer or row.family, _LAYERS, start, row.cycles, microseconds, row)
        )
        for name, cycles in _phases(row):
            events.append(_event(name, _PHASES, start, cycles, microseconds))
            start += cycles
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _phases(row: Row) -> Iterator[tuple[str, int]]:
    phases = ("sync", row.sync_cycles), ("exchange", row.exchange_cycles)
    yield from (phase for phase in (*phases, ("compute", row.compute_cycles)) if phase[1])


def _event(
    name: str, thread: int, start: int, cycles: int, microseconds: float, row: Row | None = None
) -> dict[str, Any]:
    event = {
        "ph": "X",
        "pid": 0,
        "tid": thread,
        "name": name,
        "ts": start * microseconds,
        "dur": cycles * microseconds,
    }
    if row is not None:
        event["args"] = {"compute set": row.name, "cycles": cycles, "confidence": row.confidence}
    return event
