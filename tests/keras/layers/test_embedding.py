"""The layer for tables on the IPU: Keras's battery, Keras's layer, and what is refused."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.testing import TestCase

import ipu_addons
from ipu_keras.keras.layers import Embedding
from ipu_keras.keras.layers import embedding as module

# Stock Keras saves a variable with np.array(), whose `copy` argument TensorFlow's
# __array__ does not know yet; and its battery shuffles a generator.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning"),
]

IDS = np.array([[2, 0, 1], [3, 3, 2]], np.int32)


def test_example_in_the_docstring():
    assert doctest.testmod(module).failed == 0


def test_is_one_class():
    assert ipu_addons.keras.layers.Embedding is Embedding
    assert keras.saving.get_registered_name(Embedding) == "ipu_addons>Embedding"


@pytest.mark.parametrize("serialization_factor", [1, 2])
def test_battery(serialization_factor):
    TestCase().run_layer_test(
        Embedding,
        {"input_dim": 4, "output_dim": 3, "serialization_factor": serialization_factor},
        input_data=IDS,
        expected_output_shape=(2, 3, 3),
        expected_num_trainable_weights=1,
        expected_num_non_trainable_weights=0,
        expected_num_seed_generators=0,
        expected_num_losses=0,
        supports_masking=False,
    )


def test_golden():
    layer = Embedding(3, 2)
    layer.build()
    layer.set_weights([np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])])
    found = layer(np.array([[2, 0], [3, -1]]), training=True)
    np.testing.assert_array_equal(found, [[[5, 6], [1, 2]], [[0, 0], [0, 0]]])
    # Floats stand for integers, exactly, whatever the layer computes in.
    half = Embedding(4097, 1, dtype="mixed_float16")
    half.build()
    half.set_weights([np.arange(4097.0)[:, np.newaxis] / 4096])
    found = half(np.array([[4095.0, 4096.0]], np.float32))
    assert found.dtype == tf.float16
    np.testing.assert_array_equal(found, np.array([[[4095 / 4096], [1]]], np.float16))


@pytest.mark.parametrize("serialization_factor", [1, 4])
def test_trains_as_keras_does(strategy, serialization_factor):
    x = np.random.default_rng(0).integers(0, 8, (32, 3)).astype(np.int32)
    y = np.random.default_rng(1).standard_normal((32, 3, 2)).astype(np.float32)

    def weights(shape):
        return np.linspace(-1, 1, np.prod(shape)).reshape(shape)

    def train(layer):
        model = keras.Sequential([keras.Input((3,), dtype="int32"), layer, keras.layers.Dense(2)])
        model.set_weights([weights(variable.shape) for variable in model.weights])
        model.compile(keras.optimizers.SGD(0.5), "mse", steps_per_execution=2)
        model.fit(x, y, batch_size=8, shuffle=False, epochs=2, verbose=0)
        return model.get_weights()

    expected = train(keras.layers.Embedding(8, 4))
    with strategy.scope():
        found = train(Embedding(8, 4, serialization_factor=serialization_factor))
    for actual, stock in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, stock, rtol=1e-5, atol=1e-6)


def test_symbolic_calls_leave_the_batch_open():
    ids = keras.Input((5,), dtype="int32")
    assert Embedding(4, 3)(ids).shape == (None, 5, 3)
    assert Embedding(4, 0).compute_output_shape((None, 5)) == (None, 5, 0)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4)])
def test_inputs_of_another_rank(shape):
    message = r"^`inputs` must have the shape \(batch_size, input_length\).* inputs of shape \("
    with pytest.raises(ValueError, match=message):
        Embedding(4, 3)(tf.zeros(shape, tf.int32))
    with pytest.raises(ValueError, match=message):
        Embedding(4, 3).build(shape)
    layer = Embedding(4, 3)
    layer(tf.zeros((2, 5), tf.int32))
    with pytest.raises(ValueError, match="expected ndim=2"):
        layer(tf.zeros(shape, tf.int32))


def test_saved_model(tmp_path):
    layer = Embedding(4, 3, "ones", 2, name="words")
    model = keras.Sequential([keras.Input((3,), dtype="int32"), layer])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].get_config() == layer.get_config()
    assert layer.get_config()["serialization_factor"] == 2
    np.testing.assert_array_equal(loaded(IDS), np.ones((2, 3, 3)))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("embeddings_regularizer", "l2"),
        ("embeddings_constraint", "non_neg"),
        ("mask_zero", True),
        ("weights", [np.zeros((4, 3))]),
        ("input_length", 3),
        ("lora_rank", 2),
    ],
)
def test_refused_arguments_of_keras(argument, value):
    message = (
        r"ipu_tensorflow_addons.keras.layers.Embedding does not support __init__ argument "
        rf"{argument}\. It is included for API consistency (.|\n)*Received: {argument}="
    )
    with pytest.raises(NotImplementedError, match=message):
        Embedding(4, 3, **{argument: value})


def test_arguments_of_keras_that_ask_for_nothing():
    layer = Embedding(4, 3, mask_zero=False, embeddings_regularizer=None, trainable=False)
    assert not layer.trainable


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (0, 3),
            r"`input_dim` must be an integer of at least 1.* Received: input_dim=0",
        ),
        ((4.0, 3), r"`input_dim` must be an integer .*=4.0"),
        (
            (4, -1),
            r"`output_dim` must be an integer of at least 0.* Received: output_dim=-1",
        ),
        ((4, 3, "uniform", 0), "serialization_factor has to be at least 1, but was 0"),
        (
            (4, 3, "uniform", 3),
            r"The serialization_factor \(3\) must divide the size (.|\n)*4 rows",
        ),
    ],
)
def test_refused_sizes(arguments, message):
    with pytest.raises(ValueError, match=message):
        Embedding(*arguments)
