"""Histograms, against NumPy."""

import doctest
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.ops import statistics_ops
from ipu_keras.ops.statistics_ops import fixed_width_bins, histogram, histogram_update

DTYPES = st.sampled_from(["float16", "float32"])
# Few of them, so that values lie on levels.
NUMBERS = st.integers(-8, 8).map(lambda number: number / 4)
VALUES = st.lists(NUMBERS, max_size=30)
LEVELS = st.lists(NUMBERS, min_size=1, max_size=6).map(sorted)


def by_numpy(values, levels, absolute):
    values = np.abs(values) if absolute else np.array(values)
    edges = [-np.inf, *levels, np.inf]
    return [np.sum((low <= values) & (values < high)) for low, high in itertools.pairwise(edges)]


@settings(deadline=None, derandomize=True, max_examples=50)
@given(values=VALUES, levels=LEVELS, dtype=DTYPES, absolute=st.booleans())
def test_counts(values, levels, dtype, absolute):
    values, levels = np.array(values, dtype), np.array(levels, dtype)
    found = histogram(values, levels, absolute_of_input=absolute)
    assert found.dtype == tf.float32
    np.testing.assert_array_equal(found, by_numpy(values, levels, absolute))


@settings(deadline=None, derandomize=True, max_examples=20)
@given(first=VALUES, second=VALUES, levels=LEVELS, absolute=st.booleans())
def test_updates_are_histograms_of_all_values(first, second, levels, absolute):
    first, second, levels = (np.array(each, "float32") for each in (first, second, levels))
    found = histogram_update(histogram(first, levels, absolute), second, levels, absolute)
    np.testing.assert_array_equal(found, by_numpy([*first, *second], levels, absolute))


@settings(deadline=None, derandomize=True, max_examples=30)
@given(
    values=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30),
    n_bins=st.integers(1, 7),
)
def test_levels_of_fixed_width(values, n_bins):
    values = np.array(values, "float32")
    levels = fixed_width_bins(values, n_bins)
    assert levels.shape == (n_bins - 1,)
    expected = np.linspace(values.min(), values.max(), n_bins + 1)[1:-1]
    np.testing.assert_allclose(levels, expected, rtol=1e-4, atol=1e-4)


def test_bins_are_those_of_numpy():
    values = np.random.default_rng(0).normal(size=500).astype("float32")
    found = histogram(values, fixed_width_bins(values, 10))
    np.testing.assert_array_equal(found, np.histogram(values, bins=10)[0])


def test_half_precision():
    # Its range is more than the type has.
    levels = fixed_width_bins(np.array([-60000, 60000], "float16"), 4)
    assert levels.dtype == tf.float16
    np.testing.assert_array_equal(levels, [-30000, 0, 30000])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_functions(jit_compile):
    def function(values):
        levels = fixed_width_bins(values, 3)
        return histogram_update(histogram(values, levels), values, levels, True)

    values = tf.constant([-3.0, -1.5, 0.0, 2.0, 3.0])
    found = tf.function(function, jit_compile=jit_compile)(values)
    # Levels are -1 and 1: two below, one between, two above; of magnitudes none is below.
    np.testing.assert_array_equal(found, [2 + 0, 1 + 1, 2 + 4])


def test_in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        np.testing.assert_array_equal(session.run(histogram([1.0, 2.0], [1.5])), [1, 1])


def test_a_histogram_keeps_its_type():
    found = histogram_update(tf.constant([1, 2], tf.int32), [1.0, 2.0], [1.5])
    assert found.dtype == tf.int32
    np.testing.assert_array_equal(found, [2, 3])


def test_an_update_is_one_operation():
    spec = tf.TensorSpec((4,))
    function = tf.function(lambda h, x: histogram_update(h, x, [0.0, 1.0, 2.0]))
    names = [op.name for op in function.get_concrete_function(spec, spec).graph.get_operations()]
    scopes = {name.partition("/")[0] for name in names if "/" in name}
    assert scopes == {"poplar.Histogram"}


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: histogram([[1.0]], [1.0]), ValueError, r"`inputs` must be a vector.*\(1, 1\)"),
        (lambda: histogram([1.0], [[1.0]]), ValueError, "`levels` must be a vector"),
        (lambda: histogram([1], [1.0]), ValueError, "`inputs` must be of float16 or.*of int32"),
        (
            lambda: histogram(np.float16([1]), np.float32([1])),
            ValueError,
            "`levels` must be of the type of `inputs`.*levels of float32, inputs of float16",
        ),
        (lambda: histogram([1.0], [1.0], "yes"), TypeError, "^`absolute_of_input` must be True or"),
        (lambda: histogram_update(["a"], [1.0], []), TypeError, "^`hist` must be numbers"),
        (lambda: histogram_update([1.0], [1.0], [1.0]), ValueError, r"one element more.*\(1,\)"),
        (lambda: fixed_width_bins([1.0], 0), ValueError, "positive integer. Received: n_bins=0"),
        (lambda: fixed_width_bins([1.0], True), ValueError, "positive integer"),
    ],
)
def test_mistakes(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_examples():
    assert doctest.testmod(statistics_ops).failed == 0
