"""Rows of which some may not exist: values and dense gradients."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.ops import row_gather
from ipu_keras.ops.row_gather import num_rows, rows_or_zeros, sum_of_rows


def test_example_in_the_docstring():
    assert doctest.testmod(row_gather).failed == 0


@pytest.mark.parametrize("jit_compile", [False, True])
def test_what_does_not_exist_is_never_read(jit_compile):
    # Else the NaN of the row that stands in for it would show.
    params = tf.constant([[np.nan, np.nan], [1.0, 2.0]])
    run = tf.function(rows_or_zeros, jit_compile=jit_compile)
    found = run(
        params, tf.constant([[1, 99], [-1, 1]]), tf.constant([[True, False]] * 1 + [[False, True]])
    )
    np.testing.assert_array_equal(found, [[[1, 2], [0, 0]], [[0, 0], [1, 2]]])


def test_gradient_is_dense_and_a_sum():
    params, indices = tf.zeros((3, 1)), tf.constant([2, 2, 0, 1])
    with tf.GradientTape() as tape:
        tape.watch(params)
        rows = rows_or_zeros(params, indices, tf.constant([True, True, True, False]))
        loss = tf.reduce_sum(rows * [[1.0], [2.0], [4.0], [8.0]])
    gradient = tape.gradient(loss, params)
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_array_equal(gradient, [[4], [0], [3]])


def test_no_rows_at_all():
    found = rows_or_zeros(tf.zeros((0, 2)), tf.constant([0, 1, 2]), tf.fill([3], False))
    np.testing.assert_array_equal(found, np.zeros((3, 2)))


def test_sum_of_rows():
    exist = tf.constant([True, False, True])
    found = sum_of_rows(tf.constant([1.0, 2.0, 4.0]), tf.constant([1, 1, 1]), exist, 3)
    np.testing.assert_array_equal(found, [0, 5, 0])


def test_number_of_rows_of_an_open_batch():
    seen = []

    @tf.function(input_signature=[tf.TensorSpec((None, 2))])
    def count(x):
        seen.append(num_rows(x))
        return seen[0]

    assert int(count(tf.zeros((5, 2)))) == 5
    assert tf.is_tensor(seen[0])
    assert num_rows(tf.zeros((5, 2))) == 5
