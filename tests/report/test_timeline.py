"""Timelines of rows that are made by hand, and the formats they are written in."""

import sys

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
from report_rows import row

from ipu_keras.report.chrome_trace import chrome_trace
from ipu_keras.report.perfetto_trace import perfetto_trace
from ipu_keras.report.timeline import Timeline, ipu_timeline

# Two nanoseconds for a cycle.
CLOCK = 0.5e9
ROWS = (
    row("a", sync=3, exchange=10, compute=20, layer="dense"),
    row("b", compute=7, family="sort", confidence="guessed"),
)


def timeline(num_ipus=1, clock_hz=CLOCK):
    ipu = ipu_timeline("IPU", ROWS, ipu=0, host_cycles=100, live_bytes=[512, 1 << 40])
    return Timeline(clock_hz=clock_hz, ipus=(ipu,) * num_ipus)


def test_what_happens_when():
    (ipu,) = timeline().ipus
    assert [(one.track, one.name, one.start, one.cycles) for one in ipu.slices] == [
        ("host copies", "host copies", 0, 100),
        ("layers", "dense", 100, 33),
        ("phases", "sync", 100, 3),
        ("phases", "exchange", 103, 10),
        ("phases", "compute", 113, 20),
        ("layers", "sort", 133, 7),
        ("phases", "compute", 133, 7),
    ]
    assert ipu.slices[5].details == {"compute set": "b", "cycles": 7, "confidence": "guessed"}
    assert [(one.start, one.num_bytes) for one in ipu.memory] == [(0, 512), (133, 1 << 40)]


def test_a_step_that_does_nothing():
    ipu = ipu_timeline("IPU", (), ipu=0, host_cycles=0, live_bytes=[64])
    assert ipu.slices == ()
    assert [(one.start, one.num_bytes) for one in ipu.memory] == [(0, 64)]


def test_an_ipu_waits_while_another_one_computes():
    rows = (ROWS[0], row("b", compute=7, layer="second", ipu=1), ROWS[0])
    second = ipu_timeline("IPU", rows, ipu=1, host_cycles=100, live_bytes=[1, 2, 3])
    assert [(one.track, one.name, one.start, one.cycles) for one in second.slices] == [
        ("layers", "second", 133, 7),
        ("phases", "compute", 133, 7),
    ]
    assert [one.start for one in second.memory] == [0, 133, 140]


def test_chrome():
    events = chrome_trace(timeline(num_ipus=2))["traceEvents"]
    assert [event["pid"] for event in events] == [0] * 13 + [1] * 13
    one = events[8]
    assert (one["ph"], one["tid"], one["name"], one["ts"]) == ("X", 2, "compute", 0.226)
    assert one["dur"] == 0.04
    assert [event["args"] for event in events if event["ph"] == "C"][:2] == [
        {"bytes": 512},
        {"bytes": 1 << 40},
    ]


def parsed(data):
    """Packets of a trace by what they are: descriptors of tracks, and events in their order."""
    trace = perfetto_trace_pb2.Trace.FromString(data)
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet}
    del tracks[0]  # of packets that have none
    events = [p for p in trace.packet if p.HasField("track_event")]
    assert len(tracks) + len(events) == len(trace.packet)
    return tracks, events


def test_perfetto():
    tracks, events = parsed(perfetto_trace(timeline()))
    process, *others = tracks.values()
    assert (process.process.pid, process.process.process_name) == (1, "IPU")
    assert [track.name for track in others] == ["host copies", "layers", "phases", "live memory"]
    assert {track.parent_uuid for track in others} == {process.uuid}
    assert [track.sibling_order_rank for track in others] == [0, 1, 2, 3]
    counter = others[-1].counter
    assert counter.unit == counter.UNIT_SIZE_BYTES
    shown = [
        (tracks[p.track_event.track_uuid].name, p.track_event.name, p.timestamp) for p in events
    ]
    # Nanoseconds, the beginning and the end of each slice.
    assert shown == [
        ("host copies", "host copies", 0),
        ("host copies", "", 200),
        ("layers", "dense", 200),
        ("layers", "", 266),
        ("phases", "sync", 200),
        ("phases", "", 206),
        ("phases", "exchange", 206),
        ("phases", "", 226),
        ("phases", "compute", 226),
        ("phases", "", 266),
        ("layers", "sort", 266),
        ("layers", "", 280),
        ("phases", "compute", 266),
        ("phases", "", 280),
        ("live memory", "", 0),
        ("live memory", "", 266),
    ]
    event = events[10].track_event
    assert [(one.name, one.string_value or one.int_value) for one in event.debug_annotations] == [
        ("compute set", "b"),
        ("cycles", 7),
        ("confidence", "guessed"),
    ]
    assert [p.track_event.counter_value for p in events[-2:]] == [512, 1 << 40]


def test_perfetto_counts_whole_nanoseconds():
    """5/3 of them for a cycle: the nearest one, so that a slice begins where the last one ended."""
    _, events = parsed(perfetto_trace(timeline(clock_hz=0.6e9)))
    assert [p.timestamp for p in events[:4]] == [0, 167, 167, 222]


def test_each_ipu_is_a_process_in_perfetto():
    tracks, events = parsed(perfetto_trace(timeline(num_ipus=2)))
    assert sorted(track.process.pid for track in tracks.values() if track.process.pid) == [1, 2]
    assert len(tracks) == 10
    assert {p.track_event.track_uuid for p in events} < set(tracks)


def test_perfetto_needs_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "perfetto.trace_builder.proto_builder", None)
    with pytest.raises(ImportError, match=r'trace needs perfetto, .*"ipu-keras\[report\]"'):
        perfetto_trace(timeline())
