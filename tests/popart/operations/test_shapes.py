import numpy as np
import pytest
import tensorflow as tf
from popart_nodes import Case, case, check, check_gradient

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.evaluation import outputs_of

HALF = np.float16
GRID = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
EMPTY = np.zeros((0, 3), HALF)


@pytest.mark.parametrize(
    "case",
    [
        case("Identity", [GRID], GRID, version=6),
        case("Identity", [HALF(1)], HALF(1)),
        case("Shape", [GRID], [2, 3]),
        case("Shape", [1.5], np.zeros(0, np.int64), version=6),
        case("Size", [GRID], 6),
        case("Size", [EMPTY], 0, version=6),
        case("Reshape", [GRID, [3, 2]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        case("Reshape", [GRID, [0, -1, 1]], [[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]),
        case("Reshape", [[1.5], np.zeros(0, np.int64)], 1.5, version=6),
        case("Reshape", [EMPTY, [0, 3, 1]], EMPTY[..., np.newaxis]),
        case("Flatten", [[[[1, 2]], [[3, 4]]]], [[1, 2], [3, 4]]),
        case("Flatten", [[[[1, 2]], [[3, 4]]]], [[1, 2, 3, 4]], version=6, axis=0),
        case("Flatten", [[[[1, 2]], [[3, 4]]]], [[1], [2], [3], [4]], version=9, axis=3),
        case("Flatten", [[[[1, 2]], [[3, 4]]]], [[1, 2], [3, 4]], axis=-1),
        case("Flatten", [1.5], [[1.5]], axis=0),
        case("Squeeze", [[[[1], [2]]]], [1, 2], version=6),
        case("Squeeze", [[[[1], [2]]]], [[1], [2]], axes=[0]),
        case("Squeeze", [[[[1], [2]]]], [[1, 2]], axes=[-1]),
        case("Unsqueeze", [[1, 2]], [[[1], [2]]], version=6, axes=[2, 0]),
        case("Unsqueeze", [[1, 2]], [[[1], [2]]], axes=[-1, 0]),
        case("Unsqueeze", [HALF(1)], HALF([1]), axes=[-1]),
        case("Transpose", [GRID], [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]),
        case("Transpose", [[[[1, 2], [3, 4]]]], [[[1, 3]], [[2, 4]]], version=6, perm=[2, 0, 1]),
        case("Transpose", [HALF(1)], HALF(1)),
        case("Expand", [[[1], [2]], [3]], [[1, 1, 1], [2, 2, 2]], version=8),
        # What is given may be larger than what is asked for.
        case("Expand", [[[1], [2]], [2, 1, 1]], [[[1], [2]], [[1], [2]]]),
        case("Expand", [HALF(1), [0, 2]], np.zeros((0, 2), HALF)),
        case("Tile", [[[1, 2]], [2, 2]], [[1, 2, 1, 2], [1, 2, 1, 2]], version=6),
        case("Tile", [np.uint16([1, 2]), [2]], np.uint16([1, 2, 1, 2])),
        case("Tile", [[1.0, 2.0], [0]], np.zeros(0, np.float32)),
        case("Concat", [[[1, 2]], [[3, 4]]], [[1, 2], [3, 4]], version=6, axis=0),
        case("Concat", [[[1, 2]], [[3]], [[4]]], [[1, 2, 3, 4]], axis=-1),
        case("Concat", [EMPTY, HALF([[1, 2, 3]])], HALF([[1, 2, 3]]), axis=0),
        case("Split", [[1, 2, 3, 4]], ([1, 2], [3, 4]), version=6),
        case("Split", [GRID], ([[1.0], [4.0]], [[2.0, 3.0], [5.0, 6.0]]), axis=-1, split=[1, 2]),
        case("Split", [EMPTY], (EMPTY, EMPTY), split=[0, 0]),
        case("Pad", [[1, 2], [1, 2]], [0, 1, 2, 0, 0]),
        case("Pad", [[[1.0, 2.0]], [1, 0, 0, 1], 5.0], [[5.0, 5.0, 5.0], [1.0, 2.0, 5.0]]),
        case("Pad", [[1, 2, 3], [2, 1]], [3, 2, 1, 2, 3, 2], mode="reflect"),
        case("Pad", [[[1, 2], [3, 4]], [1, 0, 0, 2]], [[1, 2, 2, 2]] * 2 + [[3, 4, 4, 4]],
             mode="edge"),
        # What is below 0 is taken away.
        case("Pad", [[1, 2, 3], [-1, 1]], [2, 3, 0]),
        case("Pad", [[1, 2, 3], [-1, 2]], [2, 3, 3, 3], mode="edge"),
        case("Pad", [HALF([[1, 2]])], HALF([[1, 2, 5]]), version=6, pads=[0, 0, 0, 1], value=5.0),
        case("Pad", [[1.0, 2.0]], [2.0, 1.0, 2.0], version=10, pads=[1, 0], mode="reflect"),
        case("Pad", [EMPTY, [1, 0, 0, 0]], HALF([[0, 0, 0]])),
    ],
)  # fmt: skip
def test_it_computes_what_pencil_and_paper_do(case):
    check(case)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [
        ("Identity", [GRID], {}),
        ("Reshape", [GRID, [3, 2]], {}),
        ("Flatten", [GRID], {"axis": 0}),
        ("Squeeze", [[GRID]], {}),
        ("Unsqueeze", [GRID], {"axes": [1]}),
        ("Transpose", [GRID], {}),
        ("Expand", [GRID, [2, 1, 1]], {}),
        ("Tile", [GRID, [2, 1]], {}),
        ("Concat", [GRID, [[7.0], [8.0]]], {"axis": 1}),
        ("Pad", [GRID, [1, -1, 0, 2], 5.0], {}),
        ("Pad", [GRID, [1, -1, 0, 1]], {"mode": "reflect"}),
        ("Pad", [GRID, [1, -1, 0, 2]], {"mode": "edge"}),
    ],
)
def test_its_gradient_is_that_of_differences(kind, inputs, attributes):
    check_gradient(kind, inputs, **attributes)


def test_a_batch_of_unknown_size_keeps_its_size():
    reshaping = Case("Reshape", [GRID, [0, -1, 1]], None)
    model = reshaping.model({"x1": np.array([0, -1, 1])})
    padding = Case("Pad", [GRID, [1, 0, 0, 1]], None, {"mode": "edge"})
    padded = padding.model({"x1": np.array([1, 0, 0, 1])})
    shape, size = Case("Shape", [GRID], None).model(), Case("Size", [GRID], None).model()

    @tf.function(input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    def run(x):
        return [outputs_of(each, {"x0": x})[0] for each in (model, padded, shape, size)]

    results = run(tf.constant(GRID))
    assert [tuple(each.shape) for each in results] == [(2, 3, 1), (3, 4), (2,), ()]
    assert results[2].numpy().tolist() == [2, 3]
    assert results[3].numpy() == 6


@pytest.mark.parametrize("pads", [[1, 0], [1, 0, 0, 1, 0, 0], [1, 0, 0]])
def test_pads_are_two_for_each_axis(pads):
    with pytest.raises(popart_exception, match=r"rank 2 are 4 numbers: .* Received: \[1, 0"):
        check(Case("Pad", [GRID, pads], None))


def test_parts_are_as_many_as_outputs():
    with pytest.raises(popart_exception, match=r"each of 2 outputs\. Received: \[2\]"):
        check(Case("Split", [GRID], (0, 0), {"split": [2]}))


def test_an_unknown_mode_of_padding_is_refused():
    with pytest.raises(popart_exception, match=r"'constant', 'reflect' or 'edge'. Rec.*: 'wrap'"):
        check(Case("Pad", [GRID, [1, 0, 0, 1]], None, {"mode": "wrap"}))
