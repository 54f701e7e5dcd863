"""Lookups in tables on the host, on graphs built by hand."""

import math
from dataclasses import replace

from hlo_graphs import argument, graph, inner_parameter, op, poplar_call, variable

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.tile.exchange import host_seconds
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]
ROWS = (16, 64)


def training_step(num_rows, *, also_read=False):
    """rows = table[ids]; table[ids] -= rows, both as operations on the host; y = sort(rows)."""
    table = (num_rows, 64)
    lookup = graph(
        inner_parameter("ids", 16, first_leaf=0),
        inner_parameter("t", *table, first_leaf=1),
        op("found", "gather", ROWS, "t", "ids"),
        results=("found",),
    )
    update = graph(
        inner_parameter("ids", 16, first_leaf=0),
        inner_parameter("t", *table, first_leaf=1),
        inner_parameter("rows", *ROWS, first_leaf=2),
        op("changed", "scatter", table, "t", "ids", "rows"),
        results=("changed",),
    )
    others = [op("other", "sort", table, "table", dimensions=(0,))] if also_read else []
    return graph(
        argument("ids", 16),
        variable("table", *table, result=1),
        poplar_call("rows", "HostEmbedding", "ids", "table", shapes=(ROWS,), body="lookup"),
        op("y", "sort", ROWS, "rows", dimensions=(0,)),
        poplar_call("new", "HostEmbedding", "ids", "table", "y", shapes=(table,), body="update"),
        *others,
        results=("y", "new"),
        functions={"lookup": lookup, "update": update},
    )


def modelled(num_rows, **options):
    return model_graph("step", training_step(num_rows, **options), GC200, CostOptions())


def test_a_table_takes_no_memory_of_tiles():
    small, large = modelled(1000), modelled(10**7)
    assert large.memory.fits
    assert large.memory.max_tile_bytes == small.memory.max_tile_bytes
    assert large.memory.bytes_by_category["variables"] == 0
    assert large.costs == small.costs
    assert large.program.updates == {}
    assert large.program.results == ("y",)


def test_what_is_copied():
    lookup, _, update = modelled(1000).costs
    # 16 ids of 4 bytes go to the host, and rows of 64 numbers come back; then ids and rows go.
    ids, rows = 16 * 4, 16 * 64 * 4
    seconds = [host_seconds(GC200, size, num_ipus=1) for size in (ids, rows)]
    assert lookup.cycles == math.ceil(sum(seconds) * GC200.clock_hz)
    assert lookup.detail == "64 bytes to the host, 4,096 from it"
    assert update.cycles == math.ceil(host_seconds(GC200, ids + rows, num_ipus=1) * GC200.clock_hz)
    assert update.detail == "4,160 bytes to the host, 0 from it"


def test_a_table_that_the_program_reads_too_is_on_the_ipu():
    found = modelled(1000, also_read=True)
    assert found.memory.bytes_by_category["variables"] >= 1000 * 64 * 4
    assert found.program.updates == {"new": "table"}
    assert all(one.body is not None for one in found.program.compute_sets[:1])


def test_a_variable_on_the_host_that_becomes_a_constant():
    """As a count of accumulated gradients does, with a zero that other operations read too."""
    step = training_step(1000)
    ops = {one.name: one for one in step.ops}
    ops["new"] = replace(ops["new"], inputs=(*ops["new"].inputs, "count", "zero"))
    new = [variable("count", result=2), op("zero", "constant", (), value=0.0)]
    read = op("z", "add", ROWS, "y", "zero")
    found = model_graph(
        "step",
        replace(step, ops=(*new, *ops.values(), read), results=("z", "new", "zero")),
        GC200,
        CostOptions(),
    )
    assert found.program.updates == {}
    assert found.program.values["float32(0.0)"].role == "constant"
    assert found.memory.bytes_by_category["variables"] == 0
    # The constant is no part of what is copied.
    assert found.costs[2] == modelled(1000).costs[2]
