"""What sorts cost, against figures that were computed by hand."""

import math
from dataclasses import replace

from graph_costs import GC200, LAUNCH, SYNC, TILES, WAY, costs
from hlo_graphs import argument, op
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.vertices.sorts import sort_cost
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import Confidence


def one_pass(pairs: int, selections: int = 2) -> int:
    """A comparison of integers takes 5 cycles, as does a selection. A worker has so many pairs."""
    return 11 + 6 * (29 + 5 * pairs * (1 + selections))


def sort(*shape, axis=0, dtypes=("int32",), num_largest=None) -> Cost:
    operands = [TensorSpec(shape, dtype) for dtype in dtypes]
    return sort_cost(GC200, operands=operands, axis=axis, num_largest=num_largest)


def test_sorts_that_are_whole_on_their_tiles():
    # Of 32 there are five levels, 1 + 2 + 3 + 4 + 5 passes of 16 pairs, 3 for a worker.
    assert sort(TILES, 32, axis=1) == Cost(
        compute_cycles=15 * one_pass(3) + LAUNCH,
        exchange_cycles=0,
        sync_cycles=0,
        exchange_bytes=0,
        num_vertices=1,
        confidence=Confidence.GUESSED,
        detail="1 stages",
    )


def test_what_lies_apart_comes_together():
    found = sort(32, TILES)
    assert found.compute_cycles == 15 * one_pass(3) + LAUNCH
    assert (found.exchange_cycles, found.exchange_bytes) == (32 + WAY, 128)


def test_a_long_sort_is_divided():
    # 128 on four tiles: 28 passes, of which the first of level 6 and the first two of level 7
    # compare with other tiles: 32 pairs, 6 for a worker, of which the tile keeps one element each.
    # On two tiles the passes would take 20,420 cycles, on one 32,900.
    compute = 25 * one_pass(3) + 3 * one_pass(6, selections=1)
    assert compute == 13_010
    assert sort(128) == Cost(
        compute_cycles=compute + 4 * LAUNCH,
        exchange_cycles=3 * (32 + WAY),
        sync_cycles=3 * SYNC,
        exchange_bytes=128,
        num_vertices=4,
        confidence=Confidence.GUESSED,
        detail="4 stages",
    )


def test_what_goes_with_the_keys():
    # The same with a number for each key: twice the selections, twice the bytes.
    found = sort(128, dtypes=("int32", "float32"))
    compute = 25 * one_pass(3, selections=4) + 3 * one_pass(6, selections=2)
    assert found.compute_cycles == compute + 4 * LAUNCH
    assert (found.exchange_cycles, found.exchange_bytes) == (3 * (64 + WAY), 256)


def test_the_largest_of_each_sort():
    # Of 16, 8, 4, 2 and 1 pairs, in turn, the larger remain.
    found = sort(TILES, 32, axis=1, num_largest=1)
    assert found.compute_cycles == one_pass(3) + one_pass(2) + 3 * one_pass(1) + LAUNCH
    # Runs of four, in 1 + 2 passes of 16 pairs. Of two such runs the larger halves remain, and are
    # sorted in two passes: twice 3, then 2 pairs, then 1, for a worker.
    found = sort(TILES, 32, axis=1, num_largest=3)
    runs = 3 * one_pass(3)
    merged = [one_pass(3), 2 * one_pass(2), one_pass(2), 2 * one_pass(1), 3 * one_pass(1)]
    assert found.compute_cycles == runs + sum(merged) + LAUNCH


def test_one_element_and_none_are_sorted_already():
    for shape in ((1,), (TILES, 1), (0,), (3, 0)):
        found = sort(*shape, axis=len(shape) - 1)
        assert (found.compute_cycles, found.exchange_cycles, found.num_vertices) == (0, 0, 0)


@given(st.integers(2, 5000), st.integers(1, 3000), st.integers(1, 5000))
def test_the_largest_are_never_dearer_and_sorts_compare_often_enough(length, num_sorts, largest):
    whole = sort(num_sorts, length, axis=1)
    assert sort(num_sorts, length, axis=1, num_largest=min(largest, length)).cycles <= whole.cycles
    # Sorting n elements takes log2(n!) comparisons, each of 5 cycles of a worker.
    comparisons = num_sorts * math.lgamma(length + 1) / math.log(2)
    assert whole.compute_cycles >= 5 * comparisons / TILES


def test_the_largest_are_found_with_their_positions():
    """Of 1472 rows of 32, one for each tile, as in `test_sorts`."""
    shape = (TILES, 32)
    found = costs(argument("x", *shape), op("y", "topk", (TILES, 3), "x", k=3, largest=True))["y"]
    operands = [TensorSpec(shape, "float32"), TensorSpec(shape, "int32")]
    largest = sort_cost(GC200, operands=operands, axis=1, num_largest=3)
    assert found.compute_cycles == largest.compute_cycles
    assert found.vertex == "sort float32"
    ordered = costs(argument("x", *shape), op("y", "sort", shape, "x", dimensions=(1,)))["y"]
    assert ordered.compute_cycles == sort_cost(GC200, operands=operands[:1], axis=1).compute_cycles
    assert ordered.compute_cycles > found.compute_cycles


def test_keys_may_be_a_view_of_other_elements():
    """Rows of 8 unsigned numbers that are the bits of one row of floats."""
    same = costs(
        replace(argument("x", 4, 8), outputs=(TensorSpec((4, 8), "uint32"),)),
        op("sorted", "sort", (4, 8), "x", dtype="uint32", dimensions=(1,), direction="LT"),
    )
    view = costs(
        argument("x", 32),
        op("bits", "bitcast-convert", (32,), "x", dtype="uint32"),
        op("rows", "reshape", (4, 8), "bits", dtype="uint32"),
        op("sorted", "sort", (4, 8), "rows", dtype="uint32", dimensions=(1,), direction="LT"),
    )
    assert view["sorted"] == same["sorted"]
