"""Lookup in tables on the IPU: against NumPy, and its gradient against differences."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.ops import embedding_lookup as module
from ipu_keras.ops.embedding_lookup import checked_serialization_factor, embedding_lookup, integers


def lookup_by_numpy(params, ids):
    """Row by row; what is not in the table is zeros."""
    found = np.zeros((ids.size, *params.shape[1:]), params.dtype)
    for position, row in enumerate(ids.ravel()):
        if 0 <= row < len(params):
            found[position] = params[row]
    return found.reshape(ids.shape + params.shape[1:])


def gradient_by_numpy(params, ids, upstream):
    gradient = np.zeros(params.shape, np.float64)
    values = upstream.reshape(ids.size, *params.shape[1:])
    for row, value in zip(ids.ravel(), values, strict=True):
        if 0 <= row < len(params):
            gradient[row] += value
    return gradient


@st.composite
def tables(draw):
    """A table, ids of which some are out of range, and a factor that divides the rows."""
    factor, part = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    row = draw(st.lists(st.integers(0, 3), max_size=2))
    dtype = draw(st.sampled_from(["float16", "float32"]))
    random = np.random.default_rng(draw(st.integers(0, 9)))
    # Whole numbers, so that sums are exact.
    params = random.integers(-4, 5, (factor * part, *row)).astype(dtype)
    shape = draw(st.lists(st.integers(0, 4), max_size=2))
    ids = random.integers(-2, factor * part + 2, shape)
    return params, ids.astype(draw(st.sampled_from(["int8", "int32", "int64"]))), factor


def test_example_in_the_docstring():
    assert doctest.testmod(module).failed == 0


def test_golden():
    table = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    for factor in (1, 3):
        found = embedding_lookup(table, [[2, 0], [3, -1]], serialization_factor=factor)
        np.testing.assert_array_equal(found, [[[5, 6], [1, 2]], [[0, 0], [0, 0]]])


@settings(deadline=None, derandomize=True, max_examples=40)
@given(tables())
def test_values_and_gradients(case):
    params, ids, factor = case
    tensor = tf.constant(params)
    upstream = np.random.default_rng(1).integers(-2, 3, ids.shape + params.shape[1:])
    upstream = upstream.astype(params.dtype)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        found = embedding_lookup(tensor, tf.constant(ids), serialization_factor=factor)
    assert found.dtype == params.dtype
    np.testing.assert_array_equal(found, lookup_by_numpy(params, ids))
    gradient = tape.gradient(found, tensor, output_gradients=tf.constant(upstream))
    np.testing.assert_array_equal(gradient, gradient_by_numpy(params, ids, upstream))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("factor", [1, 2])
def test_in_functions(factor, jit_compile):
    params = np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)
    ids = np.array([[5, 0, -1], [6, 5, 3]], np.int32)

    @tf.function(jit_compile=jit_compile)
    def run(params, ids):
        found = embedding_lookup(params, ids, serialization_factor=factor)
        return found, tf.gradients(found**2, params)[0]

    found, gradient = run(tf.constant(params), tf.constant(ids))
    expected = lookup_by_numpy(params, ids)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(gradient, gradient_by_numpy(params, ids, 2 * expected), rtol=1e-6)


@pytest.mark.parametrize("factor", [1, 3])
def test_gradient_is_that_of_differences(factor):
    params = np.random.default_rng(0).standard_normal((6, 2))

    def run(params):
        return embedding_lookup(params, [4, 1, 4, 9], serialization_factor=factor) ** 2

    analytic, numeric = tf.test.compute_gradient(run, [params])
    np.testing.assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-8)


def test_second_derivative():
    params = tf.constant([[3.0], [5.0]])
    with tf.GradientTape() as outer:
        outer.watch(params)
        with tf.GradientTape() as inner:
            inner.watch(params)
            cubes = embedding_lookup(params, [1, 1], serialization_factor=2) ** 3
        first = inner.gradient(cubes, params)
    # Of 2 p**3 the derivatives are 6 p**2 and 12 p.
    np.testing.assert_array_equal(first, [[0], [150]])
    np.testing.assert_array_equal(outer.gradient(first, params), [[0], [60]])


def test_in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = tf.compat.v1.get_variable("table", initializer=tf.constant([[1.0], [2.0]]))
        loss = tf.reduce_sum(embedding_lookup(table, [1, 1], serialization_factor=2))
        train = tf.compat.v1.train.GradientDescentOptimizer(0.25).minimize(loss)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(train)
        np.testing.assert_array_equal(session.run(table), [[1], [1.5]])


def test_is_one_operation_for_each_part():
    table = tf.TensorSpec((6, 2))

    def scopes(factor):
        run = tf.function(lambda table: embedding_lookup(table, [1], "look", factor))
        operations = run.get_concrete_function(table).graph.get_operations()
        return [op.name.split("/")[:2] for op in operations if op.type == "GatherV2"]

    assert scopes(1) == [["look", "poplar.EmbeddingLookup"]]
    assert scopes(3) == [["look", f"poplar.EmbeddingLookup{end}"] for end in ("", "_1", "_2")]


@pytest.mark.parametrize("factor", [1, 2])
def test_gradient_is_one_operation_for_each_part(factor):
    @tf.function
    def gradient(table):
        return tf.gradients(embedding_lookup(table, [1], serialization_factor=factor), table)

    graph = gradient.get_concrete_function(tf.TensorSpec((6, 2))).graph
    sums = [op.name for op in graph.get_operations() if op.type == "UnsortedSegmentSum"]
    assert len(sums) == factor
    assert all("/poplar.EmbeddingLookup" in name for name in sums)
    assert all(name.startswith("gradient_tape/") for name in sums)


@pytest.mark.parametrize(
    ("factor", "error", "message"),
    [
        (0, ValueError, "serialization_factor has to be at least 1, but was 0"),
        (4, ValueError, r"The serialization_factor \(4\) must divide the size .*\n.* for 6 rows"),
        (2.0, TypeError, "must be an integer. Received: serialization_factor=2.0"),
        (True, TypeError, "must be an integer. Received: serialization_factor=True"),
    ],
)
def test_refused_factors(factor, error, message):
    with pytest.raises(error, match=message):
        embedding_lookup(tf.zeros((6, 2)), [0], serialization_factor=factor)


def test_an_open_number_of_rows_is_refused_only_when_serialized():
    checked_serialization_factor(1, None)
    with pytest.raises(ValueError, match="for None rows"):
        checked_serialization_factor(2, None)


def test_refused_ids():
    with pytest.raises(TypeError, match=r"`ids` must be a tensor of integers.*of float32"):
        embedding_lookup(tf.zeros((6, 2)), [0.0])


@pytest.mark.parametrize(
    ("dtype", "expected"), [("uint8", "int32"), ("int32", "int32"), ("uint32", "int64")]
)
def test_integers_keep_their_values(dtype, expected):
    largest = np.iinfo(dtype).max
    found = integers(np.array([largest], dtype), "ids")
    assert found.dtype == expected
    assert int(found[0]) == largest
