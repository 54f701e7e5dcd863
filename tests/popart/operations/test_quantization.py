import itertools

import numpy as np
import pytest
from popart_nodes import Case, case, check, check_gradient

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.evaluation import outputs_of

BYTE, SIGNED, FLOAT = np.uint8, np.int8, np.float32
A, B = BYTE([[11, 12], [13, 14]]), BYTE([[1, 2], [3, 4]])


@pytest.mark.parametrize(
    "one",
    [
        # Of two nearest integers the even one; what does not fit is the last that does.
        case("QuantizeLinear", [FLOAT([1, 3, 5, -9, 900]), FLOAT(2)], BYTE([0, 2, 2, 0, 255])),
        case(
            "QuantizeLinear",
            [FLOAT([1, 3, 5, -900, 900]), FLOAT(2), SIGNED(-10)],
            SIGNED([-10, -8, -8, -128, 127]),
        ),
        case("QuantizeLinear", [np.int32([4, 8]), FLOAT(2), BYTE(1)], BYTE([3, 5])),
        case("DequantizeLinear", [BYTE([0, 130]), FLOAT(2), BYTE(128)], FLOAT([-256, 4])),
        case("DequantizeLinear", [np.int32([-3]), FLOAT(0.5)], FLOAT([-1.5])),
        case(
            "DynamicQuantizeLinear",
            [FLOAT([0, 51, -204])],
            (BYTE([204, 255, 0]), FLOAT(1), BYTE(204)),
        ),
        case("DynamicQuantizeLinear", [FLOAT([0, 0])], (BYTE([0, 0]), FLOAT(0), BYTE(0))),
        case("MatMulInteger", [A, B], np.int32([[47, 70], [55, 82]])),
        case("MatMulInteger", [A, B, BYTE(10), BYTE(1)], np.int32([[4, 7], [8, 15]])),
        # A zero point for each row, and for each column.
        case("MatMulInteger", [A, B, BYTE([11, 13]), BYTE([1, 2])], np.int32([[2, 2], [2, 2]])),
        # Sums as long as these have no exact number of 32 bits behind the point.
        case(
            "MatMulInteger",
            [np.full((1, 1000), 255, BYTE), np.full((1000, 1), 255, BYTE)],
            np.int32([[65025000]]),
        ),
        case(
            "QLinearMatMul",
            [A, FLOAT(0.5), BYTE(10), B, FLOAT(2), BYTE(1), FLOAT(2), BYTE(100)],
            BYTE([[102, 104], [104, 108]]),
        ),
        case(
            "QLinearMatMul",
            [A, FLOAT([1, 2]), BYTE([11, 13]), B, FLOAT([1, 3]), BYTE([1, 2]), FLOAT(1), BYTE(0)],
            BYTE([[2, 6], [4, 12]]),
        ),
        # Pads are zeros, whatever number means zero.
        case(
            "ConvInteger",
            [BYTE([[[11, 12]]]), SIGNED([[[1, 10]]]), BYTE(10)],
            np.int32([[[10, 21]]]),
            pads=[1, 0],
        ),
        case(
            "ConvInteger",
            [BYTE([[[11, 12]]]), BYTE([[[2]], [[2]]]), BYTE(10), BYTE([1, 0])],
            np.int32([[[1, 2], [2, 4]]]),
        ),
        case(
            "QLinearConv",
            [
                BYTE([[[11, 12]]]), FLOAT(0.5), BYTE(10), BYTE([[[2]], [[2]]]), FLOAT([2, 4]),
                BYTE([1, 0]), FLOAT(0.5), BYTE(7), np.int32([1, 10]),
            ],
            BYTE([[[11, 13], [55, 63]]]),
        ),
    ],
)  # fmt: skip
def test_by_hand(one):
    check(one)


def test_convolutions_as_defined():
    generator = np.random.default_rng(0)
    x, w = (generator.integers(0, 256, s).astype(BYTE) for s in ((2, 4, 4, 5), (4, 2, 2, 3)))
    expected = np.zeros((2, 4, 3, 3), np.int32)
    for out, row, column in itertools.product(range(4), range(3), range(3)):
        channels = slice(out // 2 * 2, out // 2 * 2 + 2)
        seen = x[:, channels, row : row + 2, column : column + 3].astype(int) - 3
        expected[:, out, row, column] = (seen * (w[out].astype(int) - 7)).sum((1, 2, 3))
    check(Case("ConvInteger", [x, w, BYTE(3), BYTE(7)], expected, {"group": 2}))


def test_gradient_of_scales():
    check_gradient("DequantizeLinear", [BYTE([[1, 200]]), FLOAT(0.5), BYTE(100)])


@pytest.mark.parametrize("kind", ["MatMulInteger", "ConvInteger"])
def test_wider_integers_are_refused(kind):
    wide = np.int32([[[1]]])
    one = Case(kind, [wide, wide], None)
    text = rf"In {kind} 'y0': It takes integers of 8 bits, uint8 or int8. Received: int32"
    with pytest.raises(popart_exception, match=text):
        outputs_of(one.model(), one.given)
