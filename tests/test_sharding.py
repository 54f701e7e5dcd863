"""Shards of operations, and how they spread."""

import doctest

import pytest
import tensorflow as tf
from tensorflow.python.compiler.xla.experimental import xla_sharding

from ipu_keras import sharding
from ipu_keras.sharding import (
    assign_shard,
    dependencies,
    get_shard_from_colocation,
    has_attr,
    propagate_sharding,
    shard_of,
)

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def named(name):
    return tf.constant(1.0, name=name)


def test_dependencies():
    a, b = named("a"), named("b")
    with tf.control_dependencies([b]):
        c = tf.negative(a, name="c")
    d = tf.add(c, c, name="d")
    named("other")
    assert [op.name for op in dependencies([d.op])] == ["d", "c", "a", "b"]
    # Tensors, several roots, and nothing twice.
    assert [op.name for op in dependencies([c, d])] == ["c", "d", "a", "b"]
    assert dependencies([]) == []


def test_has_attr():
    op = named("a").op
    assert has_attr(op, "dtype")
    assert not has_attr(op, "_XlaSharding")
    assign_shard(op, 3)
    assert has_attr(op, "_XlaSharding")


def test_shards_are_those_of_xla():
    op = xla_sharding.assign_device(named("a"), 2).op
    assert shard_of(op) == 2
    assert shard_of(xla_sharding.replicate(named("b")).op) is None
    assert shard_of(named("c").op) is None


def test_shard_from_colocation():
    first, second = named("a").op, named("b").op
    assign_shard(second, 1)
    with v1.colocate_with(first):
        plain = named("c").op
        with v1.colocate_with(second):
            both = named("d").op
    assert get_shard_from_colocation(plain) is None
    assert get_shard_from_colocation(both) == 1
    assert get_shard_from_colocation(first) is None


def test_shards_spread_over_chains_and_stay(graph):
    ops = [named("a").op]
    for name in "bcd":
        with v1.colocate_with(ops[-1]):
            ops.append(named(name).op)
    assign_shard(ops[0], 1)
    assign_shard(ops[2], 2)
    propagate_sharding(graph)
    # TensorFlow colocates all of a chain with its first one.
    assert [shard_of(op) for op in ops] == [1, 1, 2, 1]


def test_in_a_function():
    @tf.function
    def step(x):
        y = tf.sin(x)
        assign_shard(y.op, 1)
        gradient = tf.compat.v1.gradients(y, x, colocate_gradients_with_ops=True)[0]
        propagate_sharding(x.graph)
        return gradient

    graph = step.get_concrete_function(tf.TensorSpec([])).graph
    assert [shard_of(op) for op in graph.get_operations() if op.type == "Cos"] == [1]


def test_examples_in_the_documentation():
    assert doctest.testmod(sharding).failed == 0
