"""Gradients go through loops that are programs, compiled by XLA or run op by op."""

import numpy as np
import pytest
import tensorflow as tf
from in_sessions import compiled, configure, opened

from ipu_keras import loops
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops.cross_replica_ops import cross_replica_sum

pytestmark = pytest.mark.usefixtures("reset_afterwards")

v1 = tf.compat.v1


def test_of_inputs_and_captures_in_a_session():
    """The loop computes x * w ** 3, with a tensor as x and a variable as w."""
    configure(1)
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, ())

        def computation(x):
            with v1.variable_scope("", use_resource=True):
                weight = v1.get_variable("weight", initializer=2.0)
            result = loops.repeat(3, lambda value: value * weight, [x * x])
            update = v1.train.GradientDescentOptimizer(0.5).minimize(result)
            with tf.control_dependencies([update]):
                return tf.identity(result), tf.gradients(result, x)[0]

        results = compiled(computation, [x])
        with opened() as session:
            np.testing.assert_array_equal(session.run(results, {x: 3.0}), [72.0, 48.0])
            (weight,) = session.run(v1.global_variables())
    assert weight == 2.0 - 0.5 * 9 * 3 * 4


@pytest.mark.usefixtures("xla_from_the_start")
@pytest.mark.parametrize("num_steps", [3, 100])
def test_of_a_tape_if_xla_compiles_from_the_start(num_steps):
    configure(1)
    strategy = IPUStrategy()
    with strategy.scope():
        weight = tf.Variable(1.01)

    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            counted = loops.repeat(num_steps, lambda value, k: [value * weight, k + 1], [x, 0])
        return counted, tape.gradient(counted[0], [x, weight])

    (result, count), gradients = strategy.run(run, [tf.constant(3.0)])
    assert count == num_steps
    np.testing.assert_allclose(result, 3 * 1.01**num_steps, rtol=1e-5)
    expected = [1.01**num_steps, 3 * num_steps * 1.01 ** (num_steps - 1)]
    np.testing.assert_allclose(gradients, expected, rtol=1e-5)


def test_of_several_replicas():
    configure(2)

    def computation(x):
        result = loops.repeat(3, lambda value: value * x, [x])
        return tf.gradients(cross_replica_sum(result), x)

    with tf.Graph().as_default(), pytest.raises(NotImplementedError, match="has no gradients, as"):
        compiled(computation, [2.0])
