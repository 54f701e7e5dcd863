"""Numbers along an axis, in graphs built by hand and as TensorFlow traces them."""

import doctest

import pytest
import tensorflow as tf
from hlo_graphs import argument, graph, inner_parameter, op, poplar_call

from ipu_keras import profile
from ipu_keras.cost.rewrites import counters
from ipu_keras.cost.rewrites.counters import with_counters_of_one_axis

SAMPLES, CLASSES = 1024, 1000


def test_example_in_the_docstring():
    assert doctest.testmod(counters).failed == 0


@pytest.mark.parametrize(("axis", "count"), [(0, 4), (1, 6), (2, 5)])
def test_a_counter_has_the_axis_along_which_it_counts(axis, count):
    (numbers, counter) = with_counters_of_one_axis(
        graph(op("i", "iota", (4, 6, 5), dtype="int32", dimensions=(axis,)))
    ).ops
    assert (numbers.kind, numbers.outputs[0].shape, numbers.inputs) == ("iota", (count,), ())
    assert numbers.attributes == {"dimensions": (0,)}
    assert (counter.name, counter.kind, counter.inputs) == ("i", "broadcast", ("i/numbers",))
    assert counter.outputs[0].shape == (4, 6, 5)
    assert counter.attributes == {"dimensions": (axis,)}
    assert {one.outputs[0].dtype for one in (numbers, counter)} == {"int32"}


def test_what_has_one_axis_stays():
    before = graph(op("i", "iota", (4,), dimensions=(0,)), op("y", "negate", (4,), "i"))
    assert with_counters_of_one_axis(before) == before


def test_functions_that_are_called():
    body = graph(inner_parameter("x", 2), op("i", "iota", (2, 3), dimensions=(1,)))
    call = poplar_call("call", "PopnnLSTM", "x", shapes=[(2, 3)])
    found = with_counters_of_one_axis(graph(argument("x", 2), call, functions={"body": body}))
    assert [one.kind for one in found.functions["body"].ops][1:] == ["iota", "broadcast"]


def constants(report):
    return report.model.memory.bytes_by_category["constants"]


def test_labels_are_compared_with_the_numbers_of_classes():
    """Not with those of each sample; the losses' own numbers are a few words."""

    def loss(labels, logits):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    specs = tf.TensorSpec((SAMPLES,), tf.int32), tf.TensorSpec((SAMPLES, CLASSES))
    report = profile(loss, *specs)
    assert CLASSES * 4 <= constants(report) < CLASSES * 8 + 100
    assert "broadcast" not in {row.family for row in report.rows}


def test_an_arg_max_counts_by_itself():
    report = profile(lambda x: tf.argmax(x, -1, tf.int32), tf.TensorSpec((SAMPLES, CLASSES)))
    assert [row.family for row in report.rows] == ["reduce"]
    assert constants(report) < CLASSES * 4 + 100


def test_what_a_sort_moves_is_written_first():
    report = profile(lambda x: tf.argsort(x, -1), tf.TensorSpec((64, 256)))
    assert "broadcast" in {row.family for row in report.rows}
    assert constants(report) < 256 * 4 + 100
