"""Averages of gradients over replicas."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from replicas import run

from ipu_keras.optimizers import CrossReplicaOptimizer, cross_replica_optimizer

v1 = tf.compat.v1


def sgd():
    return v1.train.GradientDescentOptimizer(0.5)


@pytest.mark.parametrize("jit_compile", [None, True])
def test_two_replicas(on_ipu, jit_compile):
    found = on_ipu(lambda: CrossReplicaOptimizer(sgd()), [1.0, 4.0], 2, jit_compile)
    # The gradients of the weight are 1 and 2, then 4 and 5; of the bias, twice that.
    np.testing.assert_array_equal(found, [[0.25, -1.5, 1], [-2.0, -6.0, 2]])


def test_without_it_replicas_train_on_their_own(on_ipu):
    found = on_ipu(sgd, [1.0], 2)
    np.testing.assert_array_equal(found, [[0.5, -1.0, 1]])


def test_state_of_each_replica_stays_the_same(on_ipu):
    def momentum():
        return CrossReplicaOptimizer(v1.train.MomentumOptimizer(0.5, 0.5))

    found = on_ipu(momentum, [1.0, -1.5, -0.5], 2)
    # Averages are 1.5, -1 and 0, momentum 1.5, -0.25 and -0.125.
    np.testing.assert_array_equal(found[:, 0], [0.25, 0.375, 0.4375])


def test_averages_in_float16_do_not_overflow():
    averages = cross_replica_optimizer.averages

    def gradient(x):
        return averages([(x, "variable"), (None, "other")])[0][0]

    x = np.full((4, 1), 30000, np.float16)
    np.testing.assert_array_equal(run(gradient, x), x)


def test_gradients_of_lookups_are_dense():
    slices = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 1]), tf.constant([3, 2]))
    table = tf.Variable(tf.ones([3, 2]))
    CrossReplicaOptimizer(sgd()).apply_gradients([(slices, table)])
    np.testing.assert_array_equal(table, [[1, 1], [0, 0], [1, 1]])


def test_types_that_ipus_lack():
    weight = tf.Variable(1.0, dtype=tf.float64)
    with pytest.raises(TypeError, match=r"Received: a tensor of float64$"):
        CrossReplicaOptimizer(sgd()).apply_gradients([(tf.ones([], tf.float64), weight)])


def test_examples_in_the_documentation():
    assert doctest.testmod(cross_replica_optimizer).failed == 0
