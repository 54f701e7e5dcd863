import numpy as np
import pytest
from popart_nodes import case, check, check_gradient

INF, NAN = np.inf, np.nan
TABLE = [[False, False, True, True], [False, True, False, True]]


@pytest.mark.parametrize(
    "case",
    [
        case("Equal", [[1.0, 2.0], 2.0], [False, True]),
        case("Equal", [[True, False], [True, True]], [True, False], version=7),
        case("Equal", [[[1, 2], [3, 4]], [1, 4]], [[True, False], [False, True]], 6, broadcast=1),
        case("Less", [[1.0, 2.0, NAN], 2.0], [True, False, False]),
        case("Less", [np.uint8([0, 200]), np.uint8(100)], [True, False], version=9),
        case("Less", [[1.0, 2.0], [2.0, 1.0]], [True, False], version=6),
        case("Greater", [np.float16([1, 2]), np.float16(1)], [False, True], version=7),
        case("Greater", [[1.0, 2.0], [2.0, 1.0]], [False, True], version=6),
        case("And", TABLE, [False, False, False, True]),
        case("And", [TABLE, TABLE[1]], [[False, False, False, True], TABLE[1]], 6, broadcast=1),
        case("Or", TABLE, [False, True, True, True]),
        case("Or", [[False, True], True], [True, True], version=6, broadcast=1),
        case("Xor", TABLE, [False, True, True, False]),
        case("Xor", TABLE, [False, True, True, False], version=6),
        case("Not", [[True, False]], [False, True], version=6),
        case("IsNaN", [[1.0, NAN, INF]], [False, True, False]),
        case("IsNaN", [np.float16(NAN)], True, version=9),
        case("IsInf", [[1.0, NAN, INF, -INF]], [False, False, True, True]),
        case("IsInf", [[INF, -INF]], [False, True], detect_positive=0),
        case("IsInf", [[INF, -INF]], [True, False], detect_negative=0, version=10),
        case("IsInf", [[INF, -INF]], [False, False], detect_negative=0, detect_positive=0),
        case("Where", [[[True], [False]], [1, 2], 0], [[1, 2], [0, 0]]),
        case("Where", [True, np.float16(1), np.float16(2)], np.float16(1), version=9),
        case("Where", [np.zeros((0, 2), bool), 1, 2], np.zeros((0, 2), np.int64)),
    ],
)
def test_it_computes_what_pencil_and_paper_do(case):
    check(case)


def test_each_side_of_where_has_its_gradient():
    check_gradient("Where", [[[True], [False]], [1.0, 2.0], 0.5])
