"""The closed forms of the vertices of convolutions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.products import convolution_vertices as vertices
from ipu_keras.machine.target import TARGETS

MEASURED, GC200, BOW = TARGETS["gc2"], TARGETS["gc200"], TARGETS["bow"]
GC2 = MEASURED.with_numbers(sdk=2.0)
HALF = {"dtype": "float16", "partials_dtype": "float16"}
MIXED = {"dtype": "float16", "partials_dtype": "float32"}
FLOAT = {"dtype": "float32", "partials_dtype": "float32"}

# Of a kernel.
ONE_ROW = {
    "partials_dtype": "float16",
    "field_elements": 60,
    "row_elements": 10,
    "kernel_rows": 1,
    "kernel_columns": 4,
    "group_blocks": 1,
}
GOLDEN = [
    # 48 positions are 8 for each of 6 workers, who take 37 + 4 (8 - 3) - 7 = 50 cycles;
    # 6 * 50 < 6 * 50 + 14 = 314. Weights: 16 units of 32 bytes at 8 a cycle = 64.
    # 50 + 6 * 7 + 12 + 11 + (19 + 7 + 64 + 314) = 519
    (vertices.amp_1x1, BOW, {**HALF, "field_elements": 48, "in_groups": 1, "out_groups": 1}, 519),
    # A second group of input channels, not zeroing: a worker takes 51, so 320; GC2 loads
    # 8 units in 32 cycles. 519 - 64 + 32 + 6 * 3 + 16 + (19 + 6 + 32 + 320) = 898
    (vertices.amp_1x1, GC2, {**MIXED, "field_elements": 48, "in_groups": 2, "out_groups": 1}, 898),
    # 8 units of float32 load in 32 cycles, and take 8 per position. A worker:
    # 22 + 8 * 8 + 2 + 8 - 7 = 89, so 6 * 89 + 14 = 548.
    # 50 + 42 + 12 + 11 + (19 + 7 + 32 + 548) = 721
    (vertices.amp_1x1, GC2, {**FLOAT, "field_elements": 48, "in_groups": 1, "out_groups": 1}, 721),
    # A worker has 7 of a row's 42 positions: 18 + (3 + 22 - 9) + 4 * 7 = 62, for each of
    # 9 elements 6 * 62: 3348. Loads: 3 (14 + 3 (12 + 32 + 15 + 3)) = 600.
    # Zeroing 42 * 8 float32: 1344 / 48 = 28 vectors, 6 (28 + 5) = 198.
    # 109 + 54 + 60 + 198 + 16 + 14 + 14 + 600 + 3348 = 4413
    (
        vertices.amp_nx1,
        GC2,
        {
            **MIXED,
            "field_elements": 42,
            "row_elements": 42,
            "kernel_rows": 3,
            "kernel_columns": 3,
            "in_groups": 1,
            "out_groups": 1,
        },
        4413,
    ),
    # In 1.0, a worker's 8 positions take 43 + 4 (8 - 3) = 63, and 2 + 4 * 8 more to store zeros.
    # 50 + 11 + 10 + (18 + 6 + 32 + 6 * 97) + 13 + (18 + 6 + 32 + 6 * 63) = 1156
    (
        vertices.amp_1x1,
        MEASURED,
        {**MIXED, "field_elements": 48, "in_groups": 2, "out_groups": 1},
        1156,
    ),
    # In halves 2 more, and 2 * 8: 50 + 11 + 10 + (18 + 6 + 32 + 6 (65 + 2 + 16)) = 625
    (
        vertices.amp_1x1,
        MEASURED,
        {**HALF, "field_elements": 48, "in_groups": 1, "out_groups": 1},
        625,
    ),
    # Of a row, 19 + 35 + 4 (7 - 3) = 70, for each of 9 elements 6 * 70: 3780. Loads:
    # 3 (15 + 3 (20 + 32 + 15)) = 648. Zeroing: 12 + 198.
    # 95 + 210 + 16 + 23 + 23 + 648 + 3780 = 4795
    (
        vertices.amp_nx1,
        MEASURED,
        {
            **MIXED,
            "field_elements": 42,
            "row_elements": 42,
            "kernel_rows": 3,
            "kernel_columns": 3,
            "in_groups": 1,
            "out_groups": 1,
        },
        4795,
    ),
    # 16 channels take 7 + 16 / 4 = 11, 2 positions of a worker
    # 16 + 9 (16 + 19 + 2 (7 + 2 * 11)) = 853.
    # Zeroing 24 float32: 2 vectors, 6 (2 + 5) = 42. 65 + 42 + 23 + 15 + 10 + 6 * 853 = 5273
    (
        vertices.horizontal_mac,
        GC200,
        {
            "dtype": "float16",
            "field_elements": 12,
            "kernel_elements": 9,
            "in_channels": 16,
            "out_channels": 2,
        },
        5273,
    ),
    # 3 channels are no vector of floats: 7 + 2 * 3 = 13, and one position a worker:
    # 16 + (16 + 13 + 7 + 5 * 13) = 117. Zeroing 30: 3 vectors, 6 (3 + 5) = 48.
    # 58 - 10 + 48 + 23 + 15 + 10 + 6 * 117 = 846
    (
        vertices.horizontal_mac,
        GC200,
        {
            "dtype": "float32",
            "field_elements": 6,
            "kernel_elements": 1,
            "in_channels": 3,
            "out_channels": 5,
        },
        846,
    ),
    # In 1.0, 4 + 2 * 3 = 10 take 102 of a worker: 58 - 10 + 48 + 48 + 6 * 102 = 756
    (
        vertices.horizontal_mac,
        MEASURED,
        {
            "dtype": "float32",
            "field_elements": 6,
            "kernel_elements": 1,
            "in_channels": 3,
            "out_channels": 5,
        },
        756,
    ),
    # 12 positions in each of 2 samples are 4 a worker, each 20 + 2 * 2 for 3 rows of a kernel of 3:
    # 6 + 12 * 24 = 294. Sums of workers: 19 * 2 / 4, rounded up: 10. 5 groups are 2 blocks:
    # 100 + 2 (4 + 12 + 32 + 24 + 6 * 294 + 10 + 10) = 3812
    (
        vertices.vertical_mac,
        GC200,
        {
            "batch": 2,
            "field_elements": 12,
            "kernel_rows": 3,
            "kernel_columns": 3,
            "conv_groups": 5,
        },
        3812,
    ),
    # 10 positions in one row each: 28 + 10 + 10 = 48. 28 + (16 + 18 + 6 * 48) = 350
    (vertices.slic, GC200, ONE_ROW, 350),
    # With eight units, two passes: 28 + (16 + 18 + 2 * 6 * 48) = 638
    (vertices.slic, GC2, ONE_ROW, 638),
    # 96 channels are 24 vectors, 10 positions 2 for a worker: 6 (25 + 24 (10 + 20 * 2)) = 7350
    (
        vertices.outer_product,
        GC200,
        {"dtype": "float16", "field_elements": 10, "channels": 96},
        7350,
    ),
    # 1200 sums are 50 loops of 4 for each worker. 33 + 6 (20 + (2 * 3 + 8) * 50) = 4353
    (vertices.reduce_partials, GC200, {**FLOAT, "num_outputs": 1200, "num_partials": 4}, 4353),
    # To halves a cycle less: 33 + 6 (20 + (2 * 3 + 7) * 50) = 4053
    (vertices.reduce_partials, GC200, {**MIXED, "num_outputs": 1200, "num_partials": 4}, 4053),
    # 1199 are no whole vectors, so that partials lie apart: 6 (32 + (3 * 4 + 6) * 50) = 5592
    (vertices.reduce_partials, GC200, {**MIXED, "num_outputs": 1199, "num_partials": 4}, 5592),
    # So they do in 1.0. Of halves: 6 (32 + (3 * 4 + 8) * 25) = 3192
    (vertices.reduce_partials, MEASURED, {**HALF, "num_outputs": 1200, "num_partials": 4}, 3192),
    # 1200 float32 are 100 vectors a worker. 6 (100 + 26) = 756
    (
        vertices.cast,
        GC200,
        {"from_dtype": "float32", "to_dtype": "float16", "num_elements": 1200},
        756,
    ),
    # 6 (100 + 14 - 9) = 630
    (vertices.zero, GC200, {"dtype": "float32", "num_elements": 1200}, 630),
]


@pytest.mark.parametrize(
    ("vertex", "target", "counts", "cycles"), GOLDEN, ids=lambda case: getattr(case, "__name__", "")
)
def test_golden(vertex, target, counts, cycles):
    assert vertex(target, **counts) == cycles
    # An array of counts is costed element by element.
    repeated = {k: np.array([v, v]) if isinstance(v, int) else v for k, v in counts.items()}
    assert vertex(target, **repeated).tolist() == [cycles, cycles]


@pytest.mark.parametrize("target", [GC2, GC200, BOW], ids=lambda target: target.name)
@pytest.mark.parametrize("types", [HALF, MIXED, FLOAT], ids=["half", "mixed", "float"])
def test_long_fields_approach_the_peak(target, types):
    positions, groups = 60_000, 8
    units = target.conv_units[tuple(types.values())]
    flops = 2 * positions * groups**2 * units * vertices.channels_per_unit(types["dtype"])
    sizes = {"field_elements": positions, "in_groups": groups, "out_groups": groups}
    point = vertices.amp_1x1(target, **types, **sizes)
    row = vertices.amp_nx1(
        target, **types, **sizes, row_elements=positions, kernel_rows=1, kernel_columns=9
    )
    peak = target.amp_flops[tuple(types.values())]
    # Zeroing the sums takes its share.
    assert 0.95 * peak < flops / point < peak
    assert 0.95 * peak < 9 * flops / row < peak


@given(length=st.integers(1, 40), row=st.integers(1, 40), start=st.integers(0, 39))
def test_row_segments_is_a_bound(length, row, start):
    touched = {(start * length + i) // row for i in range(length)}
    assert len(touched) <= vertices.row_segments(length, row)


def test_short_rows_cost_more():
    sizes = {"field_elements": 96, "kernel_rows": 3, "kernel_columns": 3}
    cycles = [
        vertices.amp_nx1(GC2, **MIXED, **sizes, row_elements=row, in_groups=1, out_groups=1)
        for row in (96, 16, 8, 4, 2, 1)
    ]
    assert cycles == sorted(cycles)
    # One row and six of sixteen are alike: each worker has sixteen positions of one row.
    assert cycles[0] == cycles[1] < cycles[2]


def test_dilated_inputs_meet_fewer_elements():
    sizes = {"row_elements": 24, "kernel_rows": 3, "kernel_columns": 3}
    sizes |= {"in_groups": 2, "out_groups": 2}
    dense = vertices.amp_nx1(GC2, **MIXED, **sizes, field_elements=960)
    dilated = vertices.amp_nx1(GC2, **MIXED, **sizes, field_elements=960, worker_elements=40)
    assert dense / 4 < dilated < dense / 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: vertices.amp_nx1(
                GC2,
                **MIXED,
                field_elements=1,
                row_elements=1,
                kernel_rows=3,
                kernel_columns=3,
                in_groups=1,
                out_groups=1,
                kernel_height=3,
            ),
            "loads 1, 2 or 4 rows of a kernel together. Received: kernel_height=3",
        ),
        (
            lambda: vertices.slic(
                GC200,
                partials_dtype="float16",
                field_elements=1,
                row_elements=1,
                kernel_rows=3,
                kernel_columns=3,
                group_blocks=1,
                stride=3,
            ),
            "strides of 1 and 2. Received: stride=3",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
