"""Checkpoints of recomputation compute nothing; the documented choices are at hand."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import pipelining_ops
from ipu_keras.config import reset_ipu_configuration
from ipu_keras.pipelining_ops import recomputation_checkpoint
from ipu_keras.settings import pipeline_choices


def test_examples():
    assert doctest.testmod(pipelining_ops).failed == 0
    reset_ipu_configuration()


@pytest.mark.parametrize("name", ["PipelineSchedule", "PipelineStageOptions", "RecomputationMode"])
def test_choices_are_at_their_documented_place(name):
    assert getattr(pipelining_ops, name) is getattr(pipeline_choices, name)


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "bool"])
def test_values_and_structure_stay(dtype, options):
    given = {"a": np.eye(3, dtype=dtype), "b": [np.zeros((), dtype), np.ones((2, 0, 1), dtype)]}
    for run in (recomputation_checkpoint, tf.function(recomputation_checkpoint, **options)):
        results = run(given)
        tf.nest.assert_same_structure(results, given)
        for result, expected in zip(tf.nest.flatten(results), tf.nest.flatten(given), strict=True):
            assert result.dtype == dtype
            np.testing.assert_array_equal(result, expected)


def test_composite_tensors():
    ragged = tf.ragged.constant([[1.0], [], [2.0, 3.0]])
    assert recomputation_checkpoint(ragged).to_list() == ragged.to_list()


def test_gradient_is_that_of_an_identity():
    x = tf.constant([1.0, -2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = recomputation_checkpoint(x * x) * [1.0, 10.0, 100.0]
    np.testing.assert_array_equal(tape.gradient(y, x), [2.0, -40.0, 600.0])


def test_shapes_that_are_not_known_yet():
    function = tf.function(recomputation_checkpoint).get_concrete_function(
        tf.TensorSpec([None, 3], tf.float32)
    )
    assert function.outputs[0].shape.as_list() == [None, 3]
    np.testing.assert_array_equal(function(tf.ones((2, 3))), np.ones((2, 3)))


def test_names():
    function = tf.function(lambda x: recomputation_checkpoint(x, name="kept"))
    graph = function.get_concrete_function(tf.TensorSpec([2])).graph
    assert "poplar.RecomputationCheckpoint/kept" in [op.name for op in graph.get_operations()]


def test_sessions():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant([3.0])
        result = recomputation_checkpoint(x * x)
        assert session.run([result, *tf.gradients(result, x)]) == [9.0, 6.0]
