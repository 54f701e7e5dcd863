"""The dropout layer: masks of an IPU's operation, seeded as Keras's layers are."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_battery import run_layer_battery

from ipu_keras.keras.layers import dropout as module
from ipu_keras.keras.layers.dropout import Dropout
from ipu_keras.ops.rand_ops import dropout

X = np.ones((4, 6), "float32")


@pytest.mark.parametrize(
    ("arguments", "num_generators"),
    [
        ({"rate": 0.3, "seed": 7, "noise_shape": (None, 1)}, 1),
        ({"rate": 0.3, "seed": (7, 8)}, 0),
        ({"rate": 0}, 0),
    ],
)
def test_battery(strategy, arguments, num_generators):
    run_layer_battery(
        strategy,
        Dropout,
        arguments,
        input_shape=(4, 6),
        expected_output_shape=(4, 6),
        expected_num_seed_generators=num_generators,
        supports_masking=True,
    )


def test_a_pair_is_the_seed_of_the_mask():
    layer = Dropout(0.4, seed=np.array([5, 2**32 - 1]))
    expected = dropout(X, 0.4, seed=[5, 2**32 - 1])
    for _ in range(2):
        np.testing.assert_array_equal(layer(X, training=True), expected)


def test_each_call_has_a_mask_of_its_own():
    layer, twin = (Dropout(0.5, seed=3) for _ in range(2))
    first, second = (layer(X, training=True) for _ in range(2))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(twin(X, training=True), first)
    np.testing.assert_array_equal(twin(X, training=True), second)


def test_the_global_seed_of_keras():
    masks = []
    for _ in range(2):
        keras.utils.set_random_seed(4)
        masks.append(Dropout(0.5)(X, training=True).numpy())
    np.testing.assert_array_equal(*masks)


def test_inference():
    for training in (False, None):
        np.testing.assert_array_equal(Dropout(0.5)(X, training=training), X)


def test_noise_shape():
    layer = Dropout(0.5, noise_shape=tf.constant([4, 1]), seed=1)
    dropped = layer(X, training=True).numpy()
    np.testing.assert_array_equal(dropped, np.repeat(dropped[:, :1], 6, axis=1))
    assert layer.get_config()["noise_shape"] == [4, 1]


def test_the_same_masks_when_trained_on_the_ipu(strategy):
    """The mean of what it leaves of ones, step by step, as XLA and TensorFlow compute it."""

    def losses(jit_compile):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            inputs = keras.Input((6,), batch_size=4)
            # Something to train, by nothing.
            same = keras.layers.Dense(6, use_bias=False, kernel_initializer="identity")
            model = keras.Model(inputs, Dropout(0.5, seed=9)(same(inputs)))
            model.compile(
                optimizer=keras.optimizers.SGD(0.0),
                loss="mae",
                jit_compile=jit_compile,
                steps_per_execution=4,
            )
        logged = []
        log = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: logged.append(logs["loss"])
        )
        x = np.tile(X, (4, 1)) * np.arange(1, 7, dtype="float32")
        model.fit(x, np.zeros_like(x), batch_size=4, shuffle=False, verbose=0, callbacks=[log])
        return logged

    layer = Dropout(0.5, seed=9)
    scaled = X * np.arange(1, 7, dtype="float32")
    expected = np.mean([np.mean(layer(scaled, training=True)) for _ in range(4)])
    np.testing.assert_allclose(losses(True), [expected], rtol=1e-6)
    np.testing.assert_allclose(losses(False), [expected], rtol=1e-6)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2])
def test_rates(rate):
    with pytest.raises(ValueError, match=rf"rate must be in the range \[0, 1\), but was {rate}"):
        Dropout(rate)


def test_seeds():
    with pytest.raises(ValueError, match=r"pair of 32-bit integers.*seed=\(1, 2, 3\)"):
        Dropout(0.5, seed=(1, 2, 3))


def test_example():
    assert doctest.testmod(module).failed == 0
