"""What reductions cost, on the tiles and between them."""

import math

from graph_costs import GC200, LAUNCH, SYNC, TILES, WAY, costs
from hlo_graphs import argument, op

from ipu_keras.cost.tile import vertices


def test_a_reduction_in_one_tile_is_one_stage():
    # 16 floats lie on one tile: nothing to exchange.
    found = costs(
        argument("x", 16),
        op("zero", "constant", (), value=0.0),
        op("sum", "reduce", (), "x", "zero", dimensions=(0,), operation="add"),
    )["sum"]
    on_tile = vertices.reduce(
        GC200, operation="add", dtype="float32", num_outputs=1, num_partials=16
    )
    assert found.compute_cycles == on_tile.cycles + LAUNCH
    assert (found.exchange_cycles, found.sync_cycles) == (0, 0)
    assert found.detail == "1 stages"


def summed(shape, axes):
    left = [size for axis, size in enumerate(shape) if axis not in axes]
    return costs(
        argument("x", *shape),
        op("zero", "constant", (), value=0.0),
        op("sum", "reduce", left, "x", "zero", dimensions=axes, operation="add"),
    )["sum"]


def test_sums_of_neighbours_need_no_exchange():
    # A tile has four whole rows of 64: of four results, a worker has one, 32 vectors of two at
    # two cycles each; two workers have none.
    found = summed((4 * TILES, 64), (1,))
    assert found.compute_cycles == 11 + 6 * (33 + 24 + 32 * 2) + LAUNCH
    assert (found.exchange_bytes, found.detail) == (0, "1 stages")


def test_sums_of_some_neighbours_meet():
    # A tile has 8 x 8 of (TILES / 4, 4, 8, 8): four tiles have a part of the same eight results.
    found = summed((TILES // 4, 4, 8, 8), (1, 2))
    # Four workers add 8 vectors of two results; then 4, of the parts of 8 results.
    assert found.compute_cycles == 2 * (11 + 6 * (33 + 24)) + 6 * (8 + 4) * 2 + 2 * LAUNCH
    # The 2,944 results are dealt to tiles in eights, of four parts.
    assert (found.exchange_bytes, found.num_receivers) == (8 * 4 * 4, TILES // 4)
    # Each tile has its own 8 sums until they are sent, and a vertex; every fourth has another.
    assert (found.temporary_bytes, found.message_bytes) == (8 * 4, 8 * 4 * 4)
    assert found.state_bytes == 24 + 24 // 4
    # Sums along the outermost axis leave a tile with nothing to add.
    apart = summed((4, TILES // 4, 8, 8), (0,))
    assert apart.exchange_bytes == 4 * 4 * 16


def test_partial_sums_of_all_tiles_meet_in_stages():
    # In one stage, 1472 partials would arrive at one tile: 1472 + 157 cycles. In two, 39 and
    # then 38 do: 2 * (39 + 157) cycles and a launch and a sync more.
    found = costs(
        argument("x", TILES * 64),
        op("zero", "constant", (), value=0.0),
        op("sum", "reduce", (), "x", "zero", dimensions=(0,), operation="add"),
    )["sum"]
    together = math.ceil(math.sqrt(TILES))
    assert found.detail == "3 stages"
    assert found.exchange_cycles == 2 * (together + WAY)
    assert found.exchange_bytes == 4 * together
    assert found.sync_cycles == 2 * SYNC


def test_halves_are_added_up_in_float32():
    # A tile's 64 halves are 16 vectors of a worker: 11 + 6 * (33 + 24 + 2 * 16) = 545. Its sum has
    # four bytes, as have 39 and 39 that meet: 20 vectors, 11 + 6 * (33 + 24 + 2 * 20) = 593.
    found = costs(
        op("x", "parameter", (TILES * 64,), dtype="float16", role="argument"),
        op("zero", "constant", (), value=0.0),
        op("wide", "convert", (TILES * 64,), "x"),
        op("sum", "reduce", (), "wide", "zero", dimensions=(0,), operation="add"),
    )
    assert list(found) == ["sum"]
    assert found["sum"].compute_cycles == 545 + 2 * 593 + 3 * LAUNCH
    assert found["sum"].exchange_bytes == 4 * 39
    assert found["sum"].exchange_cycles == 2 * (39 + WAY)
    assert found["sum"].vertex == "reduce add float16"
    # So are those whose sum is a half again.
    narrow = costs(
        op("x", "parameter", (TILES * 64,), dtype="float16", role="argument"),
        op("zero", "constant", (), dtype="float16", value=0.0),
        op("sum", "reduce", (), "x", "zero", dtype="float16", dimensions=(0,), operation="add"),
    )
    assert narrow == found
