"""The LSTM over whole sequences: against NumPy, and its gradient against differences."""

import doctest
import functools

import numpy as np
import pytest
import tensorflow as tf
from differences import jacobians
from recurrent_sequences import lstm_arguments, lstm_by_numpy, step_mask

from ipu_keras.ops.recurrent import lstm, lstm_inference, lstm_sequence

ACTIVATIONS = [
    ("tanh", "sigmoid"),
    ("relu", "hard_sigmoid"),
    ("sigmoid", "tanh"),
    ("softmax", "softmax"),
    ("hard_sigmoid", "linear"),
]


def joined(results):
    """All outputs and the last cell in one tensor."""
    outputs, cell = results
    return tf.concat([outputs, cell[tf.newaxis]], axis=0)


def test_example_in_the_docstring():
    assert doctest.testmod(lstm_sequence).failed == 0


def test_golden():
    # One unit, all weights 1, no bias: z = 1, so c = s(1) tanh(1) and h = s(1) tanh(c)
    # with s(1) = 0.7310586, tanh(1) = 0.7615942 and tanh(c) = 0.5055770.
    zero, one = tf.zeros((1, 1)), tf.ones((1, 1, 1))
    outputs, cell = lstm(one, zero, zero, tf.ones((1, 4)), tf.ones((1, 4)), tf.zeros(4))
    np.testing.assert_allclose(cell, [[0.5567699]], rtol=1e-6)
    np.testing.assert_allclose(outputs, [[[0.3696064]]], rtol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("time", "masked"), [(0, False), (1, False), (5, False), (5, True)])
def test_values(time, masked, jit_compile):
    given = lstm_arguments(time)
    mask = step_mask(time) if masked else None
    run = tf.function(functools.partial(lstm, mask=mask), jit_compile=jit_compile)
    results = run(*map(tf.constant, given))
    for ours, expected in zip(results, lstm_by_numpy(*given, mask=mask), strict=True):
        assert ours.shape == expected.shape
        np.testing.assert_allclose(ours, expected, rtol=1e-12)


@pytest.mark.parametrize(("activation", "recurrent_activation"), ACTIVATIONS[1:])
def test_activations(activation, recurrent_activation):
    options = {"activation": activation, "recurrent_activation": recurrent_activation}
    given = lstm_arguments(time=3)
    expected = lstm_by_numpy(*given, **options)
    for run in (lstm, lstm_inference):
        for ours, value in zip(run(*map(tf.constant, given), **options), expected, strict=True):
            np.testing.assert_allclose(ours, value, rtol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("return_sequences", [True, False])
@pytest.mark.parametrize("time", [1, 5])
def test_inference(time, return_sequences, masked):
    given = lstm_arguments(time)
    mask = step_mask(time) if masked else None
    run = tf.function(
        functools.partial(lstm_inference, return_sequences=return_sequences, mask=mask)
    )
    outputs, cell = run(*map(tf.constant, given))
    expected, expected_cell = lstm_by_numpy(*given, mask=mask)
    np.testing.assert_allclose(outputs, expected if return_sequences else expected[-1], rtol=1e-12)
    np.testing.assert_allclose(cell, expected_cell, rtol=1e-12)


@pytest.mark.parametrize(
    ("activation", "recurrent_activation", "masked"),
    [("tanh", "sigmoid", False), *[(*names, True) for names in ACTIVATIONS]],
)
def test_gradients_are_those_of_differences(activation, recurrent_activation, masked):
    mask = step_mask(3) if masked else None

    @tf.function
    def run(*tensors):
        return joined(
            lstm(
                *tensors,
                activation=activation,
                recurrent_activation=recurrent_activation,
                mask=mask,
            )
        )

    given = lstm_arguments(time=3, units=2)
    theoretical, numerical = jacobians(run, given, 1e-6)
    for ours, expected in zip(theoretical, numerical, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-7)


def test_gradients_compiled_by_xla():
    given = [tf.constant(array) for array in lstm_arguments(time=4)]

    def gradients(jit_compile):
        run = tf.function(functools.partial(lstm, mask=step_mask(4)), jit_compile=jit_compile)
        with tf.GradientTape() as tape:
            tape.watch(given)
            result = tf.reduce_sum(joined(run(*given)) ** 2)
        return tape.gradient(result, given)

    for ours, expected in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)


def test_what_is_masked_is_not_looked_at():
    """Whatever padding holds, outputs stay finite, and so do gradients of all but the inputs."""
    given = lstm_arguments(time=3)
    mask = step_mask(3)
    given[0][~mask] = 1e30
    tensors = [tf.constant(array) for array in given]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs, _ = lstm(*tensors, mask=mask)
    gradients = tape.gradient(outputs, tensors)
    assert np.isfinite(outputs).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_array_equal(gradients[0].numpy()[~mask], 0)


def test_second_derivative():
    given = [tf.constant(array) for array in lstm_arguments(time=2)]
    kernel = given[3]

    def first(kernel):
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            result = tf.reduce_sum(joined(lstm(*given[:3], kernel, *given[4:])))
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


def test_unknown_sizes_of_time_and_batch():
    specs = [tf.TensorSpec([None, None, 2], tf.float64)] + [
        tf.TensorSpec([None, 4], tf.float64)
    ] * 2
    run = tf.function(lstm, input_signature=[*specs, *map(tf.TensorSpec, *weight_specs())])
    for time in (1, 4):
        given = lstm_arguments(time)
        for ours, expected in zip(run(*given), lstm_by_numpy(*given), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-12)


def weight_specs():
    return [(2, 16), (4, 16), (16,)], [tf.float64] * 3


def test_half_precision_stays_half():
    outputs, cell = lstm(*map(tf.constant, lstm_arguments(time=2, dtype=np.float16)))
    assert outputs.dtype == cell.dtype == tf.float16


def test_partials_are_what_sums_are_in():
    """2048 + 1 is no number in float16, so that ones added to it one by one are lost."""
    features = 1025
    inputs = np.ones((1, 1, features), np.float16)
    inputs[0, 0, 0] = 2048
    kernel = np.zeros((features, 4), np.float16)
    kernel[:, 2] = 1
    state = tf.zeros((1, 1), tf.float16)
    weights = map(tf.constant, (kernel, np.zeros((1, 4), np.float16), np.zeros(4, np.float16)))
    _, cell = lstm(
        *(tf.constant(inputs), state, state, *weights),
        activation="linear",
        partials_dtype=tf.float32,
    )
    # The input gate is half open.
    assert cell.numpy() == (2048 + features - 1) / 2
