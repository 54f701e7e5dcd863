"""Losses over samples of classes, against TensorFlow's own."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.ops import sampled_losses
from ipu_keras.ops.nn_ops import nce_loss, sampled_softmax_loss

CLASSES, DIM, BATCH = 12, 3, 3


def arguments(num_true):
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, (BATCH, num_true))
    weights = tf.constant(random.normal(size=(CLASSES, DIM)), tf.float32)
    biases = tf.constant(random.normal(size=CLASSES), tf.float32)
    inputs = tf.constant(random.normal(size=(BATCH, DIM)), tf.float32)
    sampled = tf.random.log_uniform_candidate_sampler(
        tf.constant(labels), num_true, 7, unique=True, range_max=CLASSES, seed=1
    )
    # A hit, whatever was sampled.
    labels[0, 0] = int(sampled[0][2])
    return weights, biases, tf.constant(labels), inputs, sampled


def ours(loss, num_true, sampled):
    return lambda weights, biases, labels, inputs: loss(
        weights, biases, labels, inputs, 7, CLASSES, num_true, sampled
    )


def stock(loss, num_true, sampled):
    function = tf.nn.nce_loss if loss is nce_loss else tf.nn.sampled_softmax_loss
    hits = {"remove_accidental_hits": False} if loss is nce_loss else {}
    return lambda weights, biases, labels, inputs: function(
        weights, biases, labels, inputs, 7, CLASSES, num_true, sampled, **hits
    )


def with_gradients(function, weights, biases, labels, inputs):
    sources = [weights, biases, inputs]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        loss = function(weights, biases, labels, inputs)
    return [loss, *(tf.convert_to_tensor(g) for g in tape.gradient(loss, sources))]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("num_true", [1, 3])
@pytest.mark.parametrize("loss", [nce_loss, sampled_softmax_loss])
def test_values_and_gradients_of_tensorflow(loss, num_true, jit_compile):
    *given, sampled = arguments(num_true)
    expected = with_gradients(stock(loss, num_true, sampled), *given)
    compiled = tf.function(
        lambda *tensors: with_gradients(ours(loss, num_true, sampled), *tensors),
        jit_compile=jit_compile,
    )
    for found, value in zip(compiled(*given), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", [nce_loss, sampled_softmax_loss])
def test_half_precision(loss):
    *given, sampled = arguments(2)
    expected = stock(loss, 2, sampled)(*given)
    half = [each if each.dtype == tf.int64 else tf.cast(each, tf.float16) for each in given]
    found = ours(loss, 2, sampled)(*half)
    assert found.dtype == tf.float16
    np.testing.assert_allclose(found, expected, rtol=2e-2)


@pytest.mark.parametrize("loss", [nce_loss, sampled_softmax_loss])
def test_weights_in_parts(loss):
    weights, *given, sampled = arguments(1)
    parts = [weights[:6], weights[6:]]
    whole = ours(loss, 1, sampled)(weights, *given)
    np.testing.assert_array_equal(ours(loss, 1, sampled)(parts, *given), whole)


@pytest.mark.parametrize("loss", [nce_loss, sampled_softmax_loss])
def test_gradients_are_those_of_differences(loss):
    weights, biases, labels, inputs, sampled = arguments(2)
    theory, numeric = tf.test.compute_gradient(
        lambda w, b, x: ours(loss, 2, sampled)(w, b, labels, x), [weights, biases, inputs], 1e-2
    )
    for exact, difference in zip(theory, numeric, strict=True):
        np.testing.assert_allclose(exact, difference, atol=2e-2)


def test_a_sample_of_its_own():
    *given, _ = arguments(1)
    tf.random.set_seed(1)
    first = sampled_softmax_loss(*given, 7, CLASSES, seed=5)
    assert not np.array_equal(first, sampled_softmax_loss(*given, 7, CLASSES, seed=5))
    tf.random.set_seed(1)
    np.testing.assert_array_equal(first, sampled_softmax_loss(*given, 7, CLASSES, seed=5))
    assert nce_loss(*given, 7, CLASSES).shape == (BATCH,)


def test_in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        *given, _ = arguments_as_constants()
        assert session.run(nce_loss(*given, 7, CLASSES)).shape == (BATCH,)


def arguments_as_constants():
    random = np.random.default_rng(0)
    return (
        tf.constant(random.normal(size=(CLASSES, DIM)), tf.float32),
        tf.zeros(CLASSES),
        tf.zeros((BATCH, 1), tf.int64),
        tf.ones((BATCH, DIM)),
        None,
    )


@pytest.mark.parametrize("loss", [nce_loss, sampled_softmax_loss])
def test_labels(loss):
    weights, biases, labels, inputs, _ = arguments(2)
    with pytest.raises(ValueError, match=r"shape \(batch, num_true\).*num_true=1"):
        loss(weights, biases, labels, inputs, 7, CLASSES)


@pytest.mark.parametrize("loss", [nce_loss, sampled_softmax_loss])
@pytest.mark.parametrize("argument", ["weights", "biases", "inputs", "labels", "num_sampled"])
def test_what_does_not_fit(loss, argument):
    """It is refused whatever it is beside, and named."""
    names = ("weights", "biases", "labels", "inputs")
    given = dict(zip(names, arguments(1), strict=False))
    given |= {"num_sampled": 7, "num_classes": CLASSES}
    if argument == "num_sampled":
        wrong = [CLASSES + 1]
    elif argument == "labels":
        wrong = [given["labels"][:1], given["labels"] + CLASSES, -1 - given["labels"]]
    else:
        wrong = [given[argument][1:], given[argument][..., tf.newaxis]]
    for value in wrong:
        with pytest.raises(ValueError, match=f"`{argument}`"):
            loss(**{**given, argument: value})
    with pytest.raises((TypeError, ValueError), match=f"^`{argument}` "):
        loss(**{**given, argument: "text"})


def test_examples():
    assert doctest.testmod(sampled_losses).failed == 0
