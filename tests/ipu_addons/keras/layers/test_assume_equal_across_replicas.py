"""The layer that promises that replicas have equal values."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_battery import run_layer_battery

from ipu_addons.keras.layers import AssumeEqualAcrossReplicas
from ipu_addons.keras.layers import assume_equal_across_replicas as module


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


def test_example():
    assert doctest.testmod(module).failed == 0
