"""Backward passes and weight updates on the shards of the forward pass."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.optimizers import ShardedOptimizer, sharded_optimizer
from ipu_keras.sharding import assign_shard, shard_of

v1 = tf.compat.v1


@pytest.fixture
def graph():
    """Two layers on two shards."""
    with tf.Graph().as_default() as graph:
        x = tf.constant([[1.0, 2.0]])
        for shard in range(2):
            num_operations = len(graph.get_operations())
            weights = v1.get_variable(f"w{shard}", initializer=tf.eye(2))
            x = tf.sin(tf.matmul(x, weights), name=f"layer{shard}")
            for op in graph.get_operations()[num_operations:]:
                assign_shard(op, shard)
        yield graph


def shards(graph, kinds):
    return [(op.type, shard_of(op)) for op in graph.get_operations() if op.type in kinds]


def test_backward_pass(graph):
    loss = tf.reduce_sum(graph.get_tensor_by_name("layer1:0"))
    ShardedOptimizer(v1.train.GradientDescentOptimizer(0.5)).compute_gradients(loss)
    assert shards(graph, {"Cos"}) == [("Cos", 1), ("Cos", 0)]
    products = shards(graph, {"MatMul"})
    # Of each layer's backward pass two products, the last layer's first.
    assert products == [("MatMul", k) for k in (0, 1, 1, 1, 0, 0)]
    assert shard_of(loss.op) is None


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: v1.train.GradientDescentOptimizer(0.5), "ResourceApplyGradientDescent"),
        (lambda: v1.train.MomentumOptimizer(0.5, 0.9), "ResourceApplyMomentum"),
    ],
)
def test_weight_updates(graph, make, kind):
    loss = tf.reduce_sum(graph.get_tensor_by_name("layer1:0"))
    ShardedOptimizer(make()).minimize(loss)
    assert sorted(shards(graph, {kind})) == [(kind, 0), (kind, 1)]


def test_trains_as_without_it(in_session):
    def sgd():
        return v1.train.GradientDescentOptimizer(0.5)

    found = in_session(lambda: ShardedOptimizer(sgd()), [1.0, 2.0])
    np.testing.assert_array_equal(found, in_session(sgd, [1.0, 2.0]))


def test_examples_in_the_documentation():
    assert doctest.testmod(sharded_optimizer).failed == 0
