"""What the passes of normalizations cost."""

from dataclasses import replace

from graph_costs import GC200, program_costs
from hlo_graphs import graph, op, spec, variable
from normalization_graphs import C, N, batch_norm, fused

from ipu_keras.cost.flat.flattening import flatten
from ipu_keras.cost.flat.fusion import deduplicate
from ipu_keras.cost.flat.normalizations import fuse_normalizations
from ipu_keras.cost.tile import vertices
from ipu_keras.ir import Graph, Op


def costs_of_norms(program):
    found = program_costs(program)
    return [found[one.name] for one in program.compute_sets if one.family == "norm"]


def test_what_the_passes_cost():
    statistics, normalise = costs_of_norms(fused(*batch_norm()))
    # 30 * 16 halves on each tile, 80 for a worker: 20 vectors at 1 cycle and 2 for memory, once
    # multiplied and once added.
    one_pass = 11 + 6 * (26 + 20 * (1 + 2))
    assert normalise.compute_cycles == 2 * (one_pass + GC200.launch_cycles)
    # Two vectors of 16 floats arrive.
    assert normalise.exchange_bytes == 2 * 4 * C
    assert normalise.sync_cycles == GC200.sync_cycles
    # Two sums are twice one, but for the starts and the synchronization.
    program = fuse_normalizations(deduplicate(flatten(graph(*batch_norm()))))
    single = replace(
        program.compute_sets[0],
        ops=program.compute_sets[0].ops[:1],
        writes=program.compute_sets[0].writes[:1],
    )
    (alone,) = costs_of_norms(replace(program, compute_sets=(single,)))
    starts = alone.num_vertices * GC200.launch_cycles
    assert statistics.compute_cycles == 2 * alone.compute_cycles - starts
    assert statistics.sync_cycles == alone.sync_cycles
    assert statistics.exchange_cycles == 2 * alone.exchange_cycles
    # On the tile, the 30 halves of each channel are reduced first.
    first = vertices.reduce(GC200, operation="add", dtype="float16", num_outputs=C, num_partials=30)
    assert alone.compute_cycles > first.cycles + starts


def test_xlas_own_normalization_costs_the_same():
    written_out = costs_of_norms(fused(*batch_norm()))
    outputs = (spec(N, C, dtype="float16"), spec(C), spec(C))
    xla = Op(
        "norm",
        "batch-norm-training",
        outputs,
        inputs=("x", "gamma", "beta"),
        attributes={"feature_index": 1},
    )
    program = flatten(
        Graph(
            "step",
            (
                op("x", "parameter", (N, C), dtype="float16", role="argument"),
                variable("gamma", C),
                variable("beta", C),
                xla,
            ),
            results=("norm:0",),
            form="hlo",
        )
    )
    (cost,) = costs_of_norms(program)
    assert cost.compute_cycles == sum(one.compute_cycles for one in written_out)
