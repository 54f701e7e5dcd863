"""Programs of poplibs' benchmarks, as the comparison with the cost model writes them out."""

import poplibs
import pytest

ROWS = {(row.target, row.name): row for row in poplibs.rows()}


def test_most_rows_are_expressed():
    left_out = [row for row in ROWS.values() if row.kind in poplibs.NOT_EXPRESSED]
    assert len(ROWS) == 326
    assert len(left_out) == 42


@pytest.mark.parametrize(
    ("target", "name", "ratios"),
    [
        ("gc200", "bert_reduce_4", (0.99, 0.85, 1.07)),
        ("gc200", "gemm_200x64x10000", (1.11, 1.02, 1.0)),
        ("gc200", "inception_tr_bs1_pool2", (0.87, 0.94, 0.95)),
        ("gc2", "embedding_vlarge", (0.99, 0.96, 0.59)),
        ("gc2", "fc_layer_1440x100x200", (0.93, 1.09, 1.0)),
        ("gc2", "lstm_8_25_1024_1024_float", (0.96, 0.99, 1.0)),
        ("gc2", "mobilenet_conv_pw_3_1", (0.97, 0.84, 1.01)),
        ("gc2", "oct_resnet50_tr_bs4_bm64L0_a25", (1.23, 0.69, 1.0)),
    ],
)
def test_what_the_model_says(target, name, ratios):
    """Cycles, bytes and fullest tile divided by poplibs', so that each change of them is seen."""
    found = poplibs.compared(ROWS[target, name])
    assert [round(1 + getattr(found, figure), 2) for figure in poplibs.FIGURES] == list(ratios)


def test_the_passes_of_a_convolution():
    """The field of AlexNet's first layer: padded by 3, every fourth position, 11 elements."""
    row = ROWS["gc200", "alexnet_tr_bs4_layer1"]
    convolutions = [op for op in poplibs.compared(row).model.graph.ops if op.kind == "convolution"]
    assert [op.outputs[0].shape for op in convolutions] == [
        (4, 55, 55, 64),
        (4, 224, 224, 4),
        (11, 11, 4, 64),
    ]
    # Of the 230 positions, the last is reached: (55 - 1) * 4 + 11 = 227, and 3 are not.
    assert [op.attributes["window_padding"] for op in convolutions] == [
        ((3, 3), (3, 3)),
        ((7, 10), (7, 10)),
        ((3, 0), (3, 0)),
    ]


def test_quantiles():
    assert poplibs.quantile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert poplibs.quantile([3.0, 1.0, 2.0, 4.0], 0.9) == 4.0
