"""Cycles of vertices against figures that were computed by hand, and what holds for all."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.tile import vertices
from ipu_keras.cost.tile.vertex_rates import ELEMENTWISE
from ipu_keras.machine.target import Confidence, target_named

GC200 = target_named("gc200")
DERIVED, GUESSED = Confidence.DERIVED, Confidence.GUESSED
COUNTS = st.integers(1, 10**6)
# Of two workers: three results with windows of four elements; one such, and two of two.
RUNS = (
    (vertices.PooledRun(3, 4),),
    (vertices.PooledRun(1, 4), vertices.PooledRun(2, 2)),
)


@pytest.mark.parametrize(
    ("operation", "dtype", "num_elements", "num_operands", "cycles", "confidence"),
    [
        # Both are published: 2 of 10 elements are one vector, 171 of 1024 are 86.
        ("add", "float32", 10, 2, 11 + 6 * (29 + 1 * (1 + 2)), DERIVED),  # 203
        ("add", "float32", 1024, 2, 11 + 6 * (29 + 86 * (1 + 2)), DERIVED),  # 1733
        # 20 for a worker, 10 vectors; an exponential loads constants first.
        ("exponential", "float32", 120, 1, 20 + 6 * (33 + 10 * (6 + 4)), DERIVED),  # 818
        ("sqrt", "float32", 120, 1, 20 + 6 * (17 + 10 * (10 + 4)), DERIVED),  # 962
        # 8 for a worker, 2 vectors.
        ("divide", "float16", 48, 2, 11 + 6 * (26 + 2 * (21 + 5)), DERIVED),  # 479
        # 2 for a worker, one at a time.
        ("select", "float32", 12, 3, 11 + 6 * (29 + 2 * 5), DERIVED),  # 245
        ("add", "int32", 12, 2, 11 + 6 * (26 + 2 * 7), DERIVED),  # 251
        # 64-bit integers are two words each; a third summand is loaded for each vector.
        ("add", "int64", 12, 2, 11 + 6 * (26 + 2 * 7 * 2), GUESSED),  # 335
        ("add", "float32", 12, 3, 11 + 6 * (29 + 1 * (1 + 3)), GUESSED),  # 209
        ("minimum", "float32", 12, 2, 11 + 6 * (29 + 1 * (3 + 5)), GUESSED),  # 233
    ],
)
def test_elementwise(operation, dtype, num_elements, num_operands, cycles, confidence):
    assert vertices.elementwise(
        GC200,
        operation=operation,
        dtype=dtype,
        num_elements=num_elements,
        num_operands=num_operands,
    ) == vertices.VertexCycles(cycles, confidence)


F32, F16 = {"dtype": "float32"}, {"dtype": "float16"}
# Of the pairs of a sort.
PAIRS = {"num_pairs": 12, "num_runs": 1, "num_values": 1}
GOLDEN = [
    # Four elements for each worker: two loads and a store; then the published loops.
    ("cast", {"from_dtype": "float32", "to_dtype": "float16", "num_elements": 24}, 252, GUESSED),
    ("cast", {"from_dtype": "uint8", "to_dtype": "float16", "num_elements": 24}, 288, DERIVED),
    ("cast", {"from_dtype": "float16", "to_dtype": "uint8", "num_elements": 24}, 330, DERIVED),
    # 10 elements for each worker: 6 * (23 + 5), 6 * (26 + 3).
    ("fill", {**F32, "num_elements": 60}, 168, DERIVED),
    ("fill", {**F16, "num_elements": 60}, 174, DERIVED),
    # 288 + 800 / 8, and one word at a time.
    ("copy", {"num_bytes": 800, "atom_bytes": 16}, 388, DERIVED),
    ("copy", {"num_bytes": 800, "atom_bytes": 4}, 488, DERIVED),
    # 587 + 5.148 * 1000, 587 + 0.44 * 1000; atoms of 3 bytes are of 2, 1 is a guess.
    ("rearrange", {"num_bytes": 1000, "atom_bytes": 3}, 5735, DERIVED),
    ("rearrange", {"num_bytes": 1000, "atom_bytes": 8}, 1027, DERIVED),
    ("rearrange", {"num_bytes": 1000, "atom_bytes": 1}, 10883, GUESSED),
    # 203 of 1216 for each worker, then 6: 11 + 6 * (57 + 102 * 2), 81, 11 + 6 * (57 + 3 * 2).
    (
        "reduce",
        {**F32, "operation": "add", "num_outputs": 1, "num_partials": 1216},
        1577 + 81 + 389,
        DERIVED,
    ),
    # Two of 12 for each worker, 7 partials behind each other: 4 vectors at 2 cycles for each.
    (
        "reduce",
        {**F32, "operation": "maximum", "num_outputs": 12, "num_partials": 7},
        11 + 6 * (33 + 2 * (24 + 4 * 2)),
        DERIVED,
    ),
    # Next to each other, both results share 7 vectors.
    (
        "reduce",
        {**F32, "operation": "maximum", "num_outputs": 12, "num_partials": 7, "strided": True},
        11 + 6 * (33 + 24 + 7 * 2),
        DERIVED,
    ),
    # Two vectors of 4 results, of which 3 workers each have 20 of 60 partials.
    (
        "reduce",
        {**F16, "operation": "add", "num_outputs": 8, "num_partials": 60, "strided": True},
        11 + 6 * (33 + 24 + 20 * 2) + 81 + 11 + 6 * (33 + 24 + 3 * 2),
        DERIVED,
    ),
    # A comparison of 4 takes 14 cycles, 2 selections 5 each: 24 + 7 * (1 + 14 + 10).
    (
        "reduce",
        {**F32, "operation": "custom", "num_outputs": 12, "num_partials": 7},
        11 + 6 * (33 + 2 * (24 + 4 + 2 * 14 + 7 * 5)),
        DERIVED,
    ),
    # 10 vectors for each worker.
    ("dynamic_slice", {**F32, "num_slices": 2, "slice_elements": 120}, 6 * 118, DERIVED),
    # 2 of 12 rows for each worker, of 4 pairs or, if bytes, two words; half of them elsewhere.
    ("multi_slice", {**F32, "num_indices": 12, "row_elements": 8}, 6 * 84, DERIVED),
    (
        "multi_slice",
        {"dtype": "int8", "num_indices": 12, "row_elements": 8, "share": 0.5},
        6 * (30 + (19 + 6) + 8),
        DERIVED,
    ),
    # 2 of 12 rows are a worker's, of 4 words; 1 if half of them are elsewhere.
    (
        "multi_update_add",
        {**F16, "num_indices": 12, "row_elements": 8},
        6 * (37 + 2 * 22 + 10 * 5),
        DERIVED,
    ),
    (
        "multi_update_add",
        {**F32, "num_indices": 12, "row_elements": 8, "share": 0.5},
        6 * (38 + 32 + 11 * 5),
        DERIVED,
    ),
    # One vector: 13 + 6 * (13 + 20 + 8 + 27), 13 + 6 * (30 + 20 + 8 + 45).
    # The second worker is slowest: of two vectors, 4 * (20 + 2 * 11) + 2 * (20 + 2 * 14).
    ("pooling", {**F16, "vectors": 2, "runs": RUNS}, 13 + 6 * (2 * 13 + 264), DERIVED),
    # 4 * (20 + 2 * 13) + 2 * (20 + 2 * 18)
    (
        "pooling",
        {**F16, "vectors": 2, "runs": RUNS, "backward": True},
        13 + 6 * (2 * 30 + 296),
        DERIVED,
    ),
    ("random_uniform", {**F32, "num_elements": 120}, 4 + 6 * (22 + 40), DERIVED),
    # Two of 12 scans for each worker; of one, a part of 100 for each, and then 50 additions of two.
    (
        "scan",
        {**F32, "operations": ["add"], "num_scans": 12, "num_elements": 100},
        11 + 6 * (33 + 2 * 100 * (1 + 2)),
        GUESSED,
    ),
    (
        "scan",
        {**F32, "operations": ["add"], "num_scans": 1, "num_elements": 600},
        11 + 6 * (33 + 100 * (1 + 2)) + 81 + 11 + 6 * (29 + 50 * (1 + 2)),
        GUESSED,
    ),
    # Integers of two words, one scan for each of six workers.
    (
        "scan",
        {"dtype": "int64", "operations": ["add"], "num_scans": 6, "num_elements": 10},
        11 + 6 * (33 + 10 * (7 + 2) * 2),
        GUESSED,
    ),
    # Two pairs for a worker: of floats with a value, in one run or each for itself.
    ("compare_and_swap", {**F32, **PAIRS}, 19 + 6 * (35 + 11 + 11), DERIVED),
    ("compare_and_swap", {**F32, **PAIRS, "num_runs": 3}, 19 + 6 * (35 + 11 + 22), DERIVED),
    # Compiled: floats alone, integers with a value and alone; those of two words.
    ("compare_and_swap", {**F32, **PAIRS, "num_values": 0}, 19 + 6 * (57 + 26), DERIVED),
    ("compare_and_swap", {"dtype": "int32", **PAIRS}, 19 + 6 * (57 + 34), DERIVED),
    ("compare_and_swap", {"dtype": "int64", **PAIRS}, 19 + 6 * 2 * (57 + 34), GUESSED),
    # With two values.
    (
        "compare_and_swap",
        {"dtype": "int32", **PAIRS, "num_values": 2},
        19 + 6 * (57 + 2 * 22),
        GUESSED,
    ),
    # 3 times the loads (1600 / 16), 3 times the arithmetic (1000 / 2, 1000 / 4).
    ("unknown", {**F32, "bytes_read": 1600, "bytes_written": 80, "flops": 50}, 300, GUESSED),
    ("unknown", {**F32, "bytes_read": 1600, "bytes_written": 80, "flops": 1000}, 1500, GUESSED),
    ("unknown", {**F16, "bytes_read": 160, "bytes_written": 80, "flops": 1000}, 750, GUESSED),
    ("unknown", {**F32, "bytes_read": 160, "bytes_written": 800, "flops": 0}, 300, GUESSED),
]


@pytest.mark.parametrize(("name", "arguments", "cycles", "confidence"), GOLDEN)
def test_golden(name, arguments, cycles, confidence):
    found = getattr(vertices, name)(GC200, **arguments)
    assert found == vertices.VertexCycles(cycles, confidence)


# Every vertex as a function of one count.
BY_COUNT = {
    "num_elements": functools.partial(
        vertices.elementwise, operation="tanh", dtype="float32", num_operands=1
    ),
    "fused num_elements": functools.partial(
        vertices.fused, operations=[("multiply", 2), ("tanh", 1)], num_inputs=2, dtype="float16"
    ),
    "cast num_elements": functools.partial(vertices.cast, from_dtype="float16", to_dtype="float32"),
    "fill num_elements": functools.partial(vertices.fill, dtype="int8"),
    "copy num_bytes": functools.partial(vertices.copy, atom_bytes=2),
    "rearrange num_bytes": functools.partial(vertices.rearrange, atom_bytes=4),
    "reduce num_outputs": functools.partial(
        vertices.reduce, operation="add", dtype="float32", num_partials=9
    ),
    "reduce num_partials": functools.partial(
        vertices.reduce, operation="maximum", dtype="float16", num_outputs=2
    ),
    "dynamic_slice num_slices": functools.partial(
        vertices.dynamic_slice, dtype="bool", slice_elements=100
    ),
    "multi_slice num_indices": functools.partial(
        vertices.multi_slice, dtype="float32", row_elements=3
    ),
    "multi_update_add row_elements": functools.partial(
        vertices.multi_update_add, dtype="float16", num_indices=13
    ),
    "pooling vectors": functools.partial(vertices.pooling, dtype="float32", runs=RUNS),
    "random_uniform num_elements": functools.partial(vertices.random_uniform, dtype="float32"),
    "scan num_scans": functools.partial(
        vertices.scan, operations=["maximum"], dtype="float16", num_elements=7
    ),
    "scan num_elements": functools.partial(
        vertices.scan, operations=["add", "multiply"], dtype="float32", num_scans=2
    ),
    "compare_and_swap num_pairs": functools.partial(
        vertices.compare_and_swap, dtype="int32", num_runs=2, num_values=1
    ),
    "unknown flops": functools.partial(
        vertices.unknown, dtype="float32", bytes_read=0, bytes_written=0
    ),
}


@pytest.mark.parametrize("case", BY_COUNT)
def test_nothing_costs_nothing_and_less_than_nothing_is_refused(case):
    count = case.split()[-1]
    assert BY_COUNT[case](GC200, **{count: 0}).cycles == 0
    with pytest.raises(ValueError, match=f"`{count}` must not be negative. Received: {count}=-1"):
        BY_COUNT[case](GC200, **{count: -1})


@pytest.mark.parametrize("case", BY_COUNT)
@given(fewer=COUNTS, more=COUNTS)
def test_more_is_never_faster(case, fewer, more):
    count = case.split()[-1]
    cycles = [BY_COUNT[case](GC200, **{count: n}).cycles for n in sorted((fewer, more))]
    assert 0 < cycles[0] <= cycles[1]
    assert all(isinstance(number, int) for number in cycles)


@given(st.sampled_from(sorted(ELEMENTWISE)), COUNTS)
def test_workers_share_evenly(operation, num_elements):
    dtype = {"float32": "float32", "float16": "float16", "int": "int32"}[
        next(iter(ELEMENTWISE[operation]))
    ]
    vertex = functools.partial(
        vertices.elementwise, GC200, operation=operation, dtype=dtype, num_operands=2
    )
    full = -(-num_elements // GC200.num_workers) * GC200.num_workers
    assert vertex(num_elements=num_elements) == vertex(num_elements=full)


OPERATIONS = st.sampled_from(["add", "multiply", "tanh", "divide", "select", "maximum"])


@given(st.lists(OPERATIONS, min_size=2, max_size=6), COUNTS)
def test_a_chain_in_one_vertex_costs_less_than_one_by_one(names, num_elements):
    num_operands = {"tanh": 1, "select": 3}
    operations = [(name, num_operands.get(name, 2)) for name in names]
    chain = vertices.fused(
        GC200, operations=operations, dtype="float32", num_elements=num_elements, num_inputs=2
    )
    alone = [
        vertices.elementwise(
            GC200, operation=name, dtype="float32", num_elements=num_elements, num_operands=operands
        ).cycles
        for name, operands in operations
    ]
    assert chain.cycles < sum(alone)
    assert chain.confidence is GUESSED


def test_a_chain():
    # 20 for each worker: a comparison of 4 takes 14 cycles, a combination of 2 truths 3, a
    # selection 5 for each, with the loads and stores in it.
    operations = [("compare", 2), ("and", 2), ("select", 3)]
    found = vertices.fused(
        GC200, operations=operations, dtype="float32", num_elements=120, num_inputs=3
    )
    assert found.cycles == 11 + 6 * (29 + 5 * 14 + 10 * 3 + 20 * 5)
    # 3 inputs take 2 loads, the result a store, in each of 10 vectors.
    operations = [("multiply", 2), ("tanh", 1), ("add", 2)]
    found = vertices.fused(
        GC200, operations=operations, dtype="float32", num_elements=120, num_inputs=3
    )
    assert found.cycles == 11 + 6 * (29 + 10 * (2 + 1 + 1 + 12 + 1))


def test_the_estimators_of_release_2_take_all_rows_for_found():
    old = GC200.with_sdk(2.0)
    rows = {"dtype": "float32", "num_indices": 12, "row_elements": 8, "share": 0.01}
    assert vertices.multi_slice(old, **rows).cycles == 6 * (30 + 2 * 27)
    assert vertices.multi_update_add(old, **rows).cycles == 6 * (38 + 12 * 32)


def test_the_targets_numbers_decide():
    add = functools.partial(
        vertices.elementwise, operation="add", dtype="float32", num_elements=120, num_operands=2
    )
    # 12 workers have 10 elements each, 5 vectors of 2.
    assert add(GC200.with_numbers(num_workers=12)).cycles == 11 + 12 * (29 + 5 * 3)
    copy = functools.partial(vertices.copy, num_bytes=1600, atom_bytes=16)
    assert copy(GC200.with_numbers(memcpy_bytes=16)).cycles == 288 + 100
    split = functools.partial(
        vertices.reduce, operation="add", dtype="float32", num_outputs=1, num_partials=1216
    )
    assert split(GC200.with_numbers(launch_cycles=0)).cycles == split(GC200).cycles - 81


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "elementwise",
            {**F32, "operation": "add", "num_elements": 1, "num_operands": 0},
            "must be positive. Received: num_operands=0 for 'add'",
        ),
        (
            "fused",
            {**F32, "operations": [], "num_elements": 1, "num_inputs": 1},
            r"`operations` must name at least one. Received: \[\]",
        ),
        (
            "fused",
            {**F32, "operations": [("add", 2)], "num_elements": 1, "num_inputs": -1},
            "`num_inputs` must not be negative",
        ),
        ("copy", {"num_bytes": 1, "atom_bytes": 0}, "`atom_bytes` must be positive"),
        ("rearrange", {"num_bytes": 1, "atom_bytes": 0}, "`atom_bytes` must be positive"),
        ("fill", {"dtype": "string", "num_elements": 0}, "Received: dtype='string'"),
        (
            "reduce",
            {**F32, "operation": "sum", "num_outputs": 0, "num_partials": 0},
            "Received: operation='sum'",
        ),
    ],
)
def test_refused(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        getattr(vertices, name)(GC200, **arguments)
