"""What models in a strategy's scope refuse."""

import re

import keras
import pytest
import tensorflow as tf
from comparison import classifier

from ipu_keras.ipu_strategy import IPUStrategy

# Stock Keras reads a variable with np.array(), whose `copy` argument TensorFlow's
# __array__ does not know yet; it warns on the CPU as well.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def raises(error, message):
    return pytest.raises(error, match=re.escape(message))


@pytest.mark.parametrize("already", ["compile", "set"])
def test_running_eagerly_is_refused(strategy, data, already):
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
    message = (
        "Keras models cannot run eagerly when using `IPUStrategy`. Set `run_eagerly=False` when "
        "calling `compile`."
    )
    if already == "compile":
        with raises(RuntimeError, message):
            model.compile("sgd", "mse", run_eagerly=True)
        assert not model.compiled
        assert not model.run_eagerly
        return
    model.compile("sgd", "mse")
    model.run_eagerly = True
    for call in all_calls(model, data):
        with raises(RuntimeError, message):
            call()
    assert int(model.optimizer.iterations) == 0


def all_calls(model, data):
    x, y = data
    return [
        lambda: model.fit(x, y, batch_size=8),
        lambda: model.evaluate(x, y, batch_size=8),
        lambda: model.predict(x, batch_size=8),
        lambda: model.train_on_batch(x, y),
        lambda: model.test_on_batch(x, y),
        lambda: model.predict_on_batch(x),
    ]


def test_a_model_in_the_scope_of_another_device_is_refused(data):
    with IPUStrategy("/device:CPU:0").scope():
        model = classifier()
    for call in all_calls(model, data):
        with raises(ValueError, "Sequential can only be used on an IPU device. Received: a str"):
            call()
    assert int(model.optimizer.iterations) == 0


@pytest.mark.parametrize(
    "maker", ["make_train_function", "make_test_function", "make_predict_function"]
)
def test_overriding_what_makes_the_functions_is_refused(strategy, data, maker):
    own = type("Own", (keras.Sequential,), {maker: lambda self, force=False: None})
    with strategy.scope():
        model = own([keras.Input([6]), keras.layers.Dense(1)], name="mine")
        on_instance = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)], name="mine")
    setattr(on_instance, maker, lambda force=False: None)
    for one in (model, on_instance):
        one.compile("sgd", "mse")
        for call in all_calls(one, data):
            with raises(
                RuntimeError,
                f"The function `{maker}` for the model mine has been overridden. This is not "
                "supported when using Keras within an IPUStrategy",
            ):
                call()


def test_a_model_that_is_not_compiled_is_refused_as_by_keras(strategy, data):
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
    fit, evaluate, _, train_on_batch, test_on_batch, _ = all_calls(model, data)
    for call in (fit, evaluate, train_on_batch, test_on_batch):
        with raises(ValueError, "You must call `compile()` before using the model."):
            call()


def test_a_model_without_layers_is_refused_as_by_keras(strategy, data):
    with strategy.scope():
        model = keras.Sequential(name="nothing")
        model.compile("sgd", "mse")
    for call in all_calls(model, data):
        # In Keras 3.12 it is a RuntimeError that has these words.
        with raises(
            (RuntimeError, ValueError),
            "Sequential model nothing cannot be built because it has no lay",
        ):
            call()


def test_a_model_without_weights_trains_nothing_and_warns_as_keras_does(strategy, data):
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.ReLU()])
        model.compile("sgd", "mse", jit_compile=False)
    with pytest.warns(UserWarning, match="The model does not have any trainable weights"):
        model.fit(data[0], data[0], batch_size=8, verbose=0)


def test_outputs_without_a_fixed_shape_are_refused(strategy, data):
    class Chooses(keras.layers.Layer):
        def call(self, inputs):
            return tf.boolean_mask(inputs, inputs[:, 0] > 0)

        def compute_output_spec(self, inputs):
            return keras.KerasTensor((None, 6))

    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), Chooses()])
    with raises(ValueError, "which is not fully defined. IPU programs are static"):
        model.predict(data[0], batch_size=8, verbose=0)
