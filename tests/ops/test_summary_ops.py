"""Summaries of TensorFlow 1: of a tensor, and of what devices ran."""

import doctest
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops import summary_ops
from ipu_keras.ops.summary_ops import ipu_compile_summary, tensor_summary
from ipu_keras.profiling.reports import last_report


@pytest.fixture
def no_configuration():
    reset_ipu_configuration()
    yield
    reset_ipu_configuration()


def run(build):
    """The value of a summary of a graph of its own."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        summary = build()
        collected = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)
        [value] = tf.compat.v1.Summary.FromString(session.run(summary)).value
        return value, collected == [summary]


def test_example_in_the_docstring():
    assert doctest.testmod(summary_ops).failed == 0


def test_tensor_summary():
    numbers = np.array([[1.5, 2.5]], np.float32)
    metadata = tf.compat.v1.SummaryMetadata(
        plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="mine")
    )
    value, is_collected = run(
        lambda: tensor_summary(
            "numbers", numbers, "Some *numbers*.", None, metadata, "family", "Numbers"
        )
    )
    np.testing.assert_array_equal(tf.make_ndarray(value.tensor), numbers)
    assert is_collected
    # TensorFlow puts the family before the name, and once more before the tag.
    assert value.tag == "family/family/numbers"
    assert value.metadata.summary_description == "Some *numbers*."
    assert value.metadata.display_name == "Numbers"
    assert value.metadata.plugin_data.plugin_name == "mine"


def test_collections():
    _, is_in_summaries = run(lambda: tensor_summary("numbers", [1], collections=["others"]))
    assert not is_in_summaries


def test_compile_summary_before_any_program(no_configuration):
    value, is_collected = run(lambda: ipu_compile_summary("compiled", tf.constant(1)))
    assert tf.make_ndarray(value.tensor).shape == (0,)
    assert is_collected


def test_compile_summary(no_configuration):
    with IPUStrategy().scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="small")
        model.compile("sgd", "mse")
        model.predict(np.ones((4, 2), np.float32), batch_size=4, verbose=0)
    order = []

    def build():
        operation = tf.numpy_function(lambda: order.append("op") or np.int32(0), [], tf.int32)
        return ipu_compile_summary("compiled", [operation])

    value, _ = run(build)
    [report] = tf.make_ndarray(value.tensor)
    assert json.loads(report) == json.loads(last_report().to_json())
    assert value.tag == "compiled"
    assert order == ["op"]
