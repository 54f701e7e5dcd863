"""What models in a strategy's scope refuse."""

import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import classifier

from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM

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
    model.compile("sgd", "mse", run_eagerly=already == "compile")
    if already == "set":
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


@pytest.mark.parametrize("count", [0, -1, 1.5, math.nan, "2", True, tf.constant(2.0)])
def test_what_is_no_number_of_steps(model, data, count):
    x, y = data
    steps_before = model.steps_per_execution
    calls = {
        "steps_per_execution": lambda: model.compile("sgd", "mse", steps_per_execution=count),
        "steps_per_epoch": lambda: model.fit(x, y, steps_per_epoch=count),
        "validation_steps": lambda: model.fit(x, y, validation_data=data, validation_steps=count),
        "steps": lambda: model.evaluate(x, y, steps=count),
    }
    predict = lambda: model.predict(x, steps=count)  # noqa: E731
    for name, call in [*calls.items(), ("steps", predict)]:
        message = f"`{name}` must be a positive integer. Received: {name}={count!r}"
        with raises(ValueError, message):
            call()
    with raises(ValueError, "`steps_per_execution` must be a positive integer. Received: steps_"):
        model.compile("sgd", "mse", steps_per_execution=None)
    assert model.steps_per_execution == steps_before


def test_numbers_of_steps_of_any_kind(strategy, data):
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(8, drop_remainder=True)
    with strategy.scope():
        model = classifier(steps_per_execution=dataset.cardinality())
    assert model.steps_per_execution == 8
    history = model.fit(dataset, steps_per_epoch=np.int64(8), shuffle=False, verbose=0)
    assert history.params["steps"] == 8
    assert len(model.predict(dataset, steps=tf.constant(8), verbose=0)) == 64


def test_a_device_that_is_configured_no_longer(data):
    SYSTEM.connect(DRIVER)
    configured = SYSTEM.config
    SYSTEM.reset()
    IPUConfig().configure_ipu_system()
    try:
        with IPUStrategy().scope():
            model = classifier()
        model.predict(data[0], batch_size=8, verbose=0)
        reset_ipu_configuration()
        for call in all_calls(model, data):
            with raises(RuntimeError, "No IPU devices configured.\nConfigure them first: "):
                call()
    finally:
        if configured is not None:
            configured.configure_ipu_system()


def test_a_model_in_the_scope_of_another_device_is_refused(data):
    with IPUStrategy("/device:CPU:0").scope():
        model = classifier()
    for call in all_calls(model, data):
        with raises(ValueError, "Sequential can only be used on an IPU device.\nReceived: a str"):
            call()
    assert int(model.optimizer.iterations) == 0


# Of `all_calls`, by position, those that use what each makes.
USERS = {
    "make_train_function": {0, 3},
    "make_test_function": {1, 4},
    "make_predict_function": {2, 5},
}


@pytest.mark.parametrize("maker", USERS)
@pytest.mark.parametrize("of", ["class", "instance"])
def test_overriding_what_makes_a_function_blocks_what_uses_it(strategy, data, maker, of):
    def own(self, force=False):
        raise AssertionError("is not called")

    kind = type("Own", (keras.Sequential,), {maker: own} if of == "class" else {})
    with strategy.scope():
        model = kind([keras.Input([6]), keras.layers.Dense(1)], name="mine")
    model.compile("sgd", "mse", jit_compile=False)
    if of == "instance":
        setattr(model, maker, own.__get__(model))
    x, y = data[0][:8], data[1][:8]
    message = (
        f"The function `{maker}` for the model mine has been overridden. This is not supported "
        "when using Keras within an IPUStrategy.\nThe strategy makes the function itself: override "
        f"the step instead, `{maker.removeprefix('make_').removesuffix('_function')}_step`."
    )
    for position, call in enumerate(all_calls(model, (x, y))):
        if position in USERS[maker]:
            with raises(RuntimeError, message):
                call()
        else:
            call()
    iterations = int(model.optimizer.iterations)
    for validation in ({"validation_data": (x, y)}, {"validation_split": 0.5}):
        if maker == "make_test_function":
            with raises(RuntimeError, message):
                model.fit(x, y, batch_size=4, verbose=0, **validation)
    assert int(model.optimizer.iterations) == iterations


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


def test_models_in_graphs_of_sessions(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones((2, 2), "float32")
    for run in (lambda x: model.predict(x, batch_size=2), lambda x: model.fit(x, x[:, :1], 2)):
        with (
            tf.Graph().as_default(),
            pytest.raises(RuntimeError, match="Models of Keras 3 run where TensorFlow executes"),
        ):
            run(x)
    assert model.predict(x, batch_size=2, verbose=0).shape == (2, 1)


def test_models_of_the_old_keras(strategy):
    from tensorflow.python import keras as old

    message = "Models of `tensorflow.python.keras`, the old Keras that TensorFlow keeps for itself"
    for make in (old.Sequential, old.Model, lambda: old.Model(name="subclassed")):
        with strategy.scope(), raises(RuntimeError, message):
            make()
    assert old.Sequential().layers == []


class OwnLoss(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean(y_pred**2)


def model_of(strategy, cls, loss):
    with strategy.scope():
        inputs = keras.Input((2,))
        model = cls(inputs, keras.layers.Dense(1)(inputs))
        model.compile("sgd", loss)
    return model


def test_data_without_labels(strategy):
    x = np.ones((2, 2), "float32")
    model = model_of(strategy, keras.Model, "mse")
    for run in (
        lambda: model.fit(x, batch_size=2),
        lambda: model.evaluate(x, batch_size=2),
        lambda: model.train_on_batch(x),
    ):
        with raises(ValueError, "Data without labels cannot train or test a model whose loss"):
            run()
    assert model.predict(x, batch_size=2, verbose=0).shape == (2, 1)
    assert model_of(strategy, OwnLoss, None).evaluate(x, batch_size=2, verbose=0) >= 0
