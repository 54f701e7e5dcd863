"""Iterators of datasets as infeeds of a traced function."""

import pytest
import tensorflow as tf

from ipu_keras.ir import TensorSpec
from ipu_keras.tracing.hlo import hlo_graph
from ipu_keras.tracing.infeeds import InfeedIterator

SPEC = {"x": tf.TensorSpec((2, 3), tf.float16), "y": (tf.TensorSpec((), tf.int32),)}


def graph_of(function):
    return hlo_graph(tf.function(function).get_concrete_function())


def test_each_element_is_an_operation_for_each_tensor():
    def sums():
        iterator = InfeedIterator(SPEC)
        first, second = next(iterator), iterator.get_next()
        return first["x"] + second["x"], first["y"][0] + second["y"][0]

    infeeds = [op for op in graph_of(sums).ops if op.kind == "infeed"]
    of_element = [(TensorSpec((2, 3), "float16"),), (TensorSpec((), "int32"),)]
    assert [op.outputs for op in infeeds] == of_element * 2
    assert len({op.name for op in infeeds}) == 4
    assert not any(op.inputs for op in infeeds)


def test_in_a_loop():
    def total():
        iterator, result = InfeedIterator(SPEC["x"]), tf.zeros((2, 3), tf.float16)
        for _ in tf.range(5):
            result += next(iterator)
        return result

    graph = graph_of(total)
    (loop,) = [op for op in graph.ops if op.kind == "while"]
    assert loop.attributes["trip_count"] == 5
    assert [op.kind for op in graph.walk()].count("infeed") == 1
    assert "infeed" not in {op.kind for op in graph.ops}


def test_what_it_says_of_the_dataset():
    assert InfeedIterator(SPEC).element_spec is SPEC
    assert repr(InfeedIterator(3)) == "<infeed of 3>"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            tf.TensorSpec((None, 3)),
            r"Output shape \(None, 3\) is not fully defined. If using tf.Dataset.batch, set "
            "`drop_remainder=True`",
        ),
        (tf.TensorSpec(None), "Output shape <unknown> is not fully defined."),
        (tf.RaggedTensorSpec((2, None)), "must be dense tensors. Received: RaggedTensorSpec"),
    ],
)
def test_what_no_infeed_can_be_of(spec, message):
    with pytest.raises(ValueError, match=message):
        graph_of(lambda: next(InfeedIterator(spec)))


def test_a_loop_over_all_elements():
    def total():
        result = 0
        for number in InfeedIterator(tf.TensorSpec((), tf.int32)):
            result += number
        return result

    with pytest.raises(ValueError, match="unknown number of steps"):
        graph_of(total)
