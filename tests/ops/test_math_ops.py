"""Matrix products in parts, against whole ones."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.ops import math_ops
from ipu_keras.ops.math_ops import serialized_matmul

DIMENSIONS = ("a_columns", "a_rows_b_columns", "b_rows")


def whole_numbers(shape, dtype):
    return tf.constant(np.random.default_rng(sum(shape)).integers(-3, 4, shape), dtype)


@st.composite
def products(draw):
    factor = draw(st.integers(1, 4))
    dimension = draw(st.sampled_from(DIMENSIONS))
    sizes = {name: draw(st.integers(1, 4)) for name in DIMENSIONS}
    sizes[dimension] *= factor
    m, k, n = (sizes[name] for name in DIMENSIONS)
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    transposed = draw(st.booleans()), draw(st.booleans())
    a = [*batch, *((k, m) if transposed[0] else (m, k))]
    b = [*(batch if draw(st.booleans()) else ()), *((n, k) if transposed[1] else (k, n))]
    return a, b, factor, dimension, *transposed


@settings(deadline=None, derandomize=True, max_examples=50)
@given(product=products(), dtype=st.sampled_from(["float16", "float32", "int32"]))
def test_values(product, dtype):
    a_shape, b_shape, *options = product
    a, b = whole_numbers(a_shape, dtype), whole_numbers(b_shape, dtype)
    found = serialized_matmul(a, b, *options)
    assert found.dtype == dtype
    left = np.swapaxes(a, -1, -2) if options[2] else a.numpy()
    right = np.swapaxes(b, -1, -2) if options[3] else b.numpy()
    np.testing.assert_array_equal(found, left @ right)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(product=products())
def test_gradients(product):
    a_shape, b_shape, *options = product
    tensors = [whole_numbers(a_shape, "float32"), whole_numbers(b_shape, "float32")]

    def gradients(function):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss = tf.reduce_sum(function(*tensors) ** 2)
        return tape.gradient(loss, tensors)

    _, _, transpose_a, transpose_b = options
    found = gradients(lambda a, b: serialized_matmul(a, b, *options))
    expected = gradients(
        lambda a, b: tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_gradients_are_those_of_differences(dimension):
    random = np.random.default_rng(0)
    tensors = [tf.constant(random.normal(size=(4, 4)), tf.float32) for _ in range(2)]
    theory, numeric = tf.test.compute_gradient(
        lambda a, b: serialized_matmul(a, b, 2, dimension, transpose_a=True), tensors, delta=0.1
    )
    for exact, difference in zip(theory, numeric, strict=True):
        np.testing.assert_allclose(exact, difference, atol=1e-4)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_parts_of_the_product_and_of_its_gradients(dimension):
    """Each of three products, and of the six of the gradients, is a third of the whole."""

    def function(a, b):
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            loss = tf.reduce_sum(serialized_matmul(a, b, 3, dimension, name="whole"))
        return tape.gradient(loss, [a, b])

    spec = tf.TensorSpec((6, 6))
    graph = tf.function(function).get_concrete_function(spec, spec).graph
    found = [op for op in graph.get_operations() if op.type == "MatMul"]
    assert len(found) == 9
    for op in found:
        # Multiplications: the result's elements times what is summed over for each.
        summed = op.inputs[0].shape[0 if op.get_attr("transpose_a") else 1]
        assert op.outputs[0].shape.num_elements() * summed == 6**3 // 3
        assert "whole/" in op.name


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_xla_and_sessions(dimension):
    a, b = whole_numbers((2, 6), "float32"), whole_numbers((6, 4), "float32")
    compiled = tf.function(serialized_matmul, jit_compile=True)
    np.testing.assert_array_equal(compiled(a, b, 2, dimension), a @ b)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        product = serialized_matmul(a.numpy(), b.numpy(), 2, dimension)
        np.testing.assert_array_equal(session.run(product), a.numpy() @ b.numpy())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            (3, "a_columns"),
            ValueError,
            r"must divide.*factor=3, a of shape \(4, 4\).*axis -2.*size 4",
        ),
        ((3, "b_rows"), ValueError, r"must divide.*b of shape \(4, 4\), whose axis -1"),
        ((0, "b_rows"), ValueError, "positive integer. Received: serialization_factor=0"),
        ((True, "b_rows"), ValueError, "positive integer"),
        ((2, "columns"), ValueError, "one of a_columns, a_rows_b_columns, b_rows.*'columns'"),
    ],
)
def test_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        serialized_matmul(tf.ones((4, 4)), tf.ones((4, 4)), *arguments)


def test_tensors():
    with pytest.raises(ValueError, match=r"`b` must have rank 2 or more.*shape \(4,\)"):
        serialized_matmul(tf.ones((4, 4)), tf.ones(4), 1, "b_rows")
    with pytest.raises(TypeError, match=r"must be of one type.*a of int32, b of float32"):
        serialized_matmul(tf.ones((4, 4), tf.int32), tf.ones((4, 4)), 1, "b_rows")
    for a, b, transposed in (((4, 3), (4, 4), {}), ((4, 3), (3, 4), {"transpose_b": True})):
        with pytest.raises(ValueError, match=r"^`a` must have as many columns as `b` has rows.*3"):
            serialized_matmul(tf.ones(a), tf.ones(b), 1, "b_rows", **transposed)
    with pytest.raises(ValueError, match=r"outer dimensions that broadcast.*shape \(2, 4, 4\)"):
        serialized_matmul(tf.ones((2, 4, 4)), tf.ones((3, 4, 4)), 1, "b_rows")
    with pytest.raises(TypeError, match=r"`a` must be of float16, float32 or int32.*int64"):
        serialized_matmul(tf.ones((4, 4), tf.int64), tf.ones((4, 4)), 1, "b_rows")


def test_example():
    assert doctest.testmod(math_ops).failed == 0
