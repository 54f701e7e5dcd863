"""Sums over replicas, against NumPy."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from replicas import in_groups, numbers, repeated, run, trace

from ipu_keras.ops import cross_replica_ops
from ipu_keras.ops.cross_replica_ops import (
    assume_equal_across_replicas,
    cross_replica_mean,
    cross_replica_sum,
)
from ipu_keras.tracing.replication import replicated

GROUPS = [(2, None), (2, 1), (4, None), (4, 2), (8, 2), (8, 4), (8, 8)]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("num_replicas", "size"), GROUPS)
def test_sum(num_replicas, size, jit_compile):
    x = numbers(num_replicas, 3, 2)
    found = run(lambda x: cross_replica_sum(x, size), x, jit_compile=jit_compile)
    group = size or num_replicas
    np.testing.assert_array_equal(found, repeated(in_groups(x, group).sum(axis=1), group))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "uint32"])
def test_sum_of_each_type(dtype):
    x = np.abs(numbers(4, 3, dtype=np.float32)).astype(dtype)
    found = run(cross_replica_sum, x)
    assert found[0].dtype == dtype
    np.testing.assert_array_equal(found, repeated(x.sum(axis=0, keepdims=True), 4))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("size", [None, 2])
def test_gradient_of_the_sum(size, jit_compile):
    """All replicas of a group have the same sum, and each weights it in its own way."""
    x, weights = numbers(4, 3), numbers(4, 3, seed=1)

    def gradient(x, weights):
        return tf.gradients(cross_replica_sum(x, size) ** 2 * weights, x)[0]

    found = run(gradient, x, weights, jit_compile=jit_compile)
    group = size or 4
    sums = repeated(in_groups(x, group).sum(axis=1), group)
    expected = repeated(in_groups(2 * sums * weights, group).sum(axis=1), group)
    np.testing.assert_array_equal(found, expected)


def test_mean():
    x = numbers(4, 3)
    np.testing.assert_allclose(run(cross_replica_mean, x), repeated(x.mean(0, keepdims=True), 4))
    found = run(lambda x: tf.gradients(cross_replica_mean(x, 2) * x, x)[0], x)
    means = repeated(in_groups(x, 2).mean(axis=1), 2)
    np.testing.assert_allclose(found, 2 * means)


def test_the_mean_does_not_overflow():
    x = np.full((4, 1), 60000, np.float16)
    np.testing.assert_array_equal(run(cross_replica_mean, x), x)


@pytest.mark.parametrize("operation", [cross_replica_sum, cross_replica_mean])
def test_without_replication(operation):
    x = tf.constant([1.0, 2.0])
    np.testing.assert_array_equal(operation(x, name="anything"), x)
    graph = trace(operation, 1, tf.TensorSpec((2,))).graph
    assert {op.type for op in graph.get_operations()} <= {
        "Placeholder",
        "Identity",
        "IdentityN",
    } | {
        "Const",
        "RealDiv",
    }


def test_promised_tensors_keep_their_values_and_structure():
    def function(x):
        marked = assume_equal_across_replicas({"a": x, "b": (x + 1.0,)}, inplace=True)
        return marked["a"] + marked["b"][0]

    x = numbers(2, 3)
    np.testing.assert_array_equal(run(function, x), 2 * x + 1)


@pytest.mark.parametrize("size", [3, 0, -1, True, 1.5, 8])
def test_groups_that_do_not_divide_the_replicas(size):
    with pytest.raises(ValueError, match=r"divides the number of replicas. .*in a program of 4"):
        trace(lambda x: cross_replica_sum(x, size), 4, tf.TensorSpec(()))
    with replicated(4), pytest.raises(ValueError, match="divides the number of replicas"):
        cross_replica_mean(1.0, size)


def test_tensors_that_cannot_be_added():
    with pytest.raises(TypeError, match=r"float32, int32, uint32.*`x`, a tensor of float64"):
        cross_replica_sum(tf.zeros((), tf.float64))
    with pytest.raises(TypeError, match=r"cast it first.*tensor of int32"):
        cross_replica_mean(1)
    with pytest.raises(ValueError, match=r"fully defined.*shape \(None, 2\)"):
        trace(cross_replica_sum, 2, tf.TensorSpec((None, 2)))


def test_in_eager_mode():
    with replicated(2), pytest.raises(ValueError, match="Received: cross_replica_sum in eager"):
        cross_replica_sum(1.0)


def test_examples():
    assert doctest.testmod(cross_replica_ops).failed == 0


def test_in_a_session():
    with tf.Graph().as_default():
        results = [cross_replica_sum(3.0), cross_replica_mean(3.0)]
        with tf.compat.v1.Session() as session:
            assert session.run(results) == [3.0, 3.0]
