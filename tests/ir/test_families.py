"""What HLO operations have to do, against arithmetic by hand."""

import doctest

import pytest

from ipu_keras.ir import (
    UNKNOWN,
    Op,
    OpWork,
    TensorSpec,
    families,
    family_of,
    family_of_op,
    scanned_axis,
    work_of,
)


def spec(*shape, dtype="float32"):
    return TensorSpec(shape, dtype)


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("multiply", "elementwise"),
        ("select", "elementwise"),
        ("logistic", "elementwise"),
        ("reshape", "free"),
        ("convert", "cast"),
        ("select-and-scatter", "pooling"),
        ("while", "control flow"),
        ("fft", UNKNOWN),
    ],
)
def test_families(kind, family):
    assert family_of(kind) == family


WINDOWS = {
    "kernel_output_feature_dimension": 3,
    "window_size": (3, 3),
    "window_stride": (1, 1),
    "window_dilation": (1, 1),
    "base_dilation": (1, 1),
    "input_spatial_dimensions": (1, 2),
    "output_spatial_dimensions": (1, 2),
}

WORK = [
    # 2 x 3 by 3 x 4: 8 results of 3 products and as many additions.
    (
        Op("p", "dot", (spec(2, 4),), attributes={"lhs_contracting_dimensions": (1,)}),
        [spec(2, 3), spec(3, 4)],
        OpWork(flops=48, bytes_read=72, bytes_written=32),
    ),
    # A batch of 5 products over an inner axis of 7, in half precision.
    (
        Op(
            "p",
            "dot",
            (spec(5, 2, 4, dtype="float16"),),
            attributes={"lhs_contracting_dimensions": (2,)},
        ),
        [spec(5, 2, 7, dtype="float16"), spec(5, 7, 4, dtype="float16")],
        OpWork(flops=560, bytes_read=420, bytes_written=80),
    ),
    # 6 x 6 results of 4 channels, each of 3 x 3 pixels of 2 channels.
    (
        Op(
            "c",
            "convolution",
            (spec(1, 6, 6, 4),),
            attributes=WINDOWS,
        ),
        [spec(1, 8, 8, 2), spec(3, 3, 2, 4)],
        OpWork(flops=2 * 144 * 18, bytes_read=512 + 288, bytes_written=576),
    ),
    # Depthwise: the kernel has one input channel for each group.
    (
        Op(
            "c",
            "convolution",
            (spec(1, 6, 6, 2),),
            attributes=WINDOWS,
        ),
        [spec(1, 8, 8, 2), spec(3, 3, 1, 2)],
        OpWork(flops=2 * 72 * 9, bytes_read=512 + 72, bytes_written=288),
    ),
    # The gradient of a stride of 2: each input of 2 channels meets a kernel of 3 x 3 by 4 channels,
    # but for those at two edges, where the last position of the kernel is outside.
    (
        Op(
            "c",
            "convolution",
            (spec(1, 12, 12, 4),),
            attributes=WINDOWS | {"base_dilation": (2, 2), "window_padding": ((2, 1), (2, 1))},
        ),
        [spec(1, 6, 6, 2), spec(3, 3, 2, 4)],
        OpWork(flops=2 * (17 * 2) * (17 * 4), bytes_read=288 + 288, bytes_written=2304),
    ),
    # Adding 6 numbers to 2 of 100 rows, or writing them there.
    (
        Op("s", "scatter", (spec(100, 3),), attributes={"operation": "add"}),
        [spec(100, 3), spec(2, 1, dtype="int32"), spec(2, 3)],
        OpWork(6, 1232, 1200),
    ),
    (
        Op("s", "scatter", (spec(100, 3),), attributes={"operation": "custom"}),
        [spec(100, 3), spec(2, 1, dtype="int32"), spec(2, 3)],
        OpWork(0, 1232, 1200),
    ),
    (Op("a", "add", (spec(3, 5),)), [spec(3, 5)] * 2, OpWork(15, 120, 60)),
    (Op("r", "reduce", (spec(3),)), [spec(3, 5), spec()], OpWork(15, 64, 12)),
    (
        Op("w", "reduce-window", (spec(1, 2, 2, 1),), attributes={"window_size": (1, 2, 2, 1)}),
        [spec(1, 4, 4, 1), spec()],
        OpWork(16, 68, 16),
    ),
    (
        Op(
            "s", "select-and-scatter", (spec(1, 4, 4, 1),), attributes={"window_size": (1, 2, 2, 1)}
        ),
        [spec(1, 4, 4, 1), spec(1, 2, 2, 1), spec()],
        OpWork(16, 84, 64),
    ),
    # Only what is cut out is read; only what is put in is written.
    (Op("s", "slice", (spec(2),)), [spec(100)], OpWork(0, 8, 8)),
    (Op("u", "dynamic-update-slice", (spec(100),)), [spec(100), spec(2), spec()], OpWork(0, 8, 8)),
    (Op("p", "parameter", (spec(9),)), [], OpWork()),
    (Op("x", "fft", (spec(8),)), [spec(8)], OpWork(8, 32, 32)),
]


@pytest.mark.parametrize(
    ("op", "inputs", "work"), WORK, ids=lambda value: getattr(value, "kind", "")
)
def test_work(op, inputs, work):
    assert work_of(op, inputs) == work


def window(size, padding, output, kind="reduce-window", **steps):
    attributes = {"window_size": size, "window_padding": padding, **steps}
    return Op("w", kind, (spec(*output),), attributes=attributes)


@pytest.mark.parametrize(
    ("size", "padding", "output"),
    [
        ((1, 5), ((0, 0), (4, 0)), (2, 5)),
        # From the other end.
        ((1, 5), ((0, 0), (0, 4)), (2, 5)),
        # Exclusive: XLA's are one longer, and cut afterwards; or their other end is cut off.
        ((1, 5), ((0, 0), (5, 0)), (2, 6)),
        ((1, 5), ((0, 0), (0, 5)), (2, 6)),
        ((1, 5), ((0, 0), (5, -1)), (2, 5)),
        ((1, 5), ((0, 0), (-1, 5)), (2, 5)),
    ],
)
def test_windows_over_all_before(size, padding, output):
    op = window(size, padding, output, window_stride=(1, 1), base_dilation=(1, 1))
    assert scanned_axis(op) == 1
    assert family_of_op(op) == "scan"
    # An addition for each of ten elements; all windows together have 25 or more.
    work = work_of(op, [spec(2, 5), spec()])
    assert work == OpWork(10, bytes_read=40 + 4, bytes_written=4 * output[0] * output[1])


@pytest.mark.parametrize(
    ("size", "padding", "output", "steps"),
    [
        # Pooling, of all, of neighbours, with "same" padding.
        ((1, 5), ((0, 0), (0, 0)), (2, 1), {}),
        ((1, 2), ((0, 0), (1, 0)), (2, 5), {}),
        ((1, 3), ((0, 0), (1, 1)), (2, 5), {}),
        ((1, 5), ((0, 0), (2, 2)), (2, 5), {}),
        # Windows over both axes, none, or with steps.
        ((2, 5), ((1, 0), (4, 0)), (2, 5), {}),
        ((1, 1), ((0, 0), (0, 0)), (2, 5), {}),
        ((1, 5), ((0, 0), (4, 0)), (2, 3), {"window_stride": (1, 2)}),
        ((1, 5), ((0, 0), (4, 0)), (2, 5), {"window_dilation": (1, 2)}),
        # More rows than there were.
        ((1, 5), ((1, 0), (4, 0)), (3, 5), {}),
    ],
)
def test_other_windows(size, padding, output, steps):
    op = window(size, padding, output, **steps)
    assert scanned_axis(op) is None
    assert family_of_op(op) == "pooling"


def test_only_reductions_have_scanned_axes():
    op = window((1, 5), ((0, 0), (4, 0)), (2, 5), kind="select-and-scatter")
    assert scanned_axis(op) is None
    assert family_of_op(Op("a", "add", (spec(2, 5),))) == "elementwise"


def test_examples():
    assert doctest.testmod(families).failed == 0
