"""What lookups in several tables cost, against figures that were computed by hand."""

from ipu_keras.compiler.cost import Cost
from ipu_keras.compiler.lookups import (
    BatchedLookups,
    batched_gather_cost,
    batched_update_cost,
)
from ipu_keras.target import TARGETS, Confidence

GC200 = TARGETS["gc200"]
LAUNCH, SYNC, WAY = 81, 126, 157


def lookups(num_tables, num_rows, num_lookups, row_elements):
    return BatchedLookups(
        num_tables=num_tables,
        num_rows=num_rows,
        num_lookups=num_lookups,
        row_elements=row_elements,
        dtype="float32",
        item_bytes=4,
        index_bytes=4,
    )


def gathered(*sizes, result_bytes=128, memory_proportion=0.6):
    return batched_gather_cost(
        GC200,
        lookups(*sizes),
        result_bytes=result_bytes,
        memory_proportion=memory_proportion,
    )


def test_tiles_share_the_columns_of_a_table():
    # 92 tiles for each of 16 tables, and 64 of them have a column. Of 32 lookups, a worker has
    # six, each 19 cycles and 2 for its vector: 6 * (30 + 6 * 21).
    # 100 floats of a column and 32 numbers arrive, and 128 bytes of rows where these lie.
    assert gathered(16, 100, 32, 64) == Cost(
        compute_cycles=936 + LAUNCH,
        exchange_cycles=(400 + 128 + 128) // 4 + WAY,
        sync_cycles=SYNC,
        exchange_bytes=656,
        num_vertices=1,
        tiles=16 * 64,
        confidence=Confidence.DERIVED,
        detail="tiles share columns",
    )


def test_tiles_share_the_lookups_of_a_column():
    # Of one column, each of 32 of the 92 tiles has one lookup: 6 * (30 + 21).
    found = gathered(16, 100, 32, 1)
    assert found.compute_cycles == 306 + LAUNCH
    assert found.exchange_bytes == 400 + 4 + 128
    assert found.tiles == 16 * 32
    assert found.detail == "tiles share lookups"


def test_tiles_share_the_rows_of_a_table_that_no_tile_has_room_for():
    # 368 tiles for each of four tables of a million rows, 2718 on each. All look the 100 rows up,
    # 17 a worker: 6 * (30 + 17 * 21). Then one of what 368 found meets on each tile.
    found = gathered(4, 10**6, 100, 1)
    assert found.compute_cycles == 6 * (30 + 17 * 21) + 306 + 2 * LAUNCH
    arriving, meeting = 2718 * 4 + 100 * 4, 368 * 4 + 128
    assert found.exchange_cycles == arriving // 4 + meeting // 4 + 2 * WAY
    assert found.sync_cycles == 2 * SYNC
    assert found.exchange_bytes == arriving
    assert (found.num_vertices, found.tiles) == (2, 4 * 368)
    assert found.detail == "tiles share rows"
    # Where nothing fits, what needs least.
    assert gathered(4, 10**6, 100, 1, memory_proportion=0.01) == found


def test_tiles_have_several_tables():
    # 12 of 16384 tables on 1366 tiles. One lookup of 10 floats: 6 * (30 + 19 + 2 * 5) for each.
    found = gathered(16384, 5, 1, 10)
    assert found.compute_cycles == 12 * 354 + LAUNCH
    assert found.exchange_bytes == 12 * (5 * 40 + 4) + 128
    assert (found.num_vertices, found.tiles) == (12, 1366)


def test_updates_arrive_where_tables_lie():
    # Six of 32 updates for a worker, each 11 cycles for its word: 6 * (32 + 66). A float and a
    # number of each.
    found = batched_update_cost(GC200, lookups(16, 100, 32, 64))
    assert found == Cost(
        compute_cycles=588 + LAUNCH,
        exchange_cycles=32 * 8 // 4 + WAY,
        sync_cycles=SYNC,
        exchange_bytes=256,
        num_vertices=1,
        tiles=16 * 64,
        confidence=Confidence.DERIVED,
        detail="tiles share columns",
    )
    # However many tiles there are, none shares the updates of a column.
    assert batched_update_cost(GC200, lookups(16, 100, 32, 1)).compute_cycles == 588 + LAUNCH
