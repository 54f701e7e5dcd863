"""Tiles for input and output: what of the host's copies passes while others compute."""

import dataclasses
import doctest
import itertools
import math

import pytest
from hlo_graphs import argument, graph, op

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.tile import io_tiles
from ipu_keras.cost.tile.io_tiles import StepCopies
from ipu_keras.machine.target import TARGETS
from ipu_keras.report.plain_options import plain_options
from ipu_keras.report.report import Report

GC200 = TARGETS["gc200"]


def test_example():
    assert doctest.testmod(io_tiles).failed == 0


def naive_waiting_cycles(num_steps, fed, fetched, compute):
    """Steps one by one: beside step k, step k + 1 is fed and step k - 1 is fetched."""
    cycles = fed
    for k in range(num_steps):
        beside = (fed if k + 1 < num_steps else 0) + (fetched if k > 0 else 0)
        cycles += max(compute, beside)
    return cycles + fetched - num_steps * compute


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7])
def test_what_waits(num_steps):
    for fed, fetched, compute in itertools.product((0, 30, 90), (0, 40, 100), (0, 50, 130, 500)):
        copies = StepCopies(num_steps, 1, 1, fed, fetched)
        expected = naive_waiting_cycles(num_steps, fed, fetched, compute)
        assert copies.waiting_cycles(compute) == expected
        assert 0 <= expected <= copies.cycles


def test_exchange_with_the_tiles_that_compute():
    """Each of 32 tiles sends 1000 bytes, 4 in a cycle; receives 1; each time all wait."""
    copies = StepCopies(1, 32_000, 32, 0.0, 0.0)
    way, sync = 157, 126
    assert copies.exchange_cycles(GC200, 32) == (250 + way + sync) + (3 + way + sync)
    # Of fewer tiles each sends more; what is not copied costs nothing.
    assert copies.exchange_cycles(GC200, 16) == (500 + way + sync) + (3 + way + sync)
    assert StepCopies(1, 0, 32, 0.0, 0.0).exchange_cycles(GC200, 32) == 3 + way + sync


def step(rows=512):
    """Takes `rows` x 1024 numbers, returns their tanh."""
    return graph(argument("x", rows, 1024), op("y", "tanh", (rows, 1024), "x"), results=("y",))


def modelled(rows=512, **options):
    return model_graph("step", step(rows), GC200, CostOptions(**options))


ON_IO_TILES = {"num_io_tiles": 64, "place_ops_on_io_tiles": True}
# Of 2 MiB at 7 GB/s, with beginning and end.
MOVING = 160_000 + 4 * 512 * 1024 / 7e9 * 1.33e9
# Of the seed, once an execution.
SEED = 160_000 + 8 / 7e9 * 1.33e9
# Of 64 tiles each has 32 KiB, and 157 + 126 cycles each time.
BETWEEN = 2 * (32 * 1024 // 4 + 157 + 126)


def test_a_step_that_takes_less_than_its_copies():
    """Then copies follow each other without a pause, one pair of them for each step."""
    plain, found = modelled(steps_per_execution=10), modelled(steps_per_execution=10, **ON_IO_TILES)
    compute = plain.compute_cycles
    assert compute < MOVING
    assert plain.host_cycles == pytest.approx(2 * MOVING + SEED / 10, abs=1)
    # Feeding 1 and 2, eight times both, fetching 9 and 10; one computation of each is hidden.
    waiting = 20 * MOVING - 10 * compute
    assert found.host_cycles == pytest.approx((waiting + SEED) / 10 + BETWEEN, abs=1)
    assert found.hidden_host_cycles == pytest.approx(compute, abs=1)
    assert found.compute_cycles == compute
    assert Report.of(found).bound == Report.of(plain).bound == "host"


def test_a_step_that_takes_longer_hides_all_but_the_first_and_the_last():
    fast = dataclasses.replace(GC200, host_bytes_per_second=7e12, host_latency_cycles=0)
    plain, found = (
        model_graph("step", step(), fast, CostOptions(steps_per_execution=10, **options))
        for options in ({}, {**ON_IO_TILES, "num_io_tiles": 1024})
    )
    moving = (MOVING - 160_000) / 1000
    between = 2 * (2 * 1024 // 4 + 157 + 126)
    assert plain.compute_cycles > 2 * moving
    assert found.host_cycles == pytest.approx(2 * moving / 10 + between, abs=1)
    assert found.hidden_host_cycles == pytest.approx(2 * moving * 9 / 10, abs=1)
    assert Report.of(found).bound == "ipu"


def test_a_single_step_hides_nothing():
    plain, found = modelled(), modelled(**ON_IO_TILES)
    assert (found.hidden_host_cycles, found.host_cycles) == (0, plain.host_cycles + BETWEEN)


def test_tiles_that_nothing_is_placed_on():
    plain, found = modelled(), modelled(num_io_tiles=64)
    assert (found.host_cycles, found.io_tile_bytes) == (plain.host_cycles, 0)


def test_more_data_than_the_tiles_may_hold():
    """A step of 2 x 2 MiB needs 4 MiB; 64 tiles have 40,894,464 bytes, a tenth is less."""
    held, capacity = 4 << 20, 64 * 638_976
    plain = modelled()
    for proportion, fits in ((0.2, True), (0.1, False), (0, False)):
        found = modelled(**ON_IO_TILES, io_tile_available_memory_proportion=proportion)
        assert (found.io_tile_bytes, found.io_tile_capacity) == (held, int(capacity * proportion))
        assert (found.host_cycles == plain.host_cycles) is not fits


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_io_tiles": 64}, "which is on the others: `place_ops_on_io_tiles` is not set"),
        (
            {**ON_IO_TILES, "io_tile_available_memory_proportion": 0.1},
            "which is on the others: it is 4,194,304 bytes, and these tiles may hold 4,089,446",
        ),
        (ON_IO_TILES, "cycles per step of the host's copies pass while the others compute"),
    ],
)
def test_reports_say_what_became_of_them(options, sentence):
    report = Report.of(modelled(steps_per_execution=4, **options))
    [remark] = report.remarks
    assert remark.startswith("64 more tiles of each IPU are for input and output")
    assert remark.endswith(sentence)
    cycles = report.to_dict()["cycles"]
    assert cycles.get("hidden_host") == (
        report.model.hidden_host_cycles if "place_ops_on_io_tiles" in options else None
    )
    assert plain_options(report.model.options)["num_io_tiles"] == 64


def test_reports_without_them_are_as_before():
    report = Report.of(modelled())
    assert report.remarks == ()
    assert "hidden_host" not in report.to_dict()["cycles"]
    assert not {name for name in plain_options(report.model.options) if "io_tile" in name}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_io_tiles": -1}, "`num_io_tiles` must be an integer, 0 or more. .*num_io_tiles=-1"),
        ({"num_io_tiles": 3.0}, "Received: num_io_tiles=3.0"),
        (
            {"place_ops_on_io_tiles": True},
            "needs tiles for input and output: set `num_io_tiles`. Received: "
            "place_ops_on_io_tiles=True, num_io_tiles=0",
        ),
        ({"place_ops_on_io_tiles": 1}, "`place_ops_on_io_tiles` must be True or False"),
        ({"io_tile_available_memory_proportion": 1.1}, "must be a number from 0 to 1. .*=1.1"),
        ({"io_tile_available_memory_proportion": math.nan}, "a number from 0 to 1. .*=nan"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        CostOptions(**options)
