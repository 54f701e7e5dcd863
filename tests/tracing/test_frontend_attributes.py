"""Texts of operations, and that XLA hands them on."""

import doctest

import tensorflow as tf

from ipu_keras.tracing import frontend_attributes
from ipu_keras.tracing.frontend_attributes import (
    AttributesOfCalls,
    attribute_from_now_on,
    attributed,
    attributes_of,
    set_attribute_of,
)
from ipu_keras.tracing.hlo import hlo_graph


def test_examples():
    assert doctest.testmod(frontend_attributes).failed == 0


def test_texts_of_operations():
    with tf.Graph().as_default() as graph:
        with attributed(graph, "b", "1"), attributed(graph, "a", "2"):
            both = tf.constant(1.0).op
        with attributed(graph, "a", "2"), attributed(graph, "b", "1"):
            reordered = tf.constant(1.0).op
        attribute_from_now_on(graph, "c", "3")
        attribute_from_now_on(graph, "c", "4")
        later = tf.constant(1.0).op
    assert attributes_of(both) == {"a": "2", "b": "1"}
    # The order of scopes makes no other program.
    name = "_XlaFrontendAttributes"
    assert both.get_attr(name) == reordered.get_attr(name)
    assert attributes_of(later) == {"c": "3"}
    set_attribute_of(later, "a", "0")
    assert attributes_of(later) == {"a": "0", "c": "3"}


def test_calls():
    @tf.function
    def inner(x):
        return tf.tanh(x)

    @tf.function
    def outer(x):
        graph = tf.compat.v1.get_default_graph()
        x = inner(x)
        with attributed(graph, "a", "1"):
            return inner(x)

    graph = outer.get_concrete_function(tf.TensorSpec([2])).graph
    calls = AttributesOfCalls([graph])
    assert calls.of("PartitionedCall/Tanh") == {}
    assert calls.of("PartitionedCall_1/Tanh;other") == {"a": "1"}
    # Of what that calls it is said too; and names begin anew there.
    assert calls.of("PartitionedCall_1/PartitionedCall/Tanh") == {"a": "1"}
    assert calls.of("PartitionedCall/PartitionedCall_1/Tanh") == {"a": "1"}


def test_xla_hands_texts_on():
    @tf.function
    def step(x):
        graph = tf.compat.v1.get_default_graph()
        with attributed(graph, "IPU_SHARD", "3"), attributed(graph, "PARTIALS_TYPE", "half"):
            y = tf.matmul(x, x)
        return tf.sort(y)

    ops = hlo_graph(step.get_concrete_function(tf.TensorSpec([2, 2]))).ops
    found = {op.kind: (op.shard, op.partials_dtype) for op in ops}
    assert found["dot"] == (3, "float16")
    assert found["sort"] == (None, "")
