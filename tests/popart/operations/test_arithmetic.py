import numpy as np
import pytest
from popart_nodes import Case, case, check, check_gradient

from ipu_keras.popart.exceptions import popart_exception

HALF = np.float16
GRID = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.mark.parametrize(
    "case",
    [
        case("Add", [GRID, [10.0, 20.0, 30.0]], [[11.0, 22.0, 33.0], [14.0, 25.0, 36.0]]),
        case("Add", [1.5, 2.0], 3.5, version=7),
        case("Add", [np.zeros((0, 3), HALF), HALF(1)], np.zeros((0, 3), HALF)),
        case("Add", [GRID, GRID], [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]], version=6),
        # Below the first axis, and below the last one.
        case(
            "Add",
            [GRID, [10.0, 20.0]],
            [[11.0, 12.0, 13.0], [24.0, 25.0, 26.0]],
            version=6,
            broadcast=1,
            axis=0,
        ),
        case(
            "Sub",
            [GRID, [1.0, 2.0, 3.0]],
            [[0.0, 0.0, 0.0], [3.0, 3.0, 3.0]],
            version=6,
            broadcast=1,
        ),
        case("Sub", [np.uint8([3, 1]), np.uint8([1, 2])], np.uint8([2, 255])),
        case("Mul", [[2.0, 3.0], 2.0], [4.0, 6.0]),
        case("Mul", [GRID, 2.0], [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]], version=6, broadcast=1),
        case("Div", [[1.0, -3.0], 2.0], [0.5, -1.5]),
        case("Div", [[7, -7], [2, 2]], [3, -3]),
        case("Div", [[7, -7], [2, 2]], [3, -3], version=6),
        case("Pow", [[2.0, 9.0], [3.0, 0.5]], [8.0, 3.0]),
        case("Pow", [[2.0, 3.0], 2.0], [4.0, 9.0], version=6, broadcast=1),
        # The sign of the divisor, and that of the dividend.
        case("Mod", [[-4, 7, 5], [3, -3, 8]], [2, -2, 5], fmod=0),
        case("Mod", [[-4, 7, 5], [3, -3, 8]], [-1, 1, 5], fmod=1),
        case("Mod", [np.int8([-4, 7]), np.int8([3, -3])], np.int8([-1, 1]), fmod=1),
        case("Mod", [np.uint64([2**64 - 1]), np.uint64([10])], np.uint64([5]), fmod=1),
        case("Mod", [[-4.3, 7.2], [2.1, -3.4]], [-0.1, 0.4], fmod=1),
        case("Mod", [[-4.25, 7.5], [2.0, -3.0]], [1.75, -1.5], fmod=0),
        case("Mod", [HALF([-4.25, 7.5]), HALF([2.0, -3.0])], HALF([1.75, -1.5]), fmod=0),
        case("Mod", [HALF([-4.5, 7]), HALF(2)], HALF([-0.5, 1]), fmod=1, version=10),
        case(
            "BitShift",
            [np.uint8([16, 4, 1]), np.uint8([1, 2, 9])],
            np.uint8([8, 1, 0]),
            direction="RIGHT",
        ),
        case(
            "BitShift",
            [np.uint32([16, 4, 1]), np.uint32([1, 2, 32])],
            np.uint32([32, 16, 0]),
            direction="LEFT",
        ),
        case("Sum", [[1.0, 2.0], 3.0, [[4.0], [5.0]]], [[8.0, 9.0], [9.0, 10.0]]),
        case("Sum", [[1.0, 2.0]], [1.0, 2.0], version=6),
        case("Mean", [[1.0, 2.0], [3.0, 5.0], [5.0, 5.0]], [3.0, 4.0]),
        case("Max", [[1.0, 7.0], 3.0], [3.0, 7.0]),
        case("Max", [HALF([1, 7]), HALF([2, 6])], HALF([2, 7]), version=6),
        case("Min", [[1.0, 7.0], 3.0], [1.0, 3.0]),
        case("Abs", [[-1.5, 2.0]], [1.5, 2.0]),
        case("Abs", [np.uint8([200])], np.uint8([200])),
        case("Neg", [[-1.5, 2.0]], [1.5, -2.0]),
        case("Sign", [[-1.5, 0.0, 2.0]], [-1.0, 0.0, 1.0]),
        case("Sign", [np.uint8([0, 7])], np.uint8([0, 1])),
        case("Reciprocal", [[-2.0, 4.0]], [-0.5, 0.25]),
        case("Ceil", [[-1.5, 1.2]], [-1.0, 2.0]),
        case("Floor", [[-1.5, 1.2]], [-2.0, 1.0]),
        case("Round", [[0.5, 1.5, -2.5, 2.4]], [0.0, 2.0, -2.0, 2.0]),
        case("Clip", [[-2.0, 0.5, 2.0]], [-1.0, 0.5, 1.0], version=6, min=-1.0, max=1.0),
        # Infinity is beyond the largest number, which is the default.
        case("Clip", [[np.inf, 1.0]], [np.finfo(np.float32).max, 1.0], version=10),
        case("Clip", [HALF([np.inf, -3])], HALF([65504, 0]), version=6, min=0.0),
        case("Clip", [[-2.0, 0.5, 2.0], -1.0, 1.0], [-1.0, 0.5, 1.0]),
        case("Clip", [[-2.0, 0.5, 2.0], None, 1.0], [-2.0, 0.5, 1.0]),
        case("Clip", [[-2.0, 0.5]], [-2.0, 0.5]),
    ],
)
def test_it_computes_what_pencil_and_paper_do(case):
    check(case)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [
        ("Add", [GRID, [1.0, 2.0, 3.0]], {}),
        ("Sub", [GRID, 1.0], {}),
        ("Mul", [GRID, [1.0, 2.0, 3.0]], {}),
        ("Div", [GRID, [1.0, 2.0, 4.0]], {}),
        ("Pow", [GRID, [1.5, 2.0, 0.5]], {}),
        ("Mod", [[[-4.3, 7.2], [1.4, 8.0]], [2.1, -3.4]], {"fmod": 1}),
        ("Mod", [[[-4.3, 7.2], [1.4, 8.0]], [2.1, -3.4]], {"fmod": 0}),
        ("Sum", [GRID, 1.0, [[1.0], [2.0]]], {}),
        ("Mean", [GRID, 1.0, [[1.0], [2.0]]], {}),
        ("Max", [GRID, [[3.5], [4.5]]], {}),
        ("Min", [GRID, [[3.5], [4.5]]], {}),
        ("Abs", [[-1.5, 2.0]], {}),
        ("Neg", [[-1.5, 2.0]], {}),
        ("Reciprocal", [[-1.5, 2.0]], {}),
        ("Clip", [[-2.0, 0.5, 2.0], -1.0, 1.0], {}),
        ("Clip", [[-2.0, 0.5, 2.0]], {"version": 6, "min": -1.0, "max": 1.0}),
        ("Add", [GRID, [1.0, 2.0]], {"version": 6, "broadcast": 1, "axis": 0}),
    ],
)
def test_its_gradient_is_that_of_differences(kind, inputs, attributes):
    check_gradient(kind, inputs, **attributes)


def test_bits_move_to_a_side():
    with pytest.raises(popart_exception, match=r"'LEFT' or 'RIGHT'\. Received: 'UP'"):
        check(Case("BitShift", [np.uint8(1), np.uint8(1)], np.uint8(1), {"direction": "UP"}))
