import numpy as np
import pytest
from popart_nodes import Case, case, check

from ipu_keras.popart.exceptions import popart_exception

A, B, C = np.float32([1, 2]), np.float32([3, 4]), np.float32([5, 6])
GRID = np.float32([[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    "case",
    [
        case("SequenceConstruct", [A, B], [A, B]),
        case("SequenceEmpty", [], [], dtype=1),
        case("SequenceLength", [[A, B, C]], 3),
        case("SequenceAt", [[A, B, C], 1], B),
        case("SequenceAt", [[A, B, C], np.int32(-1)], C),
        case("SequenceInsert", [[A, B], C], [A, B, C]),
        case("SequenceInsert", [[A, B], C, 0], [C, A, B]),
        case("SequenceInsert", [[A, B], C, -1], [A, C, B]),
        case("SequenceInsert", [[A, B], C, 2], [A, B, C]),
        case("SequenceErase", [[A, B, C]], [A, B]),
        case("SequenceErase", [[A, B, C], 0], [B, C]),
        case("SequenceErase", [[A, B, C], -2], [A, C]),
        case("SplitToSequence", [GRID], [GRID[:1], GRID[1:]]),
        case("SplitToSequence", [GRID], [GRID[0], GRID[1]], keepdims=0),
        case("SplitToSequence", [GRID, 2], [GRID[:, :2], GRID[:, 2:]], axis=-1),
        case("SplitToSequence", [GRID, [1, 2]], [GRID[:, :1], GRID[:, 1:]], axis=1),
        case("ConcatFromSequence", [[A, B]], [1.0, 2.0, 3.0, 4.0], axis=0),
        case("ConcatFromSequence", [[A, B]], [[1.0, 3.0], [2.0, 4.0]], axis=-1, new_axis=1),
    ],
)
def test_it_computes_what_pencil_and_paper_do(case):
    check(case)


@pytest.mark.parametrize(
    ("kind", "inputs", "text"),
    [
        ("SequenceAt", [[A, B], 2], r"from -2 to 1, .* Received: 2"),
        ("SequenceErase", [[A, B], -3], r"from -2 to 1, .* Received: -3"),
        ("SequenceInsert", [[A, B], C, 3], r"from -2 to 2, .* Received: 3"),
    ],
)
def test_positions_outside_are_refused(kind, inputs, text):
    with pytest.raises(popart_exception, match=f"In {kind} 'y0': The position must be {text}"):
        check(Case(kind, inputs, None))


def test_what_is_erased_is_there():
    with pytest.raises(popart_exception, match=r"from 0 to -1, by the length .* Received: -1"):
        check(Case("SequenceErase", [[]], []))
