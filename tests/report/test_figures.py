"""Figures of programs that are built by hand."""

import json
from dataclasses import replace

import pytest
from hlo_graphs import argument, graph, op, variable
from small_reports import GC200, report

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.report.error_bands import error_bands
from ipu_keras.report.figures_in_words import throughput_in_words
from ipu_keras.report.report import Report
from ipu_keras.report.what_if import Choice, WhatIf


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


def test_samples():
    found = report(batch_size=1472)
    assert found.samples_per_second == pytest.approx(1472 * 1.33e9 / found.cycles_per_step)
    pace = throughput_in_words(found.samples_per_second, found.error_bands)
    assert f"{pace} samples/s, 1,472 in a step" in str(found)
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


@pytest.mark.parametrize(("latency", "bound"), [(160_000, "host"), (1, "ipu")])
def test_what_bounds_a_step(latency, bound):
    numbers = {"host_bytes_per_second": 1e15, "host_latency_cycles": latency}
    assert report(target=GC200.with_numbers(**numbers)).bound == bound


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


def test_the_verdict_has_the_range_of_whole_programs():
    """Programs whose fullest tile is modelled with 0.8 and 1.25 of what is published."""
    modelled = report().model.memory.max_tile_bytes
    program = error_bands().programs[0]
    known = [replace(program, fullest_tile_bytes=ratio) for ratio in (0.8, None, 1.25)]
    bands = replace(error_bands(), programs=tuple(known))

    def judged(tile_bytes):
        found = report(target=GC200.with_numbers(tile_bytes=tile_bytes))
        assert found.model.memory.max_tile_bytes == modelled
        return replace(found, error_bands=bands)

    least, most = round(modelled / 1.25), round(modelled / 0.8)
    assert judged(most).fullest_tile_range == (least, most)
    verdicts = {size: judged(size) for size in (most, most - 1, modelled - 1, least, least - 1)}
    assert [found.verdict for found in verdicts.values()] == [
        "fits",
        "too close to say",
        "too close to say",
        "too close to say",
        "does not fit",
    ]
    assert [found.fits for found in verdicts.values()] == [True, True, False, False, False]
    remark = (
        "Whether it fits is too close to say: by the errors of whole programs, its fullest tile "
        f"needs {least:,} to {most:,} bytes"
    )
    assert remark in verdicts[least].remarks
    assert remark not in verdicts[most].remarks
    assert "It fits, but too closely to say: " in str(verdicts[most - 1])
    memory = json.loads(verdicts[least].to_json())["memory"]
    assert (memory["verdict"], memory["fullest_tile_range"]) == ("too close to say", [least, most])
    unknown = replace(verdicts[least], error_bands=replace(bands, programs=()))
    assert (unknown.fullest_tile_range, unknown.verdict) == ((modelled, modelled), "does not fit")


def test_what_would_be_without_guessed_code():
    memory = report().model.memory
    without = memory.max_tile_bytes - memory.code_bytes
    found = report(target=GC200.with_numbers(tile_bytes=memory.max_tile_bytes - 1))
    assert not found.fits
    assert (
        f"Without its {memory.code_bytes:,} bytes of code, the fullest tile would need "
        f"{without:,} bytes, and the program would fit"
    ) in found.remarks
    larger = report(target=GC200.with_numbers(tile_bytes=without - 1))
    assert not any("Without its" in remark for remark in larger.remarks)


def test_a_program_on_two_ipus():
    """The worst tile is on the second; tiles are counted over both."""
    step = graph(
        argument("x", 1472, 16),
        variable("v", 1472, 16),
        variable("w", 1472, 64),
        op("a", "add", (1472, 16), "x", "v", layer="first"),
        op("b", "custom", (1472, 64), "a", "w", layer="second"),
    )
    found = Report.of(model_graph("step", step, GC200, CostOptions(num_ipus=2)))
    assert [(row.name, row.ipu) for row in found.rows] == [("a", 0), ("a@ipu1", 1), ("b", 1)]
    memory = json.loads(found.to_json())["memory"]
    assert (memory["worst_ipu"], memory["worst_tile"] // 1472) == (1, 1)
    assert f"The fullest tile is tile {memory['worst_tile'] - 1472} of IPU 1 of 2" in str(found)
    assert f"bytes on tile {memory['worst_tile'] - 1472} of IPU 1\n" in str(found)
    assert (found.num_ipus, found.to_dict()["num_ipus"], report().num_ipus) == (2, 2, 1)
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


def test_whose_values_fill_the_worst_tile():
    """A constant is of the layer that uses it, and no part of the infeed."""
    step = graph(
        argument("x", 64),
        op("counted", "iota", (64,), dimensions=(0,)),
        op("scale", "iota", (64,), dimensions=(0,)),
        op("y", "multiply", (64,), "x", "counted", layer="first"),
        op("z", "multiply", (64,), "y", "scale"),
        results=("y", "z"),
    )
    found = Report.of(model_graph("step", step, GC200.with_numbers(num_tiles=1)))
    # `y` is written over `x`, which fed it.
    names = ("(no layer)", "constants", "first", "the infeed")
    assert found.layers_of_worst_tile() == tuple((name, 256) for name in names)
