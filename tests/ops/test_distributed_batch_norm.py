"""Batch normalization over groups of replicas: that of one batch of all that a group has."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from configured_ipus import configured
from doors import InASession, UnderAStrategy
from replicas import in_groups, run, trace

from ipu_keras import ipu_compiler, loops, scopes
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_keras.ops import distributed_batch_norm as module
from ipu_keras.ops.distributed_batch_norm import distributed_batch_norm
from ipu_keras.ops.replication_ops import replication_index
from ipu_keras.tracing.hlo import hlo_graph

both = pytest.mark.parametrize("jit_compile", [False, True])


def fused(x, **options):
    return tf.compat.v1.nn.fused_batch_norm(x, [1.0, 2.0], [0.5, 0.0], **options)


def test_by_hand():
    """Two replicas with a number each in both channels: 1 and 3 have the mean 2, variance 1."""

    def function(x):
        with distributed_batch_norm(2):
            return fused(x, epsilon=1e-3)

    x = np.array([1, 3], np.float32).reshape(2, 1, 1, 1, 1) * np.array([1, 10], np.float32)
    (first, mean, variance), (second, *_) = run(function, x)
    np.testing.assert_allclose(mean, [2, 20])
    np.testing.assert_allclose(variance, [2, 200])  # of a sample, as TensorFlow has it
    np.testing.assert_allclose(first[0, 0, 0], [0.5 - 1 / 1.001**0.5, -2 * 10 / 100.001**0.5])
    np.testing.assert_allclose(second[0, 0, 0], [0.5 + 1 / 1.001**0.5, 2 * 10 / 100.001**0.5])


@both
@pytest.mark.parametrize("num_replicas", [2, 4])
def test_groups_against_one_batch(num_replicas, jit_compile):
    """Outputs, both averages, and the gradient; the means of the replicas differ a lot."""
    random = np.random.default_rng(0)
    x = random.normal(size=(num_replicas, 3, 2, 2, 2)).astype(np.float32)
    x += 50.0 * np.arange(num_replicas, dtype=np.float32).reshape(-1, 1, 1, 1, 1)
    weights = random.normal(size=x.shape).astype(np.float32)

    def step(x, weights, group_size):
        with distributed_batch_norm(group_size):
            y, mean, variance = fused(
                x, mean=tf.ones(2), variance=tf.ones(2), exponential_avg_factor=0.25
            )
        return y, mean, variance, tf.gradients(y * weights, x)[0]

    found = run(lambda x, w: step(x, w, 2), x, weights, jit_compile=jit_compile)
    whole = [in_groups(array, 2).reshape(-1, 6, 2, 2, 2) for array in (x, weights)]
    for group, (batch, weight) in enumerate(zip(*whole, strict=True)):
        expected = tf.function(step)(tf.constant(batch), tf.constant(weight), 1)
        members = found[2 * group : 2 * group + 2]
        for k in (0, 3):
            together = np.concatenate([member[k] for member in members])
            np.testing.assert_allclose(together, expected[k], rtol=2e-4, atol=2e-5)
        for member in members:
            np.testing.assert_allclose(member[1], expected[1], rtol=1e-6)
            np.testing.assert_allclose(member[2], expected[2], rtol=1e-5)


def test_other_layouts_and_types():
    x = np.random.default_rng(0).normal(size=(2, 3, 2, 2, 2)).astype(np.float16)

    def function(x):
        with distributed_batch_norm(2):
            last = fused(x)[0]
            first = fused(tf.transpose(x, [0, 3, 1, 2]), data_format="NCHW")[0]
        return last, tf.transpose(first, [0, 2, 3, 1])

    for last, first in run(function, x):
        assert last.dtype == first.dtype == np.float16
        np.testing.assert_array_equal(last, first)


def test_inference_and_groups_of_one_need_nobody_else():
    def function(x):
        with distributed_batch_norm(2):
            inference = fused(x, mean=tf.ones(2), variance=tf.ones(2), is_training=False)[0]
        with distributed_batch_norm(1):
            return inference, fused(x)[0]

    graph = hlo_graph(trace(function, 2, tf.TensorSpec((1, 2, 2, 2))))
    assert not [op for op in graph.ops if "num_replicas" in op.attributes]


def test_one_small_exchange_moves_all_statistics():
    def function(x):
        with distributed_batch_norm(2):
            return fused(x)[0]

    graph = hlo_graph(trace(function, 4, tf.TensorSpec((8, 4, 4, 2))))
    (op,) = [op for op in graph.ops if "num_replicas" in op.attributes]
    assert (op.kind, op.attributes["num_replicas"]) == ("all-gather", 2)
    assert op.outputs[0].shape == (2, 3, 2)


def test_groups_that_do_not_divide_the_replicas():
    def function(x):
        with distributed_batch_norm(3):
            return fused(x)[0]

    with pytest.raises(ValueError, match=r"distributed_batch_norm_replica_group_size=3 in a .* 2"):
        trace(function, 2, tf.TensorSpec((1, 2, 2, 2)))


@pytest.mark.usefixtures("reset_afterwards")
@pytest.mark.parametrize("way", ["session", None, True])
def test_functions_and_sessions_are_as_configured(way):
    """Of 1, 3 and 11, 13 the mean is 7, the variance 26."""
    configured(2, norms__experimental__distributed_batch_norm_replica_group_size=2)
    door = InASession() if way == "session" else UnderAStrategy(way)
    outfeed = IPUOutfeedQueue()

    def function(x):
        own = x + [0.0, 2.0] + 10.0 * tf.cast(replication_index(), tf.float32)
        batch = tf.reshape(own, [2, 1, 1, 1])
        return outfeed.enqueue(tf.compat.v1.nn.fused_batch_norm(batch, [1.0], [0.0])[0])

    door.compile(function, outfeed)
    door.run(1.0)
    (sent,) = door.sent()
    door.close()
    expected = np.array([-6.0, -4.0, 4.0, 6.0]) / 26.001**0.5
    np.testing.assert_allclose(np.ravel(sent), expected, rtol=1e-4)


def normalized_together(group_size):
    configured(2, norms__experimental__distributed_batch_norm_replica_group_size=group_size)


def running_mean(x):
    """Of 1 in the first replica and of 11 in the second; in a loop, as in training."""

    def step(mean):
        batch = tf.reshape(x + 10.0 * tf.cast(replication_index(), tf.float32), [1, 1, 1, 1])
        return mean + tf.compat.v1.nn.fused_batch_norm(batch, [1.0], [0.0])[1]

    return loops.repeat(1, step, [tf.zeros([1])])


@pytest.mark.usefixtures("reset_afterwards")
def test_sessions_have_the_groups_that_are_configured_when_they_first_run():
    normalized_together(1)
    with tf.Graph().as_default(), scopes.ipu_scope("/device:IPU:0"):
        mean = ipu_compiler.compile(running_mean, [tf.constant(1.0)])
        other = ipu_compiler.compile(lambda x: x + 1.0, [tf.constant(1.0)])
        normalized_together(2)
        with tf.compat.v1.Session() as session:
            assert np.ravel(session.run(mean)) == [6.0]
            normalized_together(1)
            assert session.run(other) == [2.0]
            message = "_replica_group_size` before that, .* Received: 1, for .* compiled for 2"
            with pytest.raises(tf.errors.FailedPreconditionError, match=message):
                session.run(mean)


def test_a_replica_that_is_alone_has_nobody_to_share_with():
    def function(x):
        with distributed_batch_norm(2):
            return fused(x)[0]

    x = np.float32(np.arange(8)).reshape(1, 2, 2, 2)
    (found,) = run(function, x[None])
    np.testing.assert_allclose(found, fused(x)[0], rtol=1e-5)


def test_examples():
    assert doctest.testmod(module).failed == 0
