import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from popart_nodes import Case, case, check, check_gradient

HALF = np.float16
GRID = [[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]
LOGS = np.log(np.float32([[1, 2, 5], [3, 4, 1]]))


@pytest.mark.parametrize(
    "case",
    [
        case("ReduceSum", [GRID], [[22.0]]),
        case("ReduceSum", [GRID], 22.0, keepdims=0),
        case("ReduceSum", [GRID], 22.0, keepdims=0, axes=[], version=6),
        case("ReduceSum", [GRID], [[5.0, 7.0, 10.0]], axes=[0], version=6),
        case("ReduceSum", [GRID], [6.0, 16.0], axes=[-1], keepdims=0),
        case("ReduceSum", [HALF(3)], HALF(3)),
        case("ReduceSum", [np.zeros((0, 2), HALF)], HALF([0, 0]), axes=[0], keepdims=0),
        case("ReduceSum", [[[1, 2], [3, 4]]], 10, axes=[0, 1], keepdims=0),
        case("ReduceMean", [GRID], [[2.0], [16 / 3]], axes=[1]),
        case("ReduceMean", [np.int32([[1, 2], [3, 6]])], np.int32(3), keepdims=0),
        case("ReduceProd", [GRID], [6.0, 140.0], axes=[1], keepdims=0),
        case("ReduceMax", [GRID], [3.0, 7.0], axes=[1], keepdims=0),
        case("ReduceMin", [GRID], [1.0, 2.0, 3.0], axes=[-2], keepdims=0),
        case("ReduceL1", [[[1.0, -2.0], [-3.0, 4.0]]], [3.0, 7.0], axes=[1], keepdims=0),
        case("ReduceL1", [np.uint32([1, 2])], np.uint32([3])),
        case("ReduceL2", [[[3.0, -4.0], [5.0, 12.0]]], [5.0, 13.0], axes=[1], keepdims=0),
        case("ReduceL2", [[3, 4]], [5]),
        case("ReduceL2", [HALF([300, 400])], HALF([500])),
        case("ReduceSumSquare", [[[3.0, -4.0], [5.0, 12.0]]], [[25.0], [169.0]], axes=[1]),
        case("ReduceLogSum", [[[0.5, 0.5], [1.0, 0.0]]], [[0.0], [0.0]], axes=[1]),
        case("ReduceLogSum", [[20, 1]], [3]),
        case("ReduceLogSumExp", [LOGS], np.log(np.float32([8, 8])), axes=[1], keepdims=0),
        # No sum of exponentials of this size has a number.
        case("ReduceLogSumExp", [HALF([100, 100])], HALF([100.7])),
        case("ArgMax", [[[1.0, 3.0, 3.0], [4.0, 2.0, 0.0]]], [[1, 0, 0]]),
        case("ArgMax", [[[1.0, 3.0, 3.0], [4.0, 2.0, 0.0]]], [1, 0], axis=-1, keepdims=0),
        case("ArgMin", [HALF([[1, 3, 1], [4, 2, 0]])], [[0], [2]], axis=1, version=6),
        case(
            "TopK",
            [[[1.0, 3.0, 3.0], [4.0, 2.0, 0.0]]],
            ([[3.0, 3.0], [4.0, 2.0]], [[1, 2], [0, 1]]),
            version=6,
            k=2,
        ),
        case(
            "TopK",
            [[[1.0, 3.0], [4.0, 2.0]], [1]],
            ([[4.0, 3.0]], [[1, 0]]),
            version=10,
            axis=0,
        ),
        case("TopK", [[5, 1, 1, -3], [3]], ([-3, 1, 1], [3, 1, 2]), largest=0),
        case("TopK", [HALF([5, -1]), [1]], (HALF([-1]), [1]), largest=0, sorted=0),
        case("TopK", [np.uint8([0, 200, 7]), [2]], (np.uint8([0, 7]), [0, 2]), largest=0),
        case("TopK", [[1.0, 2.0], [0]], (np.zeros(0, np.float32), np.zeros(0, np.int64))),
        case("CumSum", [GRID, 1], [[1.0, 3.0, 6.0], [4.0, 9.0, 16.0]]),
        case("CumSum", [[1, 2, 3], 0], [0, 1, 3], exclusive=1),
        case("CumSum", [[1, 2, 3], -1], [6, 5, 3], reverse=1),
        case("CumSum", [[1, 2, 3], [0]], [5, 3, 0], reverse=1, exclusive=1),
    ],
)
def test_it_computes_what_pencil_and_paper_do(case):
    check(case)


@pytest.mark.parametrize(
    "kind",
    [
        "ReduceSum",
        "ReduceMean",
        "ReduceProd",
        "ReduceMax",
        "ReduceMin",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceLogSumExp",
    ],
)
@pytest.mark.parametrize("attributes", [{}, {"axes": [-1], "keepdims": 0}])
def test_the_gradient_of_a_reduction_is_that_of_differences(kind, attributes):
    check_gradient(kind, [GRID], **attributes)


def test_the_gradients_of_those_with_positions_are_those_of_differences():
    check_gradient("TopK", [GRID, [1]], axis=0, largest=0)
    check_gradient("CumSum", [GRID, 1], reverse=1)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_the_largest_are_the_first_of_those_sorted(data):
    dtype = data.draw(st.sampled_from([np.float32, np.int8, np.uint8]))
    lowest, highest = {np.float32: (-3, 3), np.int8: (-128, 127), np.uint8: (0, 255)}[dtype]
    numbers = st.integers(lowest, highest)
    x = np.array(data.draw(st.lists(numbers, min_size=1, max_size=6)), dtype)
    k = data.draw(st.integers(0, len(x)))
    largest = data.draw(st.booleans())
    # Equal ones stay in their order.
    order = sorted(range(len(x)), key=lambda i: (-float(x[i]) if largest else float(x[i]), i))[:k]
    positions = np.array(order, np.int64)
    check(Case("TopK", [x, [k]], (x[positions], positions), {"largest": int(largest)}))
