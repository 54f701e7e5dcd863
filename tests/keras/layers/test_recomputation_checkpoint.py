"""The layer that marks what recomputation keeps."""

import doctest

import keras
import numpy as np
import tensorflow as tf
from layer_battery import run_layer_battery

from ipu_keras.keras.layers import recomputation_checkpoint as module
from ipu_keras.keras.layers.recomputation_checkpoint import RecomputationCheckpoint


def test_battery(strategy):
    run_layer_battery(
        strategy,
        RecomputationCheckpoint,
        {},
        input_shape=(4, 3),
        expected_output_shape=(4, 3),
        expected_num_trainable_weights=0,
        supports_masking=True,
    )


def test_a_structure_of_tensors(strategy):
    run_layer_battery(
        strategy,
        RecomputationCheckpoint,
        {},
        input_shape=[(4, 3), (4, 2)],
        expected_output_shape=[(4, 3), (4, 2)],
    )
    given = {"a": np.ones(2, "float32"), "b": (np.zeros(3, "float32"),)}
    kept = RecomputationCheckpoint()(given)
    keras.tree.assert_same_structure(kept, given)
    np.testing.assert_array_equal(kept["a"], given["a"])


def test_it_is_marked_within_the_layer():
    layer = RecomputationCheckpoint(name="keep")
    graph = tf.function(layer).get_concrete_function(tf.TensorSpec((2,))).graph
    names = [operation.name for operation in graph.get_operations()]
    assert any("keep" in name and "/poplar.RecomputationCheckpoint/" in name for name in names)


def test_example():
    assert doctest.testmod(module).failed == 0
