"""LSTM layers compute as in stock Keras, through the backend's LSTM where it applies."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import assert_same
from keras.src import backend

from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras.extensions import lstm_backend

OPTIONS = {
    "plain": {},
    "sequences": {"return_sequences": True},
    "backwards": {"go_backwards": True, "return_sequences": True},
    "no bias": {"use_bias": False},
    "dropout": {"dropout": 0.4},
}
FALLBACKS = {
    "other activation": {"activation": "relu"},
    "other gates": {"recurrent_activation": "hard_sigmoid"},
    "unrolled": {"unroll": True},
    "recurrent dropout": {"recurrent_dropout": 0.3},
}


def model_of(options, *, mask=False):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            keras.layers.Embedding(9, 4, mask_zero=mask),
            keras.layers.LSTM(6, **options),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, steps_per_execution=4)
    return model


def run_both(options, **more):
    """The weights after the same training, and predictions, of stock Keras and on the IPU."""
    random = np.random.default_rng(0)
    x = random.integers(0, 9, (64, 5)).astype("int32")
    y = random.integers(0, 3, 64).astype("int32")
    stock = model_of(options, **more)
    with IPUStrategy().scope():
        ours = model_of(options, **more)
    results = []
    for model in (stock, ours):
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        results.append([*model.get_weights(), model.predict(x, batch_size=8, verbose=0)])
    return results


@pytest.fixture
def sequences(monkeypatch):
    """Counts the traces that took the LSTM over whole sequences."""
    taken = []

    def lstm(*args, **kwargs):
        taken.append(args)
        return original(*args, **kwargs)

    original = lstm_backend._lstm
    monkeypatch.setattr(lstm_backend, "_lstm", lstm)
    return taken


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_same_weights_through_the_whole_sequence(options, sequences):
    stock, ours = run_both(options)
    assert sequences
    assert_same(stock, ours)


@pytest.mark.parametrize("options", FALLBACKS.values(), ids=FALLBACKS)
def test_what_it_does_not_cover_is_left_to_keras(options, sequences):
    stock, ours = run_both(options)
    assert not sequences
    assert_same(stock, ours)


def test_masked_steps_are_left_to_keras(sequences):
    stock, ours = run_both({}, mask=True)
    assert not sequences
    assert_same(stock, ours)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_inference_keeps_nothing_for_a_gradient(options, sequences, monkeypatch):
    def refused(*args):
        raise AssertionError("the LSTM for training was taken")

    monkeypatch.setattr(lstm_backend, "lstm_over_sequence", refused)
    with IPUStrategy().scope():
        model = model_of(options)
    model.predict(np.ones((32, 5), "int32"), batch_size=8, verbose=0)
    assert sequences


def test_stock_models_do_not_use_it(sequences):
    model_of({}).fit(np.ones((8, 5), "int32"), np.ones(8), batch_size=8, verbose=0)
    assert not sequences


def test_attaching_twice_changes_nothing():
    attached = backend.lstm
    lstm_backend.attach_lstm()
    assert backend.lstm is attached


def test_gradients_of_a_layer_that_is_called_eagerly(strategy):
    """As Keras's own loop has them: the weights that are read count as what it was given."""
    x = tf.constant(np.random.default_rng(0).normal(size=(2, 3, 4)), tf.float32)
    found = []
    for scope in (strategy.scope(), contextlib.nullcontext()):
        keras.utils.set_random_seed(0)
        with scope:
            layer = keras.layers.LSTM(3)
            layer.build(x.shape)
            with tf.GradientTape() as tape:
                y = layer(x)
            found.append(tape.gradient(y, [weight.value for weight in layer.trainable_weights]))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
