"""Reports of programs that are built by hand."""

import json

import pytest
from hlo_graphs import argument, graph, op, variable

from ipu_keras.compiler.modelling import ModelOptions, model_graph
from ipu_keras.report import SCHEMA_VERSION, Report
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


def report(target=GC200, **options):
    return Report.of(model_graph("step", program(), target, ModelOptions(**options)))


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
    # 128 operations in a cycle of each tile, at half precision.
    peak = 128 * 1472 * found.cycles_per_step
    assert found.utilisation == found.flops_per_step / peak


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
    with pytest.raises(ValueError, match=r"backward, confidence\. Received: 'tile'"):
        found.by("tile")


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
    assert lacks.memory_error[:70] in str(lacks)


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
    assert f"That is tile {memory['worst_tile'] - 1472} of IPU 1 of 2" in str(found)
    assert dict(found.layers_of_worst_tile())["variables"] == 256
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


def test_text():
    text = str(report())
    assert "step on gc200" in text
    for part in ("second", "elementwise", "variables", "376,832", "bound by the host"):
        assert part in text
