import pytest
import tensorflow as tf
from popart_nodes import Case, check

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.sizes import axis_within, flattened, product_of, sizes_of


def test_what_is_known_is_a_number():
    sizes = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3, 4])])
    def flat(x):
        sizes.extend(sizes_of(x))
        return flattened(x, -1)

    assert flat(tf.zeros([2, 3, 4])).shape == (6, 4)
    assert sizes[1:] == [3, 4]
    assert tf.is_symbolic_tensor(sizes[0])


def test_an_axis_counts_from_the_first():
    assert [axis_within(axis, 3) for axis in (0, 2, -1, -3)] == [0, 2, 2, 0]


GRID = [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "rank", "axis"),
    [
        ("Flatten", [GRID], {"axis": 3}, 2, 3),
        ("Softmax", [GRID], {"axis": -3}, 2, -3),
        ("Hardmax", [GRID], {"axis": -3}, 2, -3),
        ("Add", [GRID, [1.0]], {"version": 6, "broadcast": 1, "axis": 2}, 2, 2),
        ("TopK", [GRID, [1]], {"axis": 2}, 2, 2),
        ("Unsqueeze", [GRID], {"axes": [3]}, 3, 3),
        ("Reshape", [GRID, [1, 2, 0]], {}, 2, 2),
        ("Slice", [GRID, [0], [1], [2]], {}, 2, 2),
        ("Slice", [GRID], {"version": 9, "starts": [0] * 3, "ends": [1] * 3}, 2, 2),
        ("Gather", [GRID, [0]], {"axis": 2}, 2, 2),
        ("GatherElements", [GRID, [[0]]], {"axis": -3}, 2, -3),
        ("ScatterElements", [GRID, [[0]], GRID], {"axis": 2}, 2, 2),
        ("OneHot", [[0], 2, [0.0, 1.0]], {"axis": 2}, 2, 2),
        ("Unique", [GRID], {"axis": 2}, 2, 2),
        ("SplitToSequence", [GRID], {"axis": 2}, 2, 2),
    ],
)
def test_an_axis_that_is_not_there_is_refused(kind, inputs, attributes, rank, axis):
    attributes = dict(attributes)
    version = attributes.pop("version", 11)
    text = rf"In {kind} 'y0': An axis of a tensor of rank {rank} must be from -{rank} to {rank - 1}"
    with pytest.raises(popart_exception, match=text + rf"\. Received: {axis}$"):
        check(Case(kind, inputs, None, attributes, version))


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [
        ("ArgMax", [GRID], {"axis": 2}),
        ("ReduceSum", [GRID], {"axes": [2]}),
        ("CumSum", [GRID, 2], {}),
        ("Concat", [GRID, GRID], {"axis": 2}),
        ("Split", [GRID], {"axis": 2}),
        ("Squeeze", [GRID], {"axes": [2]}),
        ("Compress", [GRID, [True]], {"axis": 2}),
        ("ReverseSequence", [GRID, [1]], {"batch_axis": 0, "time_axis": 2}),
        ("Transpose", [GRID], {"perm": [0, 2]}),
    ],
)
def test_axes_that_tensorflow_checks_are_refused_in_its_words(kind, inputs, attributes):
    with pytest.raises(popart_exception, match=f"^In {kind} 'y0': "):
        check(Case(kind, inputs, None, attributes))


def test_no_axes_hold_one_element():
    assert product_of([]) == 1
    assert product_of(sizes_of(tf.zeros([]))) == 1
    assert flattened(tf.zeros([0, 3]), 2).shape == (0, 1)
