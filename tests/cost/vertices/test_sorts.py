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


def one_step(pairs: int) -> int:
    """The integers of a worker's pairs take 12 cycles each."""
    return 19 + 6 * (40 + 17 + 12 * pairs)


def sort(*shape, axis=0, dtypes=("int32",), num_largest=None) -> Cost:
    operands = [TensorSpec(shape, dtype) for dtype in dtypes]
    return sort_cost(GC200, operands=operands, axis=axis, num_largest=num_largest)


def test_pairs_are_spread_over_all_tiles_in_each_step():
    # Of 32 there are five levels, 1 + 2 + 3 + 4 + 5 steps of 16 pairs on a tile, 3 for a worker.
    expected = Cost(
        compute_cycles=15 * (one_step(3) + LAUNCH),
        exchange_cycles=15 * (32 + WAY),
        sync_cycles=15 * SYNC,
        exchange_bytes=128,
        num_vertices=15,
        confidence=Confidence.GUESSED,
        detail="15 stages",
    )
    assert sort(TILES, 32, axis=1) == expected
    # Whatever lies next to each other.
    assert sort(32, TILES) == expected


def test_a_long_sort_is_divided():
    # 2944 have 12 levels and so 78 steps, in which a tile has one pair.
    found = sort(2 * TILES)
    assert found.compute_cycles == 78 * (one_step(1) + LAUNCH)
    assert (found.exchange_cycles, found.exchange_bytes) == (78 * (3 + WAY), 8)


def test_what_goes_with_the_keys():
    # With a number for each key, 17 cycles a pair and 8 bytes for an element; 5 cycles for another.
    steps = 19 + 6 * (40 + 17 + 17 * 3), 19 + 6 * (40 + 17 + 22 * 3)
    for count, step in enumerate(steps, 1):
        found = sort(TILES, 32, axis=1, dtypes=("int32", *["float32"] * count))
        assert found.compute_cycles == 15 * (step + LAUNCH)
        assert found.exchange_bytes == 128 * (1 + count)


def test_halves_are_compared_as_floats():
    found = sort(TILES, 32, axis=1, dtypes=("float16", "int32"))
    floats = sort(TILES, 32, axis=1, dtypes=("float32", "int32"))
    # A tile has 32 keys; six for a worker are two of four, with one load and two stores, or the
    # other way round.
    cast = 12 + 6 * (37 + 2 * 3)
    assert found.compute_cycles == floats.compute_cycles + 2 * (cast + LAUNCH)
    assert found.exchange_bytes == floats.exchange_bytes


def test_few_pairs_have_few_neighbours():
    # Of 8 floats on a tile, 4 pairs are one for a worker: 23 + 4 + 8 + 11 if they are one run, and
    # no more runs than pairs.
    found = sort(TILES, 8, axis=1, dtypes=("float32", "int32"))
    assert found.compute_cycles == 6 * (19 + 6 * (23 + 4 + 8 + 11) + LAUNCH)
    # 16 pairs are 3 for a worker: in runs of one, of two, or of four and more.
    steps = [19 + 6 * (23 + 4 + 8 + 11 * 2 + 11 * runs) + LAUNCH for runs in (3, 2, 1)]
    found = sort(TILES, 32, axis=1, dtypes=("float32", "int32"))
    assert found.compute_cycles == 5 * steps[0] + 4 * steps[1] + 6 * steps[2]


def test_the_largest_of_each_sort():
    # Of 16, 8, 4, 2 and 1 pairs, in turn, the larger remain.
    found = sort(TILES, 32, axis=1, num_largest=1)
    assert found.compute_cycles == one_step(3) + one_step(2) + 3 * one_step(1) + 5 * LAUNCH
    # Runs of four, in 1 + 2 steps of 16 pairs. Of two such runs the larger halves remain, and are
    # sorted in two steps: twice 3, then 2 pairs, then 1, for a worker.
    found = sort(TILES, 32, axis=1, num_largest=3)
    merged = [one_step(3), 2 * one_step(2), one_step(2), 2 * one_step(1), 3 * one_step(1)]
    assert found.compute_cycles == 3 * one_step(3) + sum(merged) + 12 * LAUNCH


def test_one_element_and_none_are_sorted_already():
    for shape in ((1,), (TILES, 1), (0,), (3, 0)):
        found = sort(*shape, axis=len(shape) - 1)
        assert (found.compute_cycles, found.exchange_cycles, found.num_vertices) == (0, 0, 0)


@given(st.integers(2, 5000), st.integers(1, 3000), st.integers(1, 5000))
def test_the_largest_are_never_dearer_and_sorts_compare_often_enough(length, num_sorts, largest):
    whole = sort(num_sorts, length, axis=1)
    assert sort(num_sorts, length, axis=1, num_largest=min(largest, length)).cycles <= whole.cycles
    # Sorting n elements takes log2(n!) comparisons, each of 12 cycles of a worker.
    comparisons = num_sorts * math.lgamma(length + 1) / math.log(2)
    assert whole.compute_cycles >= 12 * comparisons / TILES


@given(st.integers(1, 5000), st.integers(1, 3000), st.integers(1, 1472))
def test_larger_sorts_and_fewer_tiles_take_no_less(length, num_sorts, tiles):
    def cycles(length, num_sorts, tiles=tiles):
        keys = TensorSpec((num_sorts, length), "float32")
        numbers = TensorSpec((num_sorts, length), "int32")
        target = GC200.with_numbers(num_tiles=tiles)
        return sort_cost(target, operands=[keys, numbers], axis=1).cycles

    found = cycles(length, num_sorts)
    assert cycles(length + 1, num_sorts) >= found
    assert cycles(length, num_sorts + 1) >= found
    assert cycles(length, num_sorts, tiles + 1) <= found


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
