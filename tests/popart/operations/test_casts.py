import numpy as np
import onnx
import pytest
from popart_nodes import Case, case, check, check_gradient

from ipu_keras.popart.exceptions import popart_exception

TYPES = onnx.TensorProto


@pytest.mark.parametrize(
    "case",
    [
        case("Cast", [[-1.5, 2.5]], np.float16([-1.5, 2.5]), version=6, to=TYPES.FLOAT16),
        case("Cast", [[-1.5, 2.5]], [-1, 2], to=TYPES.INT64),
        case("Cast", [[-1.5, 0.0]], [True, False], to=TYPES.BOOL),
        case("Cast", [[True, False]], np.uint8([1, 0]), to=TYPES.UINT8),
        case("Cast", [np.float16(1.5)], 1.5, to=TYPES.FLOAT),
        case("Cast", [1.5], 1.5, to=TYPES.FLOAT),
        case("Cast", [np.zeros((0, 2), np.float32)], np.zeros((0, 2), bool), to=TYPES.BOOL),
        # As many digits as the type needs.
        case("Cast", [[0.1, -3.0, 16777217.0]], ["0.1", "-3", "16777216"], to=TYPES.STRING),
        case("Cast", [np.float16([0.1])], ["0.1"], to=TYPES.STRING),
        case("Cast", [[1 / 3]], ["0.33333334"], to=TYPES.STRING),
        case("Cast", [np.array([1 / 3])], ["0.3333333333333333"], to=TYPES.STRING),
        case("Cast", [[np.inf, -np.inf, np.nan]], ["inf", "-inf", "nan"], to=TYPES.STRING),
        case("Cast", [[12, -7]], ["12", "-7"], to=TYPES.STRING),
        case("Cast", [["1.5", "1e3", "-INF"]], [1.5, 1000.0, -np.inf], to=TYPES.FLOAT),
        case("Cast", [["1.5"]], np.float16([1.5]), version=9, to=TYPES.FLOAT16),
        case("Cast", [["12", "-7"]], np.int8([12, -7]), to=TYPES.INT8),
        case("Cast", [["a"]], ["a"], to=TYPES.STRING),
    ],
)
def test_it_computes_what_pencil_and_paper_do(case):
    check(case)


BEYOND = [np.nan, np.inf, -np.inf, 1e20, -1e20, 2.0**31, 300.0, -1.5, -0.5]


def nearest(x, limits):
    """In Python's numbers, which have no limits: the integer of a type that is next to a number."""
    if x != x:
        return limits.min if limits.dtype == np.int32 else 0
    if x in (np.inf, -np.inf):
        return limits.max if x > 0 else limits.min
    return min(max(int(x), int(limits.min)), int(limits.max))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
@pytest.mark.parametrize("of", [np.float16, np.float32, np.float64])
def test_what_no_integer_is_like_becomes_the_nearest(dtype, of):
    with np.errstate(over="ignore"):
        given = np.array(BEYOND).astype(of)
    expected = np.array([nearest(float(x), np.iinfo(dtype)) for x in given], dtype)
    check(Case("Cast", [given], expected, {"to": getattr(TYPES, dtype.upper())}))


def test_its_gradient_is_that_of_differences():
    check_gradient("Cast", [[1.5, 2.0]], to=TYPES.DOUBLE)


def test_an_unknown_type_is_refused():
    with pytest.raises(
        popart_exception, match=r"type 99\. The data types are: 1 \(FLOAT\), 2 \(UIN"
    ):
        check(Case("Cast", [1.5], None, {"to": 99}))
