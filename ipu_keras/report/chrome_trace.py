"""A timeline in Chrome's trace event format."""

from collections.abc import Iterator
from typing import Any

from ipu_keras.report.timeline import MEMORY, TRACKS, IpuTimeline, Timeline


def chrome_trace(timeline: Timeline) -> dict[str, Any]:
    """Returns events in the form that chrome://tracing reads: a process for each IPU, times in µs.

    Source: Trace Event Format, complete events ("X"), counters ("C") and metadata ("M").
    """
    microseconds = 1e6 / timeline.clock_hz
    events = [
        {"pid": process, **event}
        for process, ipu in enumerate(timeline.ipus)
        for event in _events(ipu, microseconds)
    ]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _events(ipu: IpuTimeline, microseconds: float) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "args": {"name": ipu.name}}
    for thread, track in enumerate(TRACKS):
        yield {"ph": "M", "tid": thread, "name": "thread_name", "args": {"name": track}}
    for one in ipu.slices:
        yield {
            "ph": "X",
            "tid": TRACKS.index(one.track),
            "name": one.name,
            "ts": one.start * microseconds,
            "dur": one.cycles * microseconds,
            "args": dict(one.details),
        }
    for sample in ipu.memory:
        yield {
            "ph": "C",
            "name": MEMORY,
            "ts": sample.start * microseconds,
            "args": {"bytes": sample.num_bytes},
        }
