"""The GRU over whole sequences: against NumPy, and its gradient against differences."""

import doctest
import functools

import numpy as np
import pytest
import tensorflow as tf
from differences import jacobians
from recurrent_sequences import gru_arguments, gru_by_numpy, step_mask

from ipu_keras.ops.recurrent import gru, gru_inference, gru_sequence

ACTIVATIONS = [
    ("tanh", "sigmoid"),
    ("relu", "hard_sigmoid"),
    ("sigmoid", "tanh"),
    ("softmax", "softmax"),
]
VARIANTS = pytest.mark.parametrize("reset_after", [True, False])


def test_example_in_the_docstring():
    assert doctest.testmod(gru_sequence).failed == 0


@VARIANTS
def test_golden(reset_after):
    # One unit, all weights 1, state 1/2, no bias: all logits of gates are 3/2, so that with
    # s = s(3/2) = 0.8175745 the candidate is tanh(1 + s/2) = tanh(1.4087872) = 0.8872363
    # in both variants, and the state s/2 + (1 - s) 0.8872363.
    one, state = tf.ones((1, 1, 1)), tf.constant([[0.5]])
    bias = tf.zeros((2, 3) if reset_after else 3)
    states = gru(one, state, tf.ones((1, 3)), tf.ones((1, 3)), bias, reset_after=reset_after)
    np.testing.assert_allclose(states, [[[0.5706418]]], rtol=1e-6)


def test_golden_with_attention():
    # As above; with a score of 1/4, three quarters of the update gate are left: 0.6131809.
    one, state = tf.ones((1, 1, 1)), tf.constant([[0.5]])
    weights = tf.ones((1, 3)), tf.ones((1, 3)), tf.zeros(3)
    states = gru(one, state, *weights, tf.constant([[0.25]]), reset_after=False)
    np.testing.assert_allclose(states, [[[0.6497904]]], rtol=1e-6)


def test_full_attention_replaces_the_state():
    given = gru_arguments(time=1, reset_after=True)
    state = given[1]
    attended = gru(*map(tf.constant, given), tf.ones((1, 3), tf.float64))
    closed = [array.copy() for array in given]
    closed[4][0, :4] = -1e3
    np.testing.assert_allclose(attended, gru(*map(tf.constant, closed)), rtol=1e-9)
    assert np.abs(attended[0] - state).min() > 1e-3


@VARIANTS
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("time", "full"), [(0, False), (1, False), (5, False), (5, True)])
def test_values(time, full, jit_compile, reset_after):
    given = gru_arguments(time, reset_after=reset_after, attention=full)
    mask = step_mask(time) if full else None
    options = {"reset_after": reset_after, "mask": mask}
    run = tf.function(functools.partial(gru, **options), jit_compile=jit_compile)
    states, expected = run(*map(tf.constant, given)), gru_by_numpy(*given, **options)
    assert states.shape == expected.shape
    np.testing.assert_allclose(states, expected, rtol=1e-12)


@VARIANTS
@pytest.mark.parametrize("return_sequences", [True, False])
@pytest.mark.parametrize(("activation", "recurrent_activation"), ACTIVATIONS)
def test_inference(activation, recurrent_activation, return_sequences, reset_after):
    options = {
        "activation": activation,
        "recurrent_activation": recurrent_activation,
        "reset_after": reset_after,
        "mask": step_mask(4),
    }
    given = gru_arguments(4, reset_after=reset_after, attention=True)
    run = functools.partial(gru_inference, return_sequences=return_sequences, **options)
    expected = gru_by_numpy(*given, **options)
    states = run(*map(tf.constant, given))
    np.testing.assert_allclose(states, expected if return_sequences else expected[-1], rtol=1e-12)


@VARIANTS
@pytest.mark.parametrize(
    ("activation", "recurrent_activation", "full"),
    [("tanh", "sigmoid", False), *[(*names, True) for names in ACTIVATIONS]],
)
def test_gradients_are_those_of_differences(activation, recurrent_activation, full, reset_after):
    """With attention and a mask, and without."""
    options = {
        "activation": activation,
        "recurrent_activation": recurrent_activation,
        "reset_after": reset_after,
        "mask": step_mask(3) if full else None,
    }
    given = gru_arguments(3, reset_after=reset_after, attention=full, units=2)
    theoretical, numerical = jacobians(tf.function(functools.partial(gru, **options)), given, 1e-6)
    for ours, expected in zip(theoretical, numerical, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-7)


@VARIANTS
def test_gradients_compiled_by_xla(reset_after):
    arguments = gru_arguments(4, reset_after=reset_after, attention=True)
    given = [tf.constant(array) for array in arguments]

    def gradients(jit_compile):
        options = {"reset_after": reset_after, "mask": step_mask(4)}
        run = tf.function(functools.partial(gru, **options), jit_compile=jit_compile)
        with tf.GradientTape() as tape:
            tape.watch(given)
            result = tf.reduce_sum(run(*given) ** 2)
        return tape.gradient(result, given)

    for ours, expected in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)


@VARIANTS
def test_what_is_masked_is_not_looked_at(reset_after):
    given = gru_arguments(3, reset_after=reset_after)
    mask = step_mask(3)
    given[0][~mask] = 1e30
    tensors = [tf.constant(array) for array in given]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        states = gru(*tensors, mask=mask, reset_after=reset_after)
    gradients = tape.gradient(states, tensors)
    assert np.isfinite(states).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_array_equal(gradients[0].numpy()[~mask], 0)


@VARIANTS
@pytest.mark.parametrize("partials_dtype", [tf.float16, tf.float32])
def test_half_precision(partials_dtype, reset_after):
    given = gru_arguments(3, reset_after=reset_after, dtype=np.float16)
    wide = [array.astype(np.float64) for array in given]
    tensors = [tf.constant(array) for array in given]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        states = gru(*tensors, reset_after=reset_after, partials_dtype=partials_dtype)
    assert states.dtype == tf.float16
    assert {gradient.dtype for gradient in tape.gradient(states, tensors)} == {tf.float16}
    np.testing.assert_allclose(states, gru_by_numpy(*wide, reset_after=reset_after), atol=0.01)
