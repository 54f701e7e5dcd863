"""What lies on which tile, against arithmetic by hand."""

import dataclasses

import numpy as np
import pytest
from hlo_graphs import argument, graph, op, spec, variable
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.flat.compute_sets import FlatProgram, Value
from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.liveness import lifetimes
from ipu_keras.cost.flat.memory import (
    Overhead,
    Region,
    gap_after,
    joined,
    map_linearly,
    plan_memory,
)
from ipu_keras.machine.target import TARGETS

SMALL = dataclasses.replace(TARGETS["gc200"], num_tiles=4)


def test_values_are_spread_over_tiles_that_follow_each_other():
    values = [
        Value("a", spec(1)),  # 4 bytes on one tile
        Value("b", spec(100)),  # 400 bytes: at least 128 on each of 4 tiles
        Value("over_b", spec(100)),
        Value("c", spec(64)),  # 256 bytes on two
        Value("d", spec(1000)),  # 4000 bytes on all four
        Value("empty", spec(0)),
    ]
    program = FlatProgram(values={v.name: v for v in values}, in_place={"over_b": "b"})
    assert map_linearly(program, SMALL) == {
        "a": Region(0, 1, 4),
        "b": Region(1, 4, 100),
        "over_b": Region(1, 4, 100),
        "c": Region(1, 2, 128),
        "d": Region(3, 4, 1000),
        "empty": Region(3, 1, 0),
    }


def planned(program, overhead=None, temporary=None, messages=None, receivers=None, target=SMALL):
    regions = map_linearly(program, target)
    return plan_memory(
        program,
        regions,
        target,
        lifetimes(program),
        temporary_bytes=temporary or [0] * len(program.compute_sets),
        message_bytes=messages or [0] * len(program.compute_sets),
        receivers=receivers or [None] * len(program.compute_sets),
        overhead=overhead or Overhead(),
    )


def test_messages_that_some_tiles_receive():
    program = flatten(graph(argument("x", 250), op("y", "tanh", (250,), "x")))
    # x and y: 1000 bytes on four tiles each.
    plan = planned(program, messages=[100], receivers=[3])
    assert plan.peak_by_tile.tolist() == [600, 600, 600, 500]
    assert plan.bytes_by_category["message_buffers"] == 300


def test_a_variable_and_a_product():
    """What pencil and paper give for a variable of 4000 bytes and one product with it."""
    program = flatten(
        graph(
            argument("x", 250),
            variable("w", 1000),
            op("y", "dot", (500,), "x", "w", lhs_contracting_dimensions=()),
        )
    )
    plan = planned(program, Overhead(stack=3000, vertex_code=500), temporary=[64])
    # x: 1000 bytes, y: 2000, w: 4000, on four tiles each.
    assert plan.always_live_by_tile.tolist() == [1000 + 3500] * 4
    assert plan.peak_by_tile.tolist() == [1000 + 3500 + 250 + 500 + 64] * 4
    assert plan.live_by_position.tolist() == [4 * (250 + 500 + 64)]
    assert plan.bytes_by_category == {
        "variables": 4000,
        "constants": 0,
        "activations": 4 * (250 + 500 + 64),
        "vertex_code": 2000,
        "vertex_state": 0,
        "control_code": 0,
        "exchange_code": 0,
        "message_buffers": 0,
        "gaps": 0,
        "stack": 12000,
    }
    assert plan.total_bytes == sum(plan.bytes_by_category.values())
    assert plan.not_always_live_by_category == {
        "activations": plan.bytes_by_category["activations"],
        "message_buffers": 0,
    }
    assert sum(plan.always_live_by_category.values()) == plan.always_live_by_tile.sum()
    assert plan.fits


def test_messages_take_memory_while_they_are_needed():
    # a: x (100 bytes on each tile), its own 100, and 30 that arrive; b: 200 and 20.
    program = flatten(
        graph(
            argument("x", 100),
            op("a", "reverse", (100,), "x", dimensions=(0,)),
            op("b", "reverse", (100,), "a", dimensions=(0,)),
        )
    )
    plan = planned(program, messages=[30, 20])
    assert plan.live_by_position.tolist() == [4 * 230, 4 * 220]
    assert plan.peak_by_tile.tolist() == [230] * 4
    assert plan.bytes_by_category["message_buffers"] == 4 * 30
    assert plan.bytes_by_category["activations"] == 4 * 200


@pytest.mark.parametrize(("code", "gap"), [(0, 0), (1, 16383), (16384, 0), (20000, 12768)])
def test_values_begin_in_the_element_after_the_code(code, gap):
    assert gap_after(code, SMALL) == gap


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_code_has_a_region_of_its_own(spare, fits):
    program = flatten(graph(variable("w", 4), results=("w",)))
    overhead = Overhead(vertex_code=300, control_code=20, exchange_code=1, stack=3000, gaps=5)
    target = dataclasses.replace(SMALL, code_region_bytes=321 + spare)
    plan = planned(program, overhead, target=target)
    assert plan.code_bytes == 321
    assert (plan.code_fits, plan.fits) == (fits, fits)
    assert plan.max_tile_bytes < plan.tile_bytes


@pytest.mark.parametrize(
    ("size", "regions"),
    [
        # 1000 bytes, of which code, 280 bytes of it, can be in 300; 20 of stack are beside it.
        (100, (0, 100 + 20)),
        (680, (0, 680 + 20)),
        (681, (1, 700)),
        (700, (20, 700)),
    ],
)
def test_regions_of_the_worst_tile(size, regions):
    code, (beside_code, interleaved) = 280, regions
    program = flatten(graph(variable("w", size), results=("w",)))
    target = dataclasses.replace(SMALL, tile_bytes=1000, code_region_bytes=300)
    plan = planned(program, Overhead(control_code=code, stack=20), target=target)
    assert plan.fits
    assert plan.bytes_by_region == {
        "non_interleaved": code + beside_code,
        "interleaved": interleaved,
        "overflowed": 0,
    }


def test_what_does_not_fit_overflows_both_regions():
    program = flatten(graph(variable("w", 1000), results=("w",)))
    target = dataclasses.replace(SMALL, tile_bytes=1000, code_region_bytes=300)
    plan = planned(program, Overhead(control_code=7), target=target)
    assert not plan.fits
    assert plan.bytes_by_region == {"non_interleaved": 300, "interleaved": 700, "overflowed": 7}


def test_a_program_that_computes_nothing():
    plan = planned(flatten(graph(argument("x", 1000))))
    assert plan.peak_by_tile.tolist() == [1000] * 4
    assert plan.live_by_position.tolist() == [4000]


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_the_worst_tile_decides(spare, fits):
    # 4 bytes on tile 0 beside 1000 on each of four tiles.
    program = flatten(graph(variable("s"), variable("w", 1000), results=("w",)))
    target = dataclasses.replace(SMALL, tile_bytes=1004 + spare)
    plan = planned(program, target=target)
    assert (plan.worst_tile, plan.max_tile_bytes, plan.fits) == (0, 1004, fits)


def test_two_ipus():
    """Tile 6 is the third one of IPU 1."""
    small = planned(flatten(graph(variable("v", 100), results=("v",))))
    large = planned(flatten(graph(variable("s"), variable("w"), variable("t", 64), results=("w",))))
    both = joined([small, large])
    assert both.peak_by_tile.tolist() == [100] * 4 + [4, 4, 128, 128]
    assert (both.worst_tile, both.worst_ipu, both.max_tile_bytes) == (6, 1, 128)
    assert (small.worst_ipu, small.num_ipus, both.num_ipus) == (0, 1, 2)
    assert (both.num_tiles_of_ipu, both.max_bytes_by_ipu.tolist()) == (4, [100, 128])
    assert both.bytes_by_category["variables"] == 400 + 264
    assert both.live_by_position.tolist() == [0]


@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=12).filter(any),
    reads=st.lists(st.integers(0, 11), min_size=12, max_size=12),
    tiles=st.integers(1, 9),
    on_ipu=st.sets(st.integers(0, 12)),
    temporary=st.lists(st.sampled_from([0, 0, 7]), min_size=12, max_size=12),
)
def test_live_bytes_are_those_of_a_naive_count(sizes, reads, tiles, on_ipu, temporary):
    """Each operation reads one that came before it; other values are on another IPU."""
    target = dataclasses.replace(SMALL, num_tiles=tiles)
    ops = [argument("v0", 8)]
    for k, (size, read) in enumerate(zip(sizes, reads, strict=False)):
        ops.append(op(f"v{k + 1}", "reverse", (size,), f"v{read % (k + 1)}"))
    program = flatten(graph(*ops))
    values = {name: v for name, v in program.values.items() if int(v.name[1:]) in on_ipu}
    program = dataclasses.replace(program, values=values)
    regions = map_linearly(program, target)
    temporary = temporary[: len(program.compute_sets)]
    expected = np.zeros((len(program.compute_sets), tiles), np.int64)
    expected += np.array(temporary)[:, None]
    for name, lifetime in lifetimes(program).items():
        region = regions[name]
        for position in range(lifetime.first, lifetime.last + 1):
            for tile in range(region.first_tile, region.first_tile + region.num_tiles):
                expected[position, tile % tiles] += region.bytes_per_tile
    plan = planned(program, temporary=temporary, target=target)
    assert plan.peak_position == expected[:, expected.max(axis=0).argmax()].argmax()
    np.testing.assert_array_equal(plan.live_by_position, expected.sum(axis=1))
    np.testing.assert_array_equal(plan.peak_by_tile, expected.max(axis=0))
