"""Computations whose traces show what they need: replicas of a device that is not configured."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import ipu_compiler, ipu_outfeed_queue, loops, scopes
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops import all_to_all_op, cross_replica_ops, reduce_scatter_op

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def unconfigured():
    reset_ipu_configuration()
    yield
    reset_ipu_configuration()


def configure(num_ipus):
    config = IPUConfig()
    config.auto_select_ipus = num_ipus
    config.configure_ipu_system()


def run_in_session(function, num_ipus, *, late, inputs=()):
    """What a computation gives whose system is configured before or after it is compiled."""
    with tf.Graph().as_default():
        if not late:
            configure(num_ipus)
        with scopes.ipu_scope("/device:IPU:0"):
            compiled = ipu_compiler.compile(function, list(inputs))
        if late:
            configure(num_ipus)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            return session.run(compiled)


def gathered():
    weight = v1.get_variable("weight", initializer=[1.0, 2.0])
    return all_to_all_op.all_gather(weight, replication_factor=2)


def scattered():
    return reduce_scatter_op.reduce_scatter(tf.ones([4]), replication_factor=2)


def in_a_loop():
    def body(x):
        return x + tf.reduce_sum(all_to_all_op.all_gather(x, replication_factor=2))

    return loops.repeat(2, body, [tf.ones([1])])


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (gathered, [[1.0, 2.0], [1.0, 2.0]]),
        (scattered, [2.0, 2.0]),
        # 1 + 2, then 3 + 6.
        (in_a_loop, [9.0]),
    ],
)
def test_collectives_of_a_system_that_is_configured_later(function, expected, late):
    np.testing.assert_array_equal(run_in_session(function, 2, late=late)[0], expected)


def test_outfeeds_of_collectives_of_a_system_that_is_configured_later():
    with tf.Graph().as_default():
        queue = ipu_outfeed_queue.IPUOutfeedQueue()

        def body(x):
            return x + 1, queue.enqueue(all_to_all_op.all_gather(x, replication_factor=2))

        with scopes.ipu_scope("/device:IPU:0"):
            compiled = ipu_compiler.compile(lambda: loops.repeat(3, body, [0.0]))
        dequeued = queue.dequeue()
        configure(2)
        with v1.Session() as session:
            session.run(compiled)
            # Steps, replicas, what they gathered.
            assert session.run(dequeued).tolist() == [[[k, k]] * 2 for k in range(3)]


def test_a_system_of_too_few_replicas_is_refused():
    with pytest.raises(ValueError, match=r"`replication_factor` must .* in a program of 1 replica"):
        run_in_session(gathered, 1, late=False)
    reset_ipu_configuration()
    with (
        tf.Graph().as_default(),
        scopes.ipu_scope("/device:IPU:0"),
        v1.Session() as session,
    ):
        compiled = ipu_compiler.compile(scattered)
        with pytest.raises(tf.errors.FailedPreconditionError, match="Received: 1 replicas, for"):
            session.run(compiled)


def before_shards(x):
    """The sum of all replicas, of which each has two IPUs."""
    y = cross_replica_ops.cross_replica_sum(x)
    with scopes.ipu_shard(0):
        z = y * 2
    with scopes.ipu_shard(1):
        return z + 1


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("num_ipus", "expected"), [(2, 3.0), (4, 5.0), (8, 9.0)])
def test_replicas_exchange_values_before_it_is_known_how_many_ipus_each_has(
    num_ipus, expected, late
):
    found = run_in_session(before_shards, num_ipus, late=late, inputs=[tf.constant(1.0).numpy()])
    assert found == [expected]


def test_a_function_exchanges_values_before_its_shards():
    configure(4)
    strategy = IPUStrategy()

    @tf.function(autograph=False)
    def run(x):
        return before_shards(x)

    assert [float(strategy.run(run, (tf.constant(value),))) for value in (1.0, 2.0)] == [5.0, 9.0]
