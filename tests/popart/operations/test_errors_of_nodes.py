"""Errors of nodes, in the words of models."""

import re

import pytest
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import AI_ONNX, GraphInput, Node, OnnxGraph
from ipu_keras.popart.operations.evaluation import Evaluation, Subgraph
from ipu_keras.popart.operations.values import LaidOutTensor

GRAPH = OnnxGraph(
    "body", (Node("Relu", AI_ONNX, ("x",), ("y",), "relu"),), (GraphInput("x"),), ("y",)
)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("bad shape"), "bad shape"),
        (OverflowError("too large"), "too large"),
        (ZeroDivisionError("division by zero"), "division by zero"),
        (IndexError("out of range"), "Its inputs or attributes do not fit each other: IndexError"),
        (KeyError(7), "Its inputs or attributes do not fit each other: KeyError 7"),
        (MemoryError(), "Its inputs or attributes do not fit each other: MemoryError"),
    ],
    ids=repr,
)
def test_what_wrong_inputs_raise_names_the_node(error, words):
    class Broken(LaidOutTensor):
        def in_order(self, order):
            raise error

    environment = {"x": Broken(tf.constant([1.0]))}
    with pytest.raises(popart_exception, match=f"^In Relu 'relu': {re.escape(words)}"):
        Evaluation({AI_ONNX: 11}).run(GRAPH, environment)


def test_what_is_our_own_mistake_is_no_error_of_the_node():
    class Broken(LaidOutTensor):
        def in_order(self, order):
            raise AssertionError("ours")

    with pytest.raises(AssertionError, match="ours"):
        Evaluation({AI_ONNX: 11}).run(GRAPH, {"x": Broken(tf.constant([1.0]))})


def test_a_graph_within_a_node_with_other_inputs():
    with pytest.raises(popart_exception, match=r"^The graph 'body' has 1 inputs \(x\)"):
        Subgraph(GRAPH, Evaluation({AI_ONNX: 11}), {})(tf.constant(1.0), tf.constant(2.0))
