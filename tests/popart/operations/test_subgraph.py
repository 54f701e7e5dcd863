"""Graphs within nodes, as operations call them."""

import numpy as np
import pytest
import tensorflow as tf
from popart_graphs import graph, ipu_node, onnx_node

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import AI_GRAPHCORE, AI_ONNX
from ipu_keras.popart.operations.evaluation import Evaluation
from ipu_keras.popart.operations.subgraph import Subgraph
from ipu_keras.popart.operations.values import LaidOutTensor

OPSETS = {AI_ONNX: 11, AI_GRAPHCORE: 1}


def drawing(**options):
    """A graph that draws a mask, and what it is evaluated with."""
    node = ipu_node("ShapedDropout", "a", "b", shape=[1], ratio=0.5)
    seeds = []

    def seed():
        seeds.append(tf.constant([len(seeds), 0]))
        return seeds[-1]

    evaluation = Evaluation(OPSETS, is_training=True, seed=seed, **options)
    around = graph([node, onnx_node("Add", "b k", "c")], "a", "c k", k=np.array([7.0]))
    return Subgraph(around, evaluation, {}), seeds


def test_an_outline_has_shapes_types_and_what_is_known():
    subgraph, seeds = drawing()
    result, known = subgraph.outline(tf.TensorSpec([None, 3], tf.float64))
    assert (result.shape, result.dtype, result.known) == ((None, 3), tf.float64, None)
    assert known.known == [7.0]
    assert not seeds
    assert subgraph.outline(LaidOutTensor(known=np.ones(2)))[0].shape == (2,)


def test_an_outline_leaves_no_trace():
    """It opens nothing around nodes, and adds nothing to what is being traced."""
    opened = []

    def around(node):
        opened.append(node.kind)
        return tf.name_scope(node.kind)

    subgraph, seeds = drawing(around=around)

    @tf.function(autograph=False)
    def function(x):
        before = len(tf.compat.v1.get_default_graph().get_operations())
        subgraph.outline(tf.TensorSpec(x.shape, x.dtype))
        assert len(tf.compat.v1.get_default_graph().get_operations()) == before
        assert not opened
        return subgraph(x)[0].tensor

    function(tf.ones((2, 3), tf.float64))
    assert opened == ["ShapedDropout", "Add"]
    assert len(seeds) == 1


def test_names_within_hide_those_around():
    around = {"a": LaidOutTensor(known=np.array(1)), "k": LaidOutTensor(known=np.array(2))}
    subgraph = Subgraph(graph([ipu_node("Nop", "a", "k")], "", "k a"), Evaluation(OPSETS), around)
    assert [each.known for each in subgraph()] == [1, 1]
    assert around["k"].known == 2


def test_a_graph_has_as_many_inputs_as_it_is_given():
    subgraph, _ = drawing()
    text = "'main' has 1 inputs \\(a\\); it has to have one for each.*Received: 2 tensors"
    with pytest.raises(popart_exception, match=text):
        subgraph(np.ones(1), np.ones(1))
