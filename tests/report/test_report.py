"""Reports of programs that are built by hand."""

import json
from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, inner_parameter, op, poplar_call, variable
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from ipu_keras.compiler.modelling import ModelOptions, model_graph
from ipu_keras.recompilation import Recompilation
from ipu_keras.report import SCHEMA_VERSION, Choice, Report, WhatIf
from ipu_keras.report.schedule_dot import schedule_dot
from ipu_keras.target import TARGETS

GC200 = TARGETS["gc200"]


def program():
    return graph(
        argument("x", 1472, 64),
        variable("w", 1472, 64, result=1),
        op("a", "add", (1472, 64), "x", "w", layer="first"),
        op("b", "sort", (1472, 64), "a", layer="second", dimensions=(0,)),
        op("c", "tanh", (1472, 64), "b", layer="first"),
        op("new", "multiply", (1472, 64), "w", "c", layer="sgd"),
        results=("c", "new"),
    )


def report(target=GC200, batch_size=None, **options):
    model = model_graph("step", program(), target, ModelOptions(**options))
    return Report.of(model, batch_size=batch_size)


def test_rows_are_the_compute_sets():
    rows = report().rows
    assert [row.name for row in rows] == ["a", "b", "c", "new"]
    assert [row.family for row in rows] == ["elementwise", "sort", "elementwise", "elementwise"]
    first = rows[0]
    assert first.cycles == first.compute_cycles + first.exchange_cycles + first.sync_cycles
    # 64 floats of `w` on each tile come from where they lie: 64 cycles and 157 on the way.
    assert (first.exchange_bytes, first.exchange_cycles) == (256, 64 + 157)
    assert first.flops == 1472 * 64


def test_totals_are_the_sums_of_rows():
    found = report(steps_per_execution=8)
    assert found.compute_cycles == sum(row.cycles for row in found.rows)
    assert found.cycles_per_step == found.compute_cycles + found.host_cycles
    assert found.seconds_per_step == found.cycles_per_step / 1.33e9
    assert found.flops_per_step == sum(row.flops for row in found.rows)
    assert found.cycles_per_execution == 8 * found.cycles_per_step
    assert found.seconds_per_execution == pytest.approx(8 * found.seconds_per_step)
    # 128 operations in a cycle of each tile, at half precision.
    assert found.peak_flops == 128 * 1472 * 1.33e9
    peak = 128 * 1472 * found.cycles_per_step
    assert found.utilisation == pytest.approx(found.flops_per_step / peak)


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


def test_samples():
    found = report(batch_size=1472)
    assert found.samples_per_second == pytest.approx(1472 * 1.33e9 / found.cycles_per_step)
    assert f"{found.samples_per_second:,.0f} samples/s, 1,472 in a step" in str(found)
    assert json.loads(found.to_json())["samples_per_second"] == found.samples_per_second
    assert report().samples_per_second is None
    assert "samples/s" not in str(report())
    with pytest.raises(ValueError, match=r"a positive integer.*Received: batch_size=0"):
        report(batch_size=0)


def test_a_program_that_takes_no_time():
    nothing = Report.of(model_graph("nothing", graph(variable("w", 3)), GC200), batch_size=4)
    assert (nothing.cycles_per_step, nothing.samples_per_second, nothing.utilisation) == (
        0,
        None,
        0,
    )
    assert nothing.liveness.tolist() == [0]
    choice = Choice({"batch_size": 4}, nothing)
    other = Choice({"batch_size": 1472}, report(batch_size=1472))
    assert WhatIf((other, choice)).best is choice
    assert "nothing" in str(WhatIf((choice, other)))
    assert nothing.to_dataframe(by="op").empty


def test_memory():
    found = report()
    memory = found.model.memory
    assert found.memory_by_tile.tolist() == memory.peak_by_tile.tolist()
    assert (found.memory_by_tile.shape, found.memory_by_tile.dtype) == ((1472,), "int64")
    # `x` is read and `a` written, 256 bytes of each on a tile; `w` is always live.
    tensor = 256 * 1472
    assert found.liveness.shape == (4,)
    assert found.liveness[0] == 2 * tensor + 1472 * found.rows[0].temporary_bytes
    assert set(memory.not_always_live_by_category) == {"activations", "message_buffers"}
    some_time = sum(memory.not_always_live_by_category.values())
    assert found.always_live_bytes + some_time == memory.total_bytes
    for array in (found.memory_by_tile, found.liveness):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_guesses_are_counted():
    found = report()
    guessed = sum(row.cycles for row in found.rows if row.confidence == "guessed")
    assert 0 < guessed <= found.compute_cycles
    assert found.guessed_share == guessed / found.compute_cycles


@pytest.mark.parametrize(("steps", "bound"), [(1, "host"), (100_000, "ipu")])
def test_what_bounds_a_step(steps, bound):
    found = report(target=GC200.with_numbers(host_bytes_per_second=1e15), steps_per_execution=steps)
    assert found.bound == bound


def test_groups():
    found = report()
    layers = {row.name: row for row in found.by("layer")}
    assert set(layers) == {"first", "second", "sgd"}
    first = layers["first"]
    assert first.family == "elementwise"
    assert first.cycles == found.rows[0].cycles + found.rows[2].cycles
    assert first.confidence == "derived"
    cycles = [row.cycles for row in found.by("layer")]
    assert cycles == sorted(cycles, reverse=True)
    (whole,) = found.by("backward")
    assert (whole.family, whole.confidence) == ("mixed", "guessed")


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


def test_a_program_that_does_not_fit():
    needed = report().model.memory.max_tile_bytes
    enough = report(target=GC200.with_numbers(tile_bytes=needed))
    assert enough.fits
    assert enough.memory_error is None
    lacks = report(target=GC200.with_numbers(tile_bytes=needed - 1))
    assert not lacks.fits
    tile = lacks.model.memory.worst_tile
    assert lacks.memory_error == (
        f"Memory allocation error : Out of memory on tile {tile}: {needed} bytes used but tiles "
        f"only have {needed - 1} bytes of memory"
    )
    assert lacks.memory_error in str(lacks).splitlines()


def test_the_text_of_the_ipu_stays_on_one_line():
    """Whoever looks for it finds it, though it is longer than other lines."""
    large = graph(argument("x", 1_472_000, 64), op("y", "tanh", (1_472_000, 64), "x"))
    found = Report.of(model_graph("step", large, GC200.with_numbers(tile_bytes=200_000)))
    needed = found.model.memory.max_tile_bytes
    assert needed > 200_000
    line = (
        f"Memory allocation error : Out of memory on tile {found.model.memory.worst_tile}: "
        f"{needed} bytes used but tiles only have 200000 bytes of memory"
    )
    assert len(line) > 110
    assert line in str(found).splitlines()


def test_regions_of_the_fullest_tile():
    found = report()
    regions = found.to_dict()["memory"]["worst_tile_by_region"]
    assert sum(regions.values()) == found.model.memory.max_tile_bytes
    assert regions["overflowed"] == 0
    line = f"Regions of that tile: non-interleaved {regions['non_interleaved']:,}, interleaved"
    assert line in str(found)


def test_code_that_does_not_fit():
    code = report().model.memory.code_bytes
    found = report(target=GC200.with_numbers(code_region_bytes=code - 1))
    assert not found.fits
    assert found.memory_error == (
        "tile 0 _poplar_start must be 0 not 638976 bytes from the start of memory. Typically this "
        f"error occurs when there is too much code to fit incode memory. : {code} bytes of code, "
        f"but tiles can read instructions from {code - 1} bytes only"
    )
    assert found.memory_error in str(found).splitlines()
    remark = "Bytes of code are a guess of the model: no sizes of code are published"
    assert remark in found.remarks
    assert remark not in report().remarks


def test_a_program_on_two_ipus():
    """The worst tile is on the second; tiles are counted over both."""
    step = graph(
        argument("x", 1472, 16),
        variable("v", 1472, 16),
        variable("w", 1472, 64),
        op("a", "add", (1472, 16), "x", "v", layer="first"),
        op("b", "custom", (1472, 64), "a", "w", layer="second"),
    )
    found = Report.of(model_graph("step", step, GC200, ModelOptions(num_ipus=2)))
    assert [(row.name, row.ipu) for row in found.rows] == [("a", 0), ("a@ipu1", 1), ("b", 1)]
    memory = json.loads(found.to_json())["memory"]
    assert (memory["worst_ipu"], memory["worst_tile"] // 1472) == (1, 1)
    assert f"The fullest tile is tile {memory['worst_tile'] - 1472} of IPU 1 of 2" in str(found)
    # The variable and the result, of 64 numbers on each tile, and what the first layer gives.
    assert found.layers_of_worst_tile() == (("second", 256 + 256 + 128),)
    # Both IPUs could work, but one waits for the other.
    alone = Report.of(model_graph("step", step, GC200))
    assert found.utilisation < alone.utilisation / 2
    events = json.loads(found.to_chrome_trace())["traceEvents"]
    assert {event["name"]: event["pid"] for event in events if event.get("tid") == 1} == {
        "thread_name": 1,
        "first": 0,
        "second": 1,
    }


def test_json():
    found = json.loads(report().to_json())
    assert found["schema"] == SCHEMA_VERSION
    assert found["cycles"]["per_step"] == report().cycles_per_step
    assert (found["batch_size"], found["samples_per_second"]) == (None, None)
    assert found["target"]["numbers"]["num_tiles"] == 1472
    assert found["target"]["numbers"]["amp_flops"]["float16/float32"] == 64
    assert "arXiv:1912.03413" in found["target"]["sources"]["num_workers"][0]
    assert found["memory"]["peak_by_tile"] == report().model.memory.peak_by_tile.tolist()
    assert [row["name"] for row in found["rows"]] == ["a", "b", "c", "new"]
    assert found["options"] == {
        "available_memory_proportion": 0.6,
        "steps_per_execution": 1,
        "dtype": None,
        "recomputation": False,
        "num_ipus": 1,
    }


def test_recompilations():
    again = Recompilation("step", ("x has the shape (2,) instead of (3,)", "y is given"))
    once = replace(report(), recompilations=(again,))
    twice = replace(once, recompilations=(again, again))
    assert json.loads(report().to_json())["recompilations"] == []
    assert json.loads(twice.to_json())["recompilations"] == [list(again.reasons)] * 2
    assert "Compiled again" not in str(report())
    line = "Compiled again once, last because x has the shape (2,) instead of (3,); y is given"
    assert line in str(once)
    assert "Compiled again 2 times, last" in str(twice)


def test_equal_programs_have_equal_json():
    assert report().to_json() == report().to_json()
    assert report().to_json() != report(steps_per_execution=2).to_json()


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


def test_text():
    text = str(report())
    assert "step on gc200" in text
    for part in ("second", "elementwise", "variables", "bound by the host"):
        assert part in text
    assert "An execution" not in text
    found = report(steps_per_execution=8)
    assert f"8 steps takes {8 * found.cycles_per_step:,} cycles" in str(found)


@pytest.mark.parametrize("name", ["[red]hi[/red] run :fire:", "[/x]", "\\[b]"])
def test_names_are_plain_text(name):
    step = graph(argument("x", 8), op("y", "sort", (8,), "x", layer=name, dimensions=(0,)))
    text = str(Report.of(model_graph(name, step, GC200)))
    assert text.startswith(f"{name} on gc200: ")
    assert f"│ {name} │" in text


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


def test_text_of_memory():
    memory = report().model.memory
    _, _, table = str(report()).partition("Memory of all tiles")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines()]
    lines = {name: sizes for name, *sizes in filter(None, cells)}
    assert lines["variables"] == ["376,832", ""]
    assert lines["activations"] == ["", f"{memory.bytes_by_category['activations']:,}"]
    always, others = (int(size.replace(",", "")) for size in lines["all"])
    assert always == report().always_live_bytes
    assert always + others == memory.total_bytes
