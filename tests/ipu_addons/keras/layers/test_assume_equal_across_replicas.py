"""The layer that promises that replicas have equal values."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_battery import run_layer_battery

from ipu_addons.keras.layers import AssumeEqualAcrossReplicas
from ipu_addons.keras.layers import assume_equal_across_replicas as module
from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.ops.replication_ops import replication_index
from ipu_keras.profiling.reports import last_report


@pytest.mark.parametrize("inplace", [False, True])
def test_battery(strategy, inplace):
    run_layer_battery(
        strategy,
        AssumeEqualAcrossReplicas,
        {"inplace": inplace},
        input_shape=[(4, 3), (4, 2)],
        expected_output_shape=[(4, 3), (4, 2)],
        expected_num_trainable_weights=0,
        supports_masking=True,
    )


def test_values_are_marked():
    layer = AssumeEqualAcrossReplicas(inplace=True)
    given = {"a": tf.ones(2), "b": (tf.zeros(3),)}
    kept = layer(given)
    keras.tree.assert_same_structure(kept, given)
    np.testing.assert_array_equal(kept["a"], given["a"])
    graph = tf.function(layer).get_concrete_function(given).graph
    mark = "_ipu_equal_across_replicas"
    assert sum(mark in op.node_def.attr for op in graph.get_operations()) == 2


@pytest.fixture(params=[2, 4])
def replicas(request):
    """A strategy for so many replicas, and their number."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = request.param
    config.configure_ipu_system()
    yield IPUStrategy(), request.param
    SYSTEM.reset()


class SumWhenLarge(keras.layers.Layer):
    """Adds the inputs of all replicas up, if the sum of all is large; else halves its own."""

    def __init__(self):
        super().__init__()
        self.promise = AssumeEqualAcrossReplicas()

    def call(self, inputs):
        total = self.promise(cross_replica_sum(tf.reduce_sum(inputs)))
        return tf.cond(total > 10.0, lambda: cross_replica_sum(inputs), lambda: inputs / 2.0)


@pytest.mark.parametrize("jit_compile", [None, True])
def test_collective_in_a_branch_of_a_function(replicas, jit_compile):
    strategy, num_replicas = replicas
    layer = SumWhenLarge()

    @tf.function(jit_compile=jit_compile)
    def step(x):
        return layer(x * tf.cast(1 + replication_index(), x.dtype))

    for x in (np.array([0.1, 0.2], np.float32), np.array([7.0, 5.0], np.float32)):
        # Replica k has k + 1 times the values; all see what replica 0 has.
        total = x * num_replicas * (num_replicas + 1) / 2
        expected = total if total.sum() > 10 else x / 2
        np.testing.assert_allclose(strategy.run(step, [tf.constant(x)]), expected, rtol=1e-6)
    # One before the branch, one in it.
    assert sum(row.family == "collective" for row in last_report().rows) >= 2


def test_collective_in_a_branch_of_a_model(replicas):
    """Steps of both branches: the weight, 1 at first, is trained to make outputs smaller."""
    strategy, num_replicas = replicas
    data = np.random.default_rng(0).uniform(1, 2, (6, num_replicas, 4, 1)).astype(np.float32)
    data[::2] /= 100
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((1,), batch_size=4),
                keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"),
                SumWhenLarge(),
            ]
        )
        model.compile("sgd", lambda y, outputs: outputs, steps_per_execution=6)
        model.optimizer.learning_rate = 0.001
        rows = data.reshape(-1, 1)
        predicted = model.predict(rows, batch_size=4, steps=None, verbose=0)
        model.fit(rows, np.zeros_like(rows), batch_size=4, verbose=0, shuffle=False)

    weight, expected = 1.0, []
    for step in data:
        is_large = step.sum() > 10
        expected.append(np.broadcast_to(step.sum(axis=0), step.shape) if is_large else step / 2)
        # Each of the replicas' losses, means over 4 rows, has all inputs in it, or half its own.
        gradient = step.sum() / 4 * (num_replicas if is_large else 0.5)
        assert is_large == (weight * step.sum() > 10)
        weight -= 0.001 * gradient
    np.testing.assert_allclose(predicted, np.reshape(expected, (-1, 1)), rtol=1e-5)
    np.testing.assert_allclose(model.get_weights()[0], [[weight]], rtol=1e-5)


def test_example():
    assert doctest.testmod(module).failed == 0
