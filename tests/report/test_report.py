"""Reports of programs that are built by hand, in their other forms."""

import json
from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, inner_parameter, op, poplar_call
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
from small_reports import GC200, report

from ipu_keras.cost.passes import model_graph
from ipu_keras.report.report import Report
from ipu_keras.report.schedule_dot import schedule_dot


def test_an_operation_of_poplars_libraries_is_one_row(tmp_path):
    """Under its own name everywhere, however much it consists of."""
    body = graph(
        inner_parameter("p", 1472, 64),
        op("a", "reverse", (1472, 64), "p", dimensions=(0,)),
        op("b", "reverse", (1472, 64), "a", dimensions=(0,)),
    )
    lstm = poplar_call("model/lstm/PopnnLSTM", "PopnnLSTM", "x", shapes=[(1472, 64)])
    step = graph(
        argument("x", 1472, 64),
        replace(lstm, layer="model/lstm"),
        op("y", "sort", (1472, 64), "model/lstm/PopnnLSTM", dimensions=(0,)),
        functions={"body": body},
    )
    found = Report.of(model_graph("step", step, GC200))
    row = found.rows[0]
    assert (row.name, row.family) == ("model/lstm/PopnnLSTM", "PopnnLSTM")
    assert (row.layer, row.confidence, row.detail) == ("model/lstm", "derived", "2 compute sets")
    assert len(found.rows) == 2
    assert {group.name for group in found.by("family")} == {"PopnnLSTM", "sort"}
    found.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    for text in (str(found), found.to_json(), page, schedule_dot(found.model)):
        assert "PopnnLSTM" in text


def test_data_frames():
    found = report()
    frame = found.to_dataframe()
    assert frame["name"].tolist() == [row.name for row in found.by("layer")]
    assert frame["cycles"].sum() == found.compute_cycles
    assert frame["share"].sum() == pytest.approx(1)
    assert frame["seconds"].sum() == pytest.approx(found.compute_cycles / 1.33e9)
    assert found.to_dataframe(by="op", sort=None)["name"].tolist() == ["a", "b", "c", "new"]


def test_differences():
    before = report(batch_size=4, steps_per_execution=2)
    after = report(target=GC200.with_numbers(memcpy_bytes=4), batch_size=8)
    found = before.diff(after)
    assert found.names == ("step on gc200", "step on gc200")
    assert found.settings == {
        "batch_size": (4, 8),
        "steps_per_execution": (2, 1),
        "target.memcpy_bytes": (8, 4),
    }
    for name in ("cycles_per_step", "seconds_per_execution", "samples_per_second", "utilisation"):
        change = found.totals[name]
        assert (change.before, change.after) == (getattr(before, name), getattr(after, name))
    assert set(found.layers) == {"first", "second", "sgd"}
    assert found.memory["variables"].before == 376_832
    # Layers add up to the IPU's part of the step, and so do families.
    for changes in (found.layers, found.families):
        assert sum(one.change for one in changes.values()) == found.totals["compute_cycles"].change
    with pytest.raises(TypeError, match=r"another `Report`.*Received: other=5, of type int"):
        before.diff(5)


def test_the_timeline_of_a_step():
    found = report()
    events = json.loads(found.to_chrome_trace())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["ph"] == "M"]
    assert names == ["IPU 0 (gc200)", "host copies", "layers", "phases"]
    host, *layers = (event for event in events if event["ph"] == "X" and event["tid"] < 2)
    assert host["dur"] == pytest.approx(1e6 * found.host_cycles / 1.33e9)
    assert [event["name"] for event in layers] == ["first", "second", "first", "sgd"]
    phases = [event for event in events if event["ph"] == "X" and event["tid"] == 2]
    assert [event["name"] for event in phases[:3]] == ["sync", "exchange", "compute"]
    # Each phase begins where the one before ended, and the last one ends with the step.
    end = host["dur"]
    for event in phases:
        assert event["ts"] == pytest.approx(end)
        end = event["ts"] + event["dur"]
    assert end == pytest.approx(1e6 * found.seconds_per_step)


def test_the_file_for_perfetto(tmp_path):
    found = report()
    for name in ("first", "second"):
        found.to_perfetto(tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    trace = perfetto_trace_pb2.Trace.FromString((tmp_path / "first").read_bytes())
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet}
    times = dict.fromkeys(("host copies", "layers", "phases"), 0)
    for packet in trace.packet:
        event = packet.track_event
        sign = {event.TYPE_SLICE_BEGIN: -1, event.TYPE_SLICE_END: 1}.get(event.type)
        if sign:
            times[tracks[event.track_uuid].name] += sign * packet.timestamp
    # Nanoseconds add up to the step's, and are rounded at either end only.
    assert times["phases"] == times["layers"]
    assert times["host copies"] + times["phases"] == round(1e9 * found.seconds_per_step)
    counters = [p.track_event for p in trace.packet if p.track_event.HasField("counter_value")]
    memory = found.model.memory
    always = memory.always_live_by_tile.sum()
    assert [one.counter_value for one in counters] == [
        always + live for live in memory.live_by_position
    ]


def test_repr():
    found = report()
    memory = found.model.memory
    assert repr(found) == (
        f"<Report of 'step' on gc200: {found.cycles_per_step:,} cycles per step, "
        f"{found.seconds_per_step * 1e3:.3f} ms; fits, {memory.max_tile_bytes:,} of 638,976 bytes "
        "on the fullest tile>"
    )
    lacks = report(target=GC200.with_numbers(tile_bytes=1000))
    assert f" ms; does not fit, {lacks.model.memory.max_tile_bytes:,} of 1,000 " in repr(lacks)
