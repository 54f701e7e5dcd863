"""What lookups in several tables cost, against figures that were computed by hand."""

from dataclasses import replace

from graph_costs import GC200, LAUNCH, SYNC, TILES, WAY, costs
from hlo_graphs import argument, op, spec, variable

from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.vertices.lookups import (
    Lookups,
    batched_gather_cost,
    batched_update_cost,
    gather_cost,
    update_cost,
)
from ipu_keras.ir import Op
from ipu_keras.machine.target import Confidence


def lookups(num_tables, num_rows, num_lookups, row_elements):
    return Lookups(
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
    # Six of 32 updates are of rows of a worker, each 11 cycles for its word, and the others 5:
    # 6 * (38 + 66 + 130). A float and a number of each.
    found = batched_update_cost(GC200, lookups(16, 100, 32, 64))
    assert found == Cost(
        compute_cycles=1404 + LAUNCH,
        exchange_cycles=32 * 8 // 4 + WAY,
        sync_cycles=SYNC,
        exchange_bytes=256,
        num_vertices=1,
        tiles=16 * 64,
        confidence=Confidence.DERIVED,
        detail="tiles share columns",
    )
    # However many tiles there are, none shares the updates of a column.
    assert batched_update_cost(GC200, lookups(16, 100, 32, 1)).compute_cycles == 1404 + LAUNCH


def test_a_lookup():
    # Each tile has a part of all columns: of a row of 2944 floats, two, which are eight bytes.
    look = Op("rows", "gather", (spec(32, 2 * TILES),), inputs=("table", "ids"))
    found = costs(variable("table", 5000, 2 * TILES), argument("ids", 32), look)["rows"]
    # Six of 32 for a worker: 6 * (30 + 6 * (19 + 2)). What it finds is the result.
    assert found.compute_cycles == 6 * 156 + LAUNCH
    assert found.exchange_bytes == 4 * 32
    assert found.detail == "tiles share columns"


def test_an_index_vector_is_one_lookup():
    # 32 vectors of two components: as many lookups.
    found = costs(
        argument("table", 10, 50, 2 * TILES),
        argument("ids", 32, 2),
        op("rows", "gather", (32, 2 * TILES), "table", "ids", index_vector_dim=1),
    )["rows"]
    assert found.compute_cycles == 6 * 156 + LAUNCH
    assert found.exchange_bytes == 4 * 64


def looked_up(num_rows, num_lookups, row_elements, target=GC200, memory_proportion=0.6):
    table = replace(lookups(1, num_rows, num_lookups, row_elements), dtype="float16", item_bytes=2)
    planned = {"memory_proportion": memory_proportion, "vertex": "v"}
    return (
        gather_cost(target, table, **planned),
        update_cost(target, table, operation="add", **planned),
    )


def test_tiles_that_share_rows_find_the_few_they_have():
    # 50 x 29 tiles have 3449 of 100,000 rows and 4 of 200 halves. A worker sees 240 of 1440
    # lookups, 9 of its rows; then each tile takes the one result of 50 lookups from 29 tiles.
    gathered, updated = looked_up(100_000, 1440, 200)
    first, second = 6 * (30 + 9 * (19 + 4) + 231 * 8), 6 * (30 + 9 * (19 + 4))
    assert gathered.compute_cycles == first + second + 2 * LAUNCH
    assert gathered.exchange_cycles == 1440 * 4 // 4 + 50 * 29 * 8 // 4 + 2 * WAY
    assert gathered.temporary_bytes == 1440 * (4 + 8)
    assert gathered.tiles == 50 * 29
    # Nine of 1440 updates are of a row of a worker's, of two words.
    assert updated.compute_cycles == 6 * (37 + 9 * (13 + 3) + 1431 * 5) + LAUNCH
    assert updated.exchange_bytes == 1440 * (4 + 8)


def test_plans_of_release_2_need_the_fewest_bytes():
    # 100 x 14 tiles have words of rows, and all of them count as found.
    gathered, updated = looked_up(100_000, 1440, 200, GC200.with_sdk(2.0))
    first, second = 6 * (30 + 240 * 21), 6 * (30 + 18 * 21)
    assert gathered.compute_cycles == first + second + 2 * LAUNCH
    assert updated.compute_cycles == 6 * (37 + 1440 * 13) + LAUNCH
    assert updated.temporary_bytes == 1440 * 8


def test_plans_with_little_room_need_the_fewest_bytes():
    roomy, tight = (looked_up(1000, 21600, 200, memory_proportion=p) for p in (0.6, 0.001))
    for one, other in zip(roomy, tight, strict=True):
        assert one.cycles <= other.cycles
        assert one.temporary_bytes >= other.temporary_bytes


def test_lookups_in_a_table_for_each_element_of_a_batch():
    # As by hand in `test_lookups`; 16 * 32 * 64 floats of the result are on 1024 tiles.
    table, ids = argument("table", 16, 100, 64), argument("ids", 16, 32)
    looked_up = {"index_vector_dim": 2, "operand_batching_dims": (0,)}
    found = costs(table, ids, op("rows", "gather", (16, 32, 64), "table", "ids", **looked_up))
    gathered = found["rows"]
    assert gathered.compute_cycles == 936 + LAUNCH
    assert gathered.exchange_bytes == 400 + 128 + 128
    assert (gathered.vertex, gathered.tiles) == ("gather", 1024)
    assert gathered.detail == "16 tables, tiles share columns"
    # Its gradient adds to a table that lies where it is, or to a copy of what somebody needs: of
    # 102400 floats, 280 bytes are on a tile, a word at a time.
    ops = [
        table,
        ids,
        argument("rows", 16, 32, 64),
        op(
            "sums",
            "scatter",
            (16, 100, 64),
            "table",
            "ids",
            "rows",
            index_vector_dim=2,
            input_batching_dims=(0,),
            operation="add",
        ),
    ]
    alone = costs(*ops)["sums"]
    beside = costs(*ops, results=("table", "sums"))["sums"]
    assert alone.compute_cycles == 1404 + LAUNCH
    assert alone.exchange_bytes == 32 * 8
    assert beside.compute_cycles - alone.compute_cycles == 288 + 280 // 4 + LAUNCH
    assert (alone.num_vertices, beside.num_vertices) == (1, 2)
    assert beside.detail == "16 tables, tiles share columns, on a copy"


def update(operation, num_rows, *columns, table=(2, 2)):
    """The costs of updates of a table, and of a sum of as many tables as there are tiles."""
    return costs(
        argument("x", *table),
        # Nobody else needs it, so it is updated in place.
        op("table", "negate", table, "x"),
        argument("ids", num_rows, 2),
        argument("rows", num_rows, *columns),
        argument("tables", TILES, *table),
        Op(
            "updated",
            "scatter",
            (spec(*table),),
            inputs=("table", "ids", "rows"),
            attributes={"index_vector_dim": 1, "operation": operation},
        ),
        Op(
            "sum",
            "reduce",
            (spec(*table),),
            inputs=("tables",),
            attributes={"operation": "add", "dimensions": (0,)},
        ),
        results=("updated", "sum"),
    )


def test_many_updates_of_a_small_table_are_divided():
    # As of a confusion matrix: 32 on each tile, then the tables of all tiles are added up.
    found = update("add", 32 * TILES)
    # Six of 32 are of a worker's row, 11 cycles for each, and the others 5.
    own = 6 * (38 + 6 * 11 + 26 * 5) + LAUNCH
    filled = vertices.fill(GC200, dtype="float32", num_elements=4).cycles + LAUNCH
    assert found["updated"].compute_cycles == filled + own + found["sum"].compute_cycles
    # Two indices and one number of each row arrive.
    assert found["updated"].exchange_bytes == max(32 * (8 + 4), found["sum"].exchange_bytes)
    assert found["updated"].temporary_bytes == found["updated"].exchange_bytes + 4 * 4
    assert found["updated"].detail == f"{TILES} parts"


def test_the_last_of_several_updates_has_to_win():
    # So tiles share nothing but rows: each of four has one, 12 updates of which 3 count.
    found = update("custom", 12)["updated"]
    assert found.compute_cycles == 6 * (38 + 11 + 11 * 5) + LAUNCH
    assert found.exchange_bytes == 12 * (8 + 4)
    assert found.detail == "tiles share rows"


def test_nothing_is_updated():
    found = costs(
        argument("x", 10, 4),
        op("table", "negate", (10, 4), "x"),
        argument("ids", 0, 1),
        argument("rows", 0, 4),
        op("y", "scatter", (10, 4), "table", "ids", "rows", index_vector_dim=1, operation="add"),
    )
    assert found["y"] == Cost(vertex="scatter")
