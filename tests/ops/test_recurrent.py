"""The LSTM over whole sequences: against NumPy, and its gradient against differences."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.ops import recurrent
from ipu_keras.ops.recurrent import lstm, lstm_inference

NAMES = ("inputs", "initial_h", "initial_c", "kernel", "recurrent_kernel", "bias")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_numpy(inputs, h, c, kernel, recurrent_kernel, bias):
    """Step by step as in the papers, in the precision of what it is given."""
    outputs = []
    for x in inputs:
        i, f, g, o = np.split(x @ kernel + h @ recurrent_kernel + bias, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), c


def arguments(time, batch=3, features=2, units=4, dtype=np.float64):
    random = np.random.default_rng(0)
    shapes = (
        (time, batch, features),
        (batch, units),
        (batch, units),
        (features, 4 * units),
        (units, 4 * units),
        (4 * units,),
    )
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def weighted_sum(results):
    """A number that depends on every output and on the last cell, each differently."""
    outputs, cell = results
    random = np.random.default_rng(1)
    return sum((random.standard_normal(part.shape) * part).sum() for part in (outputs, cell))


def weighted_sum_in_tensorflow(results):
    random = np.random.default_rng(1)
    return tf.add_n([tf.reduce_sum(random.standard_normal(part.shape) * part) for part in results])


def test_example_in_the_docstring():
    assert doctest.testmod(recurrent).failed == 0


def test_golden():
    # One unit, all weights 1, no bias: z = 1, so c = s(1) tanh(1) and h = s(1) tanh(c)
    # with s(1) = 0.7310586, tanh(1) = 0.7615942 and tanh(c) = 0.5055770.
    zero, one = tf.zeros((1, 1)), tf.ones((1, 1, 1))
    outputs, cell = lstm(one, zero, zero, tf.ones((1, 4)), tf.ones((1, 4)), tf.zeros(4))
    np.testing.assert_allclose(cell, [[0.5567699]], rtol=1e-6)
    np.testing.assert_allclose(outputs, [[[0.3696064]]], rtol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("time", [1, 5])
def test_values(time, jit_compile):
    given = arguments(time)
    results = tf.function(lstm, jit_compile=jit_compile)(*map(tf.constant, given))
    for ours, expected in zip(results, lstm_by_numpy(*given), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-12)


@pytest.mark.parametrize("return_sequences", [True, False])
@pytest.mark.parametrize("time", [1, 5])
def test_inference(time, return_sequences):
    given = arguments(time)
    run = tf.function(lambda *tensors: lstm_inference(*tensors, return_sequences=return_sequences))
    outputs, cell = run(*map(tf.constant, given))
    expected, expected_cell = lstm_by_numpy(*given)
    np.testing.assert_allclose(outputs, expected if return_sequences else expected[-1], rtol=1e-12)
    np.testing.assert_allclose(cell, expected_cell, rtol=1e-12)


@pytest.mark.parametrize("position", range(len(NAMES)), ids=NAMES)
def test_gradients_are_those_of_differences(position):
    given = arguments(time=3)
    tensors = [tf.constant(array) for array in given]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        result = weighted_sum_in_tensorflow(lstm(*tensors))
    gradient = tape.gradient(result, tensors)[position].numpy()
    expected = np.empty_like(gradient)
    step = 1e-6
    for index in np.ndindex(gradient.shape):
        sums = []
        for sign in (-1, 1):
            moved = [array.copy() for array in given]
            moved[position][index] += sign * step
            sums.append(weighted_sum(lstm_by_numpy(*moved)))
        expected[index] = (sums[1] - sums[0]) / (2 * step)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


def test_second_derivative():
    given = [tf.constant(array) for array in arguments(time=2)]
    kernel = given[3]

    def first(kernel):
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            result = weighted_sum_in_tensorflow(lstm(*given[:3], kernel, *given[4:]))
        return tf.reduce_sum(tape.gradient(result, kernel) ** 2)

    with tf.GradientTape() as tape:
        tape.watch(kernel)
        value = first(kernel)
    second = tape.gradient(value, kernel)
    step = 1e-5
    moved = np.zeros(kernel.shape)
    moved[1, 2] = step
    difference = (first(kernel + moved) - first(kernel - moved)) / (2 * step)
    np.testing.assert_allclose(second[1, 2], difference, rtol=1e-5)


def test_half_precision_stays_half():
    outputs, cell = lstm(*map(tf.constant, arguments(time=2, dtype=np.float16)))
    assert outputs.dtype == cell.dtype == tf.float16
