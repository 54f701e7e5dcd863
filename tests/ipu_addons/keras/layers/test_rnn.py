"""The addons' recurrent layers: what all layers have to pass, and what differs from the others."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_battery import run_layer_battery

from ipu_addons.keras.layers import GRU, LSTM, PopnnGRU, PopnnLSTM, rnn
from ipu_keras.keras import layers

CLASSES = pytest.mark.parametrize("layer_class", [PopnnLSTM, PopnnGRU])
# Of this process's first model with a loop that is compiled by XLA.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def test_names():
    assert LSTM is PopnnLSTM is rnn.PopnnLSTM
    assert GRU is PopnnGRU is rnn.PopnnGRU
    assert issubclass(PopnnLSTM, layers.PopnnLSTM)
    assert issubclass(PopnnGRU, layers.PopnnGRU)


@pytest.mark.parametrize(
    ("layer_class", "arguments", "expected"),
    [
        (PopnnLSTM, {}, (2, 3)),
        (PopnnGRU, {"reset_after": False, "return_sequences": True}, (2, 4, 3)),
    ],
)
def test_battery(strategy, layer_class, arguments, expected):
    run_layer_battery(
        strategy,
        layer_class,
        {"units": 3, **arguments},
        input_shape=(2, 4, 5),
        expected_output_shape=expected,
        expected_num_trainable_weights=3,
        expected_num_non_trainable_weights=0,
        supports_masking=True,
    )


@CLASSES
def test_all_arguments_are_saved(layer_class):
    layer = layer_class(
        4,
        activation="relu",
        recurrent_activation="hard_sigmoid",
        use_bias=False,
        kernel_initializer="ones",
        recurrent_initializer="zeros",
        bias_initializer="ones",
        dropout=0.5,
        dropout_seed=np.array([1, 2]),
        return_sequences=True,
        return_state=True,
        stateful=True,
        partials_dtype=tf.float16,
        seed=3,
        time_major=True,
        available_memory_proportion_fwd=1.0,
        available_memory_proportion_bwd=1.0,
        name="mine",
    )
    loaded = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(loaded) is layer_class
    assert loaded.get_config() == layer.get_config()
    assert loaded.partials_dtype == tf.float16
    assert loaded.dropout_seed == [1, 2]
    assert loaded.name == "mine"
    defaults = layer_class(4).get_config()
    own = "unit_forget_bias" if layer_class is PopnnLSTM else "reset_after"
    unchanged = {key for key, value in layer.get_config().items() if defaults[key] == value}
    assert unchanged == {"units", "trainable", "dtype", own}


@CLASSES
def test_mask_is_the_second_argument(layer_class):
    layer = layer_class(3, return_sequences=True)
    inputs = tf.random.stateless_normal((2, 4, 5), seed=[1, 2])
    mask = tf.constant([[True, True, False, False], [True, False, True, True]])
    np.testing.assert_array_equal(layer(inputs, mask), layer(inputs, mask=mask))
    np.testing.assert_array_equal(layer(inputs, mask)[0, 1], layer(inputs, mask)[0, 3])


@CLASSES
def test_symbolic_call(layer_class):
    layer = layer_class(3, return_sequences=True, return_state=True)
    outputs, *state = layer(keras.Input((None, 5), batch_size=2))
    assert outputs.shape == (2, None, 3)
    assert [part.shape for part in state] == [(2, 3)] * len(state)
    assert len(state) == (2 if layer_class is PopnnLSTM else 1)
