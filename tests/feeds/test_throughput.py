"""How fast a dataset is read."""

import doctest

import pytest
import tensorflow as tf

from ipu_keras.feeds import throughput
from ipu_keras.feeds.dataset_options import with_optimizations
from ipu_keras.feeds.throughput import measure


def test_examples():
    assert doctest.testmod(throughput).failed == 0


@pytest.mark.parametrize("copies", [True, False])
def test_tensors_are_copied_if_that_is_asked_for(copies):
    with tf.Graph().as_default() as graph:
        measure(tf.data.Dataset.range(3), 1, 1, copies=copies)
        definition = str(graph.as_graph_def())
    assert ('op: "DeepCopy"' in definition) is copies


def test_a_dataset_as_it_was_written():
    dataset = tf.data.Dataset.range(3)
    assert with_optimizations(dataset, True) is dataset
    options = with_optimizations(dataset, False).options()
    assert options.autotune.enabled is False
    assert options.experimental_optimization.apply_default_optimizations is False
