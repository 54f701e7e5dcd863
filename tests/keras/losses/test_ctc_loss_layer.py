"""The CTC loss as a layer: Keras's battery, and training on the IPU beside stock Keras."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import fit_same
from keras.src.testing import TestCase

from ipu_keras import nn_ops
from ipu_keras.keras.losses import CTCLoss
from ipu_keras.keras.losses import ctc_loss as module

TIME, BATCH, CLASSES = 6, 4, 5
SHAPES = {
    "labels": (BATCH, 2),
    "data": (TIME, BATCH, CLASSES),
    "label_length": (BATCH,),
    "data_length": (BATCH,),
}


def inputs():
    """What the layer takes: with repeated labels, with one label and with none."""
    random = np.random.default_rng(0)
    return {
        "labels": np.array([[1, 2], [2, 2], [3, 0], [0, 0]], "int32"),
        "data": random.normal(size=SHAPES["data"]).astype("float32"),
        "label_length": np.array([2, 2, 1, 0], "int32"),
        "data_length": np.array([6, 6, 3, 2], "int32"),
    }


class StockCTCLoss(keras.layers.Layer):
    """The same with TensorFlow's own operation."""

    def call(self, labels, data, label_length, data_length):
        return tf.nn.ctc_loss(labels, data, label_length, data_length, blank_index=0)


def as_it_is(_, loss):
    """The loss of a model that returns it."""
    return loss


def model_with(loss_layer):
    """Labels and lengths are inputs; the loss is the output, as the documents show it."""
    labels = keras.Input((2,), batch_size=BATCH, dtype="int32", name="labels")
    steps = keras.Input((TIME, 3), batch_size=BATCH, name="steps")
    label_length = keras.Input((), batch_size=BATCH, dtype="int32", name="label_length")
    data_length = keras.Input((), batch_size=BATCH, dtype="int32", name="data_length")
    logits = keras.ops.transpose(keras.layers.Dense(CLASSES)(steps), (1, 0, 2))
    loss = loss_layer(labels, logits, label_length, data_length)
    model = keras.Model((labels, steps, label_length, data_length), loss)
    model.compile(keras.optimizers.SGD(0.1), loss=as_it_is)
    return model


def samples(count):
    random = np.random.default_rng(1)
    x = (
        random.integers(1, CLASSES, size=(count, 2)).astype("int32"),
        random.normal(size=(count, TIME, 3)).astype("float32"),
        random.integers(1, 3, size=count).astype("int32"),
        random.integers(3, TIME + 1, size=count).astype("int32"),
    )
    return x, np.zeros(count, "float32")


def test_example_in_the_docstring():
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("from_logits", [True, False])
def test_battery(from_logits):
    TestCase().run_layer_test(
        CTCLoss,
        {"blank_index": -1, "from_logits": from_logits},
        input_shape={f"{name}_shape": shape for name, shape in SHAPES.items()},
        input_dtype={f"{name}_shape": "float32" if name == "data" else "int32" for name in SHAPES},
        expected_output_shape=(BATCH,),
        expected_num_trainable_weights=0,
        # Of several inputs, Keras's battery trains none; below is how they are trained.
        run_training_check=False,
    )


@pytest.mark.parametrize(
    ("from_logits", "operation"),
    [(True, nn_ops.ctc_loss_v2), (False, nn_ops.ctc_loss_with_log_probs)],
)
def test_is_the_operation(from_logits, operation):
    given = inputs()
    if not from_logits:
        given["data"] = tf.nn.log_softmax(given["data"])
    loss = CTCLoss(blank_index=-1, from_logits=from_logits)(**given)
    np.testing.assert_array_equal(loss, operation(*given.values(), blank_index=-1))


def test_golden():
    # All classes have the probability 1/2; 3 of the 4 paths of two steps have the label.
    given = [[1]], tf.zeros((2, 1, 2)), [1], [2]
    loss = CTCLoss(from_logits=True)(*map(tf.constant, given))
    np.testing.assert_allclose(loss, [-np.log(0.75)], rtol=1e-6)


def test_defaults():
    config = CTCLoss().get_config()
    assert (config["blank_index"], config["from_logits"]) == (0, False)


def test_mixed_precision():
    layer = CTCLoss(from_logits=True, dtype="mixed_float16")
    loss = layer(**inputs())
    assert loss.dtype == tf.float16
    np.testing.assert_allclose(loss, CTCLoss(from_logits=True)(**inputs()), rtol=3e-3)


def test_trains_as_stock_keras(strategy, device):
    keras.utils.set_random_seed(1)
    stock = model_with(StockCTCLoss())
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = model_with(CTCLoss(from_logits=True))
    x, y = samples(4 * BATCH)
    history = fit_same(stock, model, x, y, batch_size=BATCH, epochs=2, tolerance=1e-4)
    assert history.history["loss"][1] < history.history["loss"][0]
    assert device.counters().program_executions


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_file(strategy, tmp_path):
    with strategy.scope():
        model = model_with(CTCLoss(from_logits=True, name="loss"))
    model.save(tmp_path / "model.keras")
    with strategy.scope():
        loaded = keras.models.load_model(tmp_path / "model.keras", compile=False)
    assert type(loaded.get_layer("loss")) is CTCLoss
    x, _ = samples(BATCH)
    expected = model.predict(x, batch_size=BATCH, verbose=0)
    loaded.compile()
    np.testing.assert_array_equal(loaded.predict(x, batch_size=BATCH, verbose=0), expected)


def test_misspelt_argument_of_a_call():
    with pytest.raises(TypeError, match=r"`CTCLoss` has no argument `lenght`.* lenght=1"):
        CTCLoss()(**inputs(), lenght=1)


def test_blank_that_is_no_class():
    with pytest.raises(ValueError, match=r"one of the 5 classes .* blank_index=5"):
        CTCLoss(blank_index=5)(**inputs())


def test_training_makes_no_difference():
    layer = CTCLoss(from_logits=True)
    np.testing.assert_array_equal(layer(**inputs(), training=True), layer(**inputs()))
