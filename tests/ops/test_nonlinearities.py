"""Activations, against NumPy and differences."""

import doctest
import math

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.ops import nn_ops, nonlinearities
from ipu_keras.ops.nn_ops import gelu, hard_sigmoid, swish

X = np.array([[-7.0, -2.2, -1.0, -0.1], [0.0, 0.3, 2.4, 6.5]])

erf = np.vectorize(math.erf)
FUNCTIONS = {
    "gelu": (gelu, lambda x: x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2),
    "gelu with erf": (
        lambda x: gelu(x, approximate=False),
        lambda x: x * (1 + erf(x / 2**0.5)) / 2,
    ),
    "hard_sigmoid": (hard_sigmoid, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "swish": (swish, lambda x: x / (1 + np.exp(-x))),
}
each = pytest.mark.parametrize(("function", "expected"), FUNCTIONS.values(), ids=FUNCTIONS)


@each
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_values(function, expected, dtype, jit_compile):
    found = tf.function(function, jit_compile=jit_compile)(tf.constant(X, dtype))
    assert found.dtype == dtype
    tolerance = 3e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(found, expected(X), rtol=tolerance, atol=tolerance)


@each
def test_gradients(function, expected):
    theory, numeric = tf.test.compute_gradient(function, [tf.constant(X, tf.float32)], delta=1e-2)
    np.testing.assert_allclose(theory[0], numeric[0], atol=1e-3)


@each
@pytest.mark.parametrize("jit_compile", [None, False, True])
def test_gradients_at_the_ends_of_float16(function, expected, jit_compile):
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    ends = np.array([41.0, 256.0, 300.0, 65504.0], np.float16)
    run = gradient if jit_compile is None else tf.function(gradient, jit_compile=jit_compile)
    slope = 0.0 if function is hard_sigmoid else 1.0
    np.testing.assert_array_equal(run(tf.constant(ends)), [slope] * 4)
    np.testing.assert_array_equal(run(tf.constant(-ends)), [0.0] * 4)


@each
def test_empty(function, expected):
    assert function(tf.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    ("function", "kind"), [(gelu, "Gelu"), (hard_sigmoid, "HardSigmoid"), (swish, "Swish")]
)
def test_they_are_one_operation_as_their_gradients_are(function, kind):
    def gradient(x):
        with tf.GradientTape() as tape, tf.name_scope("layer"):
            tape.watch(x)
            y = function(x)
        return y, tape.gradient(y, x)

    graph = tf.function(gradient).get_concrete_function(tf.TensorSpec((2,))).graph
    names = [op.name for op in graph.get_operations() if op.type not in ("Placeholder", "Identity")]
    scopes = {name.rpartition(f"poplar.{kind}/")[0] for name in names if "OnesLike" not in name}
    assert scopes - {""} == {"layer/", "gradient_tape/layer/"}
    # All that computes is inside.
    assert all(f"poplar.{kind}/" in name for name in names if name.startswith("layer/"))


@pytest.mark.parametrize("function", [gelu, hard_sigmoid, swish])
def test_integers(function):
    with pytest.raises(TypeError, match=r"`x` must be of a floating point type.*a tensor of int32"):
        function(tf.constant([1, 2]))


def test_in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        np.testing.assert_allclose(session.run(hard_sigmoid(tf.constant([1.0]))), [0.7])


def test_examples():
    assert doctest.testmod(nonlinearities).failed == 0
    assert nn_ops.gelu is nonlinearities.gelu
