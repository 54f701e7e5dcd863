"""What compute sets cost: exchange, sync and launch around the vertices."""

import math

import pytest
from hlo_graphs import argument, graph, inner_parameter, op, spec, variable

from ipu_keras.compiler import vertices
from ipu_keras.compiler.compute_sets import deduplicate, flatten, fuse
from ipu_keras.compiler.convolution_planner import plan
from ipu_keras.compiler.convolutions import matmul
from ipu_keras.compiler.costs import CostTable
from ipu_keras.compiler.exchange import (
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    reduce_scatter_seconds,
)
from ipu_keras.compiler.in_place import share_memory
from ipu_keras.compiler.planning import planning_of
from ipu_keras.compiler.sorts import sort_cost
from ipu_keras.ir import Op
from ipu_keras.program import TensorSpec
from ipu_keras.target import TARGETS, Confidence

GC200 = TARGETS["gc200"]
TILES, LAUNCH, SYNC, WAY = GC200.num_tiles, 81, 126, 157


def costs(*ops, results=()):
    program = share_memory(fuse(deduplicate(flatten(graph(*ops, results=results)))))
    table = CostTable(GC200, program, planning=planning_of(0.6))
    return {one.name: table.cost(one) for one in program.compute_sets}


def test_an_addition_of_what_lies_elsewhere():
    # 1024 elements on each tile: the 1733 cycles of an addition, and y's 4096 bytes arrive
    # at 4 in a cycle. The tiles wait for each other before the exchange, and not behind it.
    found = costs(
        argument("x", TILES, 1024),
        argument("y", TILES, 1024),
        op("z", "add", (TILES, 1024), "x", "y"),
    )["z"]
    assert found.compute_cycles == 1733 + LAUNCH
    assert found.exchange_bytes == 4096
    assert found.exchange_cycles == 1024 + WAY
    assert found.sync_cycles == SYNC
    assert found.cycles == 1814 + 1181 + 126
    assert found.tiles == TILES


def test_what_a_result_is_made_of_lies_with_it():
    # exp(x) and log(x) both lie where x does: nothing moves.
    found = costs(
        argument("x", TILES, 64),
        op("a", "exponential", (TILES, 64), "x"),
        op("b", "log", (TILES, 64), "x"),
        op("c", "add", (TILES, 64), "a", "b"),
        results=("a", "b", "c"),
    )
    assert [cost.exchange_bytes for cost in found.values()] == [0, 0, 0]
    # So no tile waits for others: `exp`, 6 vectors for a worker, is its vertex and its launch.
    assert [cost.sync_cycles for cost in found.values()] == [0, 0, 0]
    assert found["a"].cycles == 20 + 6 * (33 + 6 * (6 + 4)) + LAUNCH


def test_each_tile_receives_a_small_operand_whole():
    # A bias of 10 floats for 64 elements on each tile, and one of 1000 of which it needs 64.
    for size, received in [(10, 40), (1000, 256)]:
        found = costs(
            argument("x", TILES * 64),
            variable("bias", size),
            op("wide", "broadcast", (TILES * 64,), "bias", dimensions=()),
            op("z", "add", (TILES * 64,), "x", "wide"),
        )["z"]
        assert found.exchange_bytes == received


def test_constants_are_in_the_code():
    found = costs(
        argument("x", 64),
        op("two", "constant", (), value=2.0),
        op("wide", "broadcast", (64,), "two", dimensions=()),
        op("z", "multiply", (64,), "x", "wide"),
    )["z"]
    assert found.exchange_bytes == 0


def test_a_product_is_planned_in_the_shapes_of_its_operands():
    found = costs(
        argument("x", 4, 8, 784),
        variable("w", 784, 256),
        op("flat", "reshape", (32, 784), "x"),
        op(
            "y",
            "dot",
            (32, 256),
            "flat",
            "w",
            lhs_contracting_dimensions=(1,),
            rhs_contracting_dimensions=(0,),
            lhs_batch_dimensions=(),
            rhs_batch_dimensions=(),
        ),
    )["y"]
    best = plan(GC200, matmul(1, 32, 784, 256, "float32"), memory_proportion=0.6)
    assert found.cycles == best.cycles
    assert found.temporary_bytes == best.temporary_bytes
    assert found.detail == best.method


def product_of(dtype, depth=64):
    return costs(
        op("x", "parameter", (64, depth), role="argument", number=0, first_leaf=0, dtype=dtype),
        op("w", "parameter", (depth, 64), role="argument", number=1, first_leaf=1, dtype=dtype),
        op(
            "y",
            "dot",
            (64, 64),
            "x",
            "w",
            dtype=dtype,
            lhs_contracting_dimensions=(1,),
            rhs_contracting_dimensions=(0,),
            lhs_batch_dimensions=(),
            rhs_batch_dimensions=(),
        ),
    )["y"]


@pytest.mark.parametrize(
    ("dtype", "as_if"), [("bfloat16", "float16"), ("int32", "float32"), ("complex64", "float32")]
)
def test_products_of_types_that_ipus_do_not_multiply_are_guessed(dtype, as_if):
    assert product_of(as_if).confidence is not Confidence.GUESSED
    assert product_of(dtype).confidence is Confidence.GUESSED
    assert product_of(dtype).cycles == product_of(as_if).cycles


def test_a_product_of_nothing_is_zeros():
    found = product_of("float32", depth=0)
    assert found.vertex == "fill float32"
    zeros = vertices.fill(GC200, dtype="float32", num_elements=math.ceil(64 * 64 / found.tiles))
    assert found.compute_cycles == zeros.cycles + LAUNCH


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


@pytest.mark.parametrize(
    ("kind", "attributes", "shape", "confidence"),
    [
        ("slice", {"start": (0,)}, (4096,), Confidence.DERIVED),
        ("reverse", {"dimensions": (0,)}, (8192,), Confidence.DERIVED),
        ("sort", {"dimensions": (0,)}, (8192,), Confidence.GUESSED),
        ("fft", {}, (8192,), Confidence.GUESSED),
        ("random", {"distribution": "uniform"}, (8192,), Confidence.DERIVED),
        (
            "reduce-window",
            {"window_size": (2,), "operation": "maximum"},
            (4096,),
            Confidence.GUESSED,
        ),
    ],
)
def test_other_families(kind, attributes, shape, confidence):
    found = costs(argument("x", 8192), op("y", kind, shape, "x", **attributes))["y"]
    assert found.compute_cycles > LAUNCH
    assert found.confidence is confidence
    # All but the random numbers are made of what other tiles have.
    assert (found.exchange_bytes > 0) == (kind != "random")


def test_a_categorical_draw_draws_for_each_class():
    # 6 samples of 1000 classes for each of 1472 rows: 6000 numbers on each tile.
    shape = (TILES, 1000)
    found = costs(
        argument("logits", *shape),
        op("y", "random", (TILES, 6), "logits", distribution="categorical", num_drawn=TILES * 6000),
    )["y"]
    # 500 vectors for each worker.
    drawn = 4 + 6 * (22 + 4 * 500)
    # -log(-log(u)) + logit: 12 + 1 + 12 + 1 cycles for each vector, two loads in one, a store.
    noise = 11 + 6 * (29 + (26 + 2) * 500)
    # The largest is found as any reduction by a computation of its own finds it.
    largest = costs(
        argument("x", TILES, 6, 1000),
        op("zero", "constant", (), value=0.0),
        op("y", "reduce", (TILES, 6), "x", "zero", dimensions=(2,), operation="custom"),
    )["y"]
    assert largest.compute_cycles > 6 * 250 * 14
    assert found.compute_cycles == drawn + noise + 2 * LAUNCH + largest.compute_cycles
    # The logits of a tile's numbers come from where they are; the numbers are there meanwhile.
    assert found.exchange_bytes == 24000
    assert found.temporary_bytes == 2 * 24000
    assert found.vertex == "random categorical"
    assert found.confidence is Confidence.GUESSED


def test_a_categorical_draw_of_what_is_known():
    """The logits are constants that XLA made part of the draw."""
    found = costs(
        argument("x"), op("y", "random", (4, 8), "x", distribution="categorical", num_drawn=32 * 10)
    )["y"]
    # 320 numbers are on 10 tiles, 6 on each worker of them.
    assert found.tiles == 10
    assert found.compute_cycles > 4 + 6 * (22 + 4 * 3) + LAUNCH


def test_a_draw_that_rejects_numbers_gets_its_parameters():
    # 64 samples on each tile, for one rate, or one rate for each.
    def drawn(*rates):
        return costs(argument("rates", *rates), op("y", "RandomPoissonV2", (TILES, 64), "rates"))

    for rates, received in [((), 4), ((TILES, 64), 256)]:
        found = drawn(*rates)["y"]
        # 11 samples for a worker, each 97 cycles.
        assert found.compute_cycles == 4 + 6 * (22 + 97 * 11) + LAUNCH
        assert found.exchange_bytes == received
        assert (found.vertex, found.tiles) == ("random poisson", TILES)
        assert found.confidence is Confidence.GUESSED


def shuffled(*shape, kind="random", **attributes):
    return costs(argument("x", *shape), op("y", kind, shape, "x", **attributes))["y"]


def test_a_shuffle_draws_sorts_and_looks_up():
    # 32 keys on each tile, 6 for a worker: 3 vectors.
    rows = 32 * TILES
    drawn = vertices.random_uniform(GC200, dtype="uint32", num_elements=32).cycles
    assert drawn == 4 + 6 * (22 + 4 * 3)
    keys, numbers = TensorSpec((rows,), "uint32"), TensorSpec((rows,), "float32")
    ordered = sort_cost(GC200, operands=[keys, numbers], axis=0)
    for found in (shuffled(rows, distribution="shuffle"), shuffled(rows, kind="StatelessShuffle")):
        assert found.compute_cycles == drawn + LAUNCH + ordered.compute_cycles
        assert found.exchange_cycles == ordered.exchange_cycles
        # The keys and the numbers that go with them.
        assert found.temporary_bytes == 2 * 4 * 32 + ordered.exchange_bytes
        assert found.sync_cycles == ordered.sync_cycles  # only the sort takes what others have
        assert found.vertex == "random shuffle"
        assert found.confidence is Confidence.GUESSED
    # Of rows of 1472, each tile looks its own column up, for which it needs all indices.
    wide = shuffled(rows, TILES, distribution="shuffle")
    look = vertices.multi_slice(GC200, dtype="float32", num_indices=rows, row_elements=1)
    assert wide.compute_cycles == drawn + ordered.compute_cycles + look.cycles + 2 * LAUNCH
    assert wide.exchange_bytes == 4 * rows + 4 * rows


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


def test_an_update_of_a_part_stays_in_place():
    # The slice's elements are copied; the rest stays, so a later reader finds all of it there.
    found = costs(
        argument("x", TILES * 32),
        argument("part", 32),
        argument("at"),
        op("y", "dynamic-update-slice", (TILES * 32,), "x", "part", "at"),
        op("z", "add", (TILES * 32,), "y", "x"),
        results=("y", "z"),
    )
    assert found["z"].exchange_bytes == 0


def test_collectives_of_one_replica_cost_nothing():
    assert costs(argument("x", 64), op("y", "all-reduce", (64,), "x"))["y"].cycles == 0


@pytest.mark.parametrize(
    ("kind", "shape", "seconds"),
    [
        ("all-reduce", (1000,), all_reduce_seconds),
        ("reduce-scatter", (250,), reduce_scatter_seconds),
        ("all-gather", (4000,), all_gather_seconds),
        ("all-to-all", (1000,), all_to_all_seconds),
    ],
)
def test_collectives_of_replicas_use_the_links(kind, shape, seconds):
    found = costs(argument("x", 1000), op("y", kind, shape, "x", num_replicas=4))["y"]
    num_bytes = 4 * max(1000, *shape)
    assert found.cycles == math.ceil(seconds(GC200, num_bytes, num_ipus=4) * 1.33e9)
    assert found.detail == "4 replicas"


def test_an_update_of_what_somebody_needs_works_on_a_copy():
    # 32 of 64 floats on each tile are 3 vectors for a worker; the copy moves all 256 bytes, a
    # word at a time.
    ops = [
        argument("x", TILES * 64),
        argument("part", TILES * 32),
        op("at", "constant", (), dtype="int32", value=0),
        op("y", "dynamic-update-slice", (TILES * 64,), "x", "part", "at"),
    ]
    alone = costs(*ops)["y"]
    beside = costs(*ops, results=("x", "y"))["y"]
    assert alone.compute_cycles == 6 * (27 + 29 + 3 + 13) + LAUNCH
    assert beside.compute_cycles == alone.compute_cycles + 288 + 256 // 4 + LAUNCH
    assert beside.sync_cycles == alone.sync_cycles == 0
    assert (alone.detail, beside.detail) == ("", "on a copy")


def test_a_loop_copies_what_it_carries_without_exchange():
    inner = inner_parameter("i", TILES * 64)
    body = graph(inner, op("next", "reverse", (TILES * 64,), "i", dimensions=(0,)))
    condition = graph(inner, op("more", "compare", (), "i"))
    whole = op("while", "while", (TILES * 64,), "w", body=("condition", "body"), trip_count=3)
    functions = {"condition": condition, "body": body}
    program = flatten(graph(variable("w", TILES * 64), whole, functions=functions))
    table = CostTable(GC200, share_memory(program), planning=planning_of(0.6))
    found = {one.name: table.cost(one) for one in program.compute_sets}
    # The variable stays as it is, so the loop works on a copy where it lies.
    first, again = found["while:0"], found["while/body/carried:0"]
    assert first.compute_cycles == again.compute_cycles == 288 + 256 // 4 + LAUNCH
    # A reversed array lies elsewhere.
    assert (first.exchange_bytes, again.exchange_bytes) == (0, 256)
