"""Expressions of one vertex, against those of TensorFlow."""

import doctest
import functools

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.keras.model_profile import profile
from ipu_keras.ops import codelet_expressions
from ipu_keras.ops.custom_ops import codelet_expression_op

X = np.array([1.0, -2.0, 3.0], np.float32)
Y = np.array([0.5, 4.0, -1.0], np.float32)


def test_examples_in_the_docstrings():
    assert doctest.testmod(codelet_expressions).failed == 0


@pytest.mark.parametrize("jit_compile", [None, False, True])
@pytest.mark.parametrize("dtype", [tf.float16, tf.float32])
def test_expression(dtype, jit_compile):
    def run(x, y, z):
        return codelet_expression_op(lambda x, y, z: tf.maximum(x * x + y * z, 0.5), x, y, z)

    wrapped = run if jit_compile is None else tf.function(run, jit_compile=jit_compile)
    result = wrapped(tf.constant(X, dtype), tf.constant(Y, dtype), tf.constant(2, dtype))
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.maximum(X * X + Y * 2, 0.5))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    "shapes", [([2, 3], [3]), ([2, 1], [1, 3]), ([1], [4, 2, 3], [2, 1]), ([], [3])]
)
def test_an_expression_of_several_shapes(shapes, jit_compile):
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]

    def total(*args):
        return functools.reduce(lambda a, b: a * 2 + b, args)

    run = tf.function(lambda *args: codelet_expression_op(total, *args), jit_compile=jit_compile)
    np.testing.assert_allclose(run(*arrays), total(*arrays), rtol=1e-6)
    np.testing.assert_allclose(codelet_expression_op(total, *arrays), total(*arrays), rtol=1e-6)
    profiled = profile(tf.function(lambda *args: codelet_expression_op(total, *args)), *arrays)
    assert profiled.cycles_per_step > 0


def test_an_expression_of_an_open_batch():
    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None, 1])])
    def run(x, y):
        return codelet_expression_op(lambda x, y: x + y, x, y)

    np.testing.assert_array_equal(run(tf.ones((2, 3)), tf.ones((2, 1))), np.full((2, 3), 2))


def test_an_expression_of_strings():
    with pytest.raises(TypeError, match=r"`args` must be .* a tensor of string at position 1"):
        codelet_expression_op(lambda x, y: y, X, ["a", "b", "c"])


def test_an_expression_is_one_operation():
    @tf.function
    def run(x):
        return codelet_expression_op(lambda x: tf.sqrt(x) + 1.0, x)

    names = [op.name for op in run.get_concrete_function(tf.TensorSpec([3])).graph.get_operations()]
    assert any(name.startswith("poplar.CodeletExpression/Sqrt") for name in names)


def test_an_expression_has_no_gradient():
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = codelet_expression_op(lambda x: x * x, x)
    with pytest.raises(LookupError, match=r"No gradient: .*cannot be used for training"):
        tape.gradient(result, x)


@pytest.mark.parametrize(
    ("error", "message", "expression", "shapes"),
    [
        (TypeError, "Received: vertex_expression=3", 3, [[2]]),
        (TypeError, "a function of 2 tensors.*takes 1 positional", lambda x: x, [[2], [2]]),
        (ValueError, r"broadcast.*Received: .*\(2,\), \(3,\)", lambda x, y: x + y, [[2], [3]]),
        (ValueError, r"as they broadcast, \(3, 2\)", lambda x, y: x, [[2], [3, 2]]),
        (ValueError, "at least one tensor", lambda: 1.0, []),
        (ValueError, r"elementwise.*Received: Sum", lambda x: tf.reduce_sum(x), [[2]]),
        (ValueError, r"elementwise.*Received: MatMul", lambda x: x @ x, [[2, 2]]),
        (ValueError, "one tensor of the shape of its arguments", lambda x: (x, x), [[2]]),
        (ValueError, r"as they broadcast, \(2,\)", lambda x: tf.constant(1.0), [[2]]),
        (ValueError, r"as they broadcast, \(2,\)", lambda x: x + tf.ones((3, 1)), [[2]]),
        (ValueError, "its arguments and constants", lambda x: x + CAPTURED, [[2]]),
    ],
)
def test_what_is_no_expression(error, message, expression, shapes):
    with pytest.raises(error, match=message):
        codelet_expression_op(expression, *(tf.ones(shape) for shape in shapes))


CAPTURED = tf.ones(2)
