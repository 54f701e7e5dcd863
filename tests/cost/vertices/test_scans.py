"""What cumulative sums cost, against figures that were computed by hand."""

import math

import pytest
from graph_costs import GC200, LAUNCH, SYNC, TILES, WAY, costs
from hlo_graphs import argument, op
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.vertices.scans import scan_cost
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import Confidence

# 64 additions in six parts of 11 with what comes before them: 11 + 6 * (33 + 11 * 3), a start, and
# an addition of 6 vectors for each worker, 11 + 6 * (29 + 6 * 3).
OF_64, ADDED_TO_64 = 407 + LAUNCH + 293, 293


def sums(*shape, axis, dtype="float32"):
    return scan_cost(GC200, operations=["add"], source=TensorSpec(shape, dtype), axis=axis)


def test_scans_that_are_whole_on_their_tiles():
    assert sums(TILES, 64, axis=1) == Cost(
        compute_cycles=OF_64 + LAUNCH,
        num_vertices=1,
        confidence=Confidence.GUESSED,
        detail="1 stages",
    )


def test_what_lies_apart_comes_together():
    # A tile has 256 bytes of a row, and gets as much of a column.
    assert sums(64, TILES, axis=0) == Cost(
        compute_cycles=OF_64 + LAUNCH,
        exchange_cycles=64 + WAY,
        sync_cycles=SYNC,
        exchange_bytes=256,
        num_vertices=1,
        confidence=Confidence.GUESSED,
        detail="1 stages",
    )


def test_one_long_scan_meets_in_two_stages():
    # 1472 tiles have 64 elements each. In two stages 39 of their sums meet, and then 38, and
    # what comes before them goes back the same way. Of 39 and of 38, a worker has 7:
    # 11 + 6 * (33 + 7 * 3), a start, and 4 vectors, 11 + 6 * (29 + 4 * 3).
    # In one stage the compute sets would take 8434 cycles, in three 5954 with their exchanges.
    of_39, added_to_39 = 335 + LAUNCH + 257, 257
    compute = OF_64 + 2 * of_39 + added_to_39 + ADDED_TO_64 + 5 * LAUNCH
    assert compute == 3082
    assert sums(TILES * 64, axis=0) == Cost(
        compute_cycles=compute,
        exchange_cycles=2 * (39 + WAY + 38 + WAY),
        sync_cycles=4 * SYNC,
        exchange_bytes=4 * 39,
        num_vertices=5,
        confidence=Confidence.GUESSED,
        detail="5 stages",
    )


def test_a_small_tensor_is_on_one_tile():
    # 32 floats are 128 bytes: 11 + 6 * (33 + 6 * 3), a start, 11 + 6 * (29 + 3 * 3), a start.
    found = sums(32, axis=0)
    assert (found.compute_cycles, found.exchange_cycles, found.num_vertices) == (
        317 + 239 + 2 * 81,
        0,
        1,
    )


@given(st.integers(2, 4000), st.integers(1, 4000), st.integers(0, 1))
def test_no_cheaper_than_additions_and_no_dearer_than_one_worker(length, num_scans, axis):
    shape = (num_scans, length) if axis else (length, num_scans)
    source = TensorSpec(shape, "float32")
    found = scan_cost(GC200, operations=["add"], source=source, axis=axis)
    tiles = max(1, min(TILES, math.ceil(source.nbytes / 128)))
    # At least a worker's share of loads, additions and stores; at most each scan by one worker.
    share = math.ceil(length * num_scans / tiles / GC200.num_workers)
    assert found.compute_cycles > 3 * share
    whole = 3 * GC200.num_workers * length * math.ceil(num_scans / tiles)
    assert found.compute_cycles + found.exchange_cycles < whole + 4000


@pytest.mark.parametrize(
    ("dtype", "exchange_bytes"),
    # A tile has 128 bytes of the halves: 1472 tiles, and 39 sums meet as above. Integers of two
    # words take 18 cycles each, so that three stages, in which 12 meet, are faster.
    [("float16", 2 * 39), ("float32", 4 * 39), ("int64", 8 * 12)],
)
def test_sums_of_parts_have_the_size_of_the_elements(dtype, exchange_bytes):
    assert sums(TILES * 64, axis=0, dtype=dtype).exchange_bytes == exchange_bytes


def scanned(operation, *shape, **attributes):
    """Along the last axis."""
    size, before = (1,) * (len(shape) - 1) + shape[-1:], ((0, 0),) * (len(shape) - 1)
    window = {"window_size": size, "window_padding": (*before, (shape[-1] - 1, 0))}
    return costs(
        argument("x", *shape),
        op("zero", "constant", (), value=0.0),
        op("y", "reduce-window", shape, "x", "zero", operation=operation, **window, **attributes),
    )["y"]


def test_a_cumulative_sum_is_a_scan():
    # A row of 64 floats for each tile: 407 cycles for its parts, 293 for what is added to them.
    found = scanned("add", TILES, 64)
    assert found.compute_cycles == 407 + 293 + 2 * LAUNCH
    assert (found.exchange_cycles, found.sync_cycles, found.tiles) == (0, 0, TILES)
    assert (found.vertex, found.detail) == ("scan add float32", "1 stages")
    assert found.confidence is Confidence.GUESSED
    # Divided among tiles: in each, on the way up and down, and in two between them.
    assert scanned("add", TILES * 64).detail == "5 stages"


def test_a_scan_by_a_computation_of_its_own_counts_its_operations():
    # Of 16 rows on a tile, a worker has three: loads and stores, an addition and a logarithm.
    parts = scanned("custom", TILES * 16, 2, operations=("add", "log-plus-one"))
    per_tile = vertices.scan(
        GC200,
        operations=["add", "log-plus-one"],
        dtype="float32",
        num_scans=16,
        num_elements=2,
    )
    assert per_tile.cycles == 11 + 6 * (33 + 3 * 2 * (2 + 1 + 13))
    assert parts.compute_cycles == per_tile.cycles + LAUNCH
    # One of which nothing is known counts as code that nobody scheduled.
    unknown = scanned("custom", TILES * 16, 2)
    assert unknown.compute_cycles == 11 + 6 * (33 + 3 * 2 * (2 + 5)) + LAUNCH
