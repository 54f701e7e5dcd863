"""What lookups in several tables cost, against figures that were computed by hand."""

import pytest
from graph_costs import GC200, LAUNCH, SYNC, TILES, WAY, costs
from hlo_graphs import argument, op, spec, variable

from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.cost import Cost
from ipu_keras.cost.vertices.lookups import BatchedLookups, batched_gather_cost, batched_update_cost
from ipu_keras.ir import Op
from ipu_keras.machine.target import Confidence


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


def test_a_lookup_and_its_gradient():
    # Each tile has a part of all columns: of a row of 2944 floats, two.
    look = Op("rows", "gather", (spec(32, 2 * TILES),), inputs=("table", "ids"))
    found = costs(variable("table", 5000, 2 * TILES), argument("ids", 32), look)["rows"]
    expected = vertices.multi_slice(GC200, dtype="float32", num_indices=32, row_elements=2)
    assert found.compute_cycles == expected.cycles + LAUNCH
    # The 32 ids and the tile's part of the rows.
    assert found.exchange_bytes == 4 * 32 + 4 * 2 * 32


def test_an_index_vector_is_one_lookup():
    # 32 vectors of two components: as many lookups, of two of 2944 columns each.
    found = costs(
        argument("table", 10, 50, 2 * TILES),
        argument("ids", 32, 2),
        op("rows", "gather", (32, 2 * TILES), "table", "ids", index_vector_dim=1),
    )["rows"]
    expected = vertices.multi_slice(GC200, dtype="float32", num_indices=32, row_elements=2)
    assert found.compute_cycles == expected.cycles + LAUNCH
    assert found.exchange_bytes == 4 * 64 + 4 * 2 * 32


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
    assert alone.compute_cycles == 588 + LAUNCH
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
    # Six workers with six rows at most, 11 cycles for each.
    own = 6 * (32 + 6 * 11) + LAUNCH
    filled = vertices.fill(GC200, dtype="float32", num_elements=4).cycles + LAUNCH
    assert found["updated"].compute_cycles == filled + own + found["sum"].compute_cycles
    # Two indices and one number of each row arrive.
    assert found["updated"].exchange_bytes == max(32 * (8 + 4), found["sum"].exchange_bytes)
    assert found["updated"].temporary_bytes == found["updated"].exchange_bytes + 4 * 4
    assert found["updated"].detail == f"{TILES} parts"


@pytest.mark.parametrize(
    ("operation", "columns", "table"),
    [
        # The last of two rows for one place has to win.
        ("custom", (), (2, 2)),
        # All tiles have columns already.
        ("add", (TILES,), (2, 2, TILES)),
        # A table on each tile would take more memory than all indices: 4,096 floats for 96.
        ("add", (), (64, 64)),
    ],
)
def test_updates_that_are_not_divided(operation, columns, table):
    num_rows = 8 if table == (2, 2, TILES) else 12
    found = update(operation, num_rows, *columns, table=table)["updated"]
    whole = vertices.multi_update_add(GC200, dtype="float32", num_indices=num_rows, row_elements=1)
    assert found.compute_cycles >= whole.cycles + LAUNCH
    assert "parts" not in found.detail
