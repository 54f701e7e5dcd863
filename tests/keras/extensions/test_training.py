"""Accumulated gradients against plain TensorFlow, and by hand."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import LOSS, assert_same
from plain_training import train
from small_models import dense, normalized, recurrent

from ipu_keras.host.plan import HostExecution
from ipu_keras.settings.gradient_accumulation import GradientAccumulationReductionMethod as Method


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


def with_dropout():
    return keras.Sequential(
        [
            keras.Input([6]),
            keras.layers.Dense(8),
            keras.layers.Dropout(0.5, seed=3),
            keras.layers.Dense(3),
        ]
    )


def shared():
    """A layer that is called twice, and a weight with no gradient."""
    inputs = keras.Input([6])
    layer = keras.layers.Dense(6, "tanh")
    return keras.Model(inputs, keras.layers.Dense(3)(layer(layer(inputs))))


MODELS = (dense, normalized, recurrent, with_dropout, shared)


def compiled_twins(twins, build, optimizer="sgd", **options):
    stock, model = twins(build)
    model.compile(optimizer, LOSS, metrics=["accuracy"], **options)
    return stock, model


@pytest.mark.parametrize("build", MODELS)
@pytest.mark.parametrize("steps_per_execution", [4, 8])
def test_weights_are_those_of_plain_tensorflow(twins, data, build, steps_per_execution):
    stock, model = compiled_twins(
        twins,
        build,
        keras.optimizers.SGD(0.1, momentum=0.9),
        steps_per_execution=steps_per_execution,
    )
    model.set_gradient_accumulation_options(4)
    history = model.fit(*data, batch_size=8, epochs=3, shuffle=False, verbose=0)
    losses = train(
        stock,
        LOSS,
        keras.optimizers.SGD(0.1, momentum=0.9),
        *data,
        batch_size=8,
        batches_per_update=4,
        epochs=3,
    )
    assert_same(model.get_weights(), stock.get_weights())
    by_epoch = np.reshape(losses, (3, -1)).mean(axis=1)
    np.testing.assert_allclose(history.history["loss"], by_epoch, rtol=1e-5)


@pytest.mark.parametrize(("method", "scale"), [("mean", 0.25), (Method.RUNNING_MEAN, 0.25)])
def test_means_of_gradients(twins, data, method, scale):
    optimizer = keras.optimizers.Adam(0.01)
    stock, model = compiled_twins(twins, dense, optimizer, steps_per_execution=8)
    model.set_gradient_accumulation_options(4, gradient_accumulation_reduction_method=method)
    model.fit(*data, batch_size=8, epochs=3, shuffle=False, verbose=0)
    train(
        stock,
        LOSS,
        keras.optimizers.Adam(0.01),
        *data,
        batch_size=8,
        batches_per_update=4,
        scale=scale,
        epochs=3,
    )
    assert_same(model.get_weights(), stock.get_weights())


@pytest.mark.parametrize("execution", ["compiled", "not compiled"])
@pytest.mark.parametrize("build", [dense, with_dropout, normalized])
def test_each_way_to_run_gives_the_same_weights(twins, data, build, execution):
    stock, model = compiled_twins(
        twins, build, steps_per_execution=8, jit_compile=execution == "compiled"
    )
    model.set_gradient_accumulation_options(4)
    model.fit(*data, batch_size=8, epochs=2, shuffle=False, verbose=0)
    train(
        stock,
        LOSS,
        keras.optimizers.SGD(0.01),
        *data,
        batch_size=8,
        batches_per_update=4,
        epochs=2,
    )
    assert_same(model.get_weights(), stock.get_weights())
    (executable,) = model.train_function.executables
    assert executable.host.execution.is_compiled == (execution == "compiled")


def linear(strategy, **options):
    """y = w * x from w = 0; the gradient of the squared error is -2 * x * (y - w * x)."""
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input([1]), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
        )
    model.compile(keras.optimizers.SGD(0.5), "mse", **options)
    return model


@pytest.mark.parametrize(
    ("method", "weight"),
    # The gradients at w = 0 are -2 * 1 * 1 = -2 and -2 * 2 * 3 = -12.
    [("sum", 7.0), ("mean", 3.5), ("running_mean", 3.5)],
)
def test_golden(strategy, method, weight):
    model = linear(strategy, steps_per_execution=2)
    model.set_gradient_accumulation_options(2, gradient_accumulation_reduction_method=method)
    model.fit(np.float32([[1], [2]]), np.float32([[1], [3]]), batch_size=1, verbose=0)
    assert model.get_weights()[0].item() == weight


@pytest.mark.parametrize(
    ("dtype", "weight"),
    # The gradients are -2 and -0.0008; numbers of float16 beyond 2 are 0.00195 apart.
    [(None, 1.0004), (tf.float16, 1.0), (lambda variable: tf.float16, 1.0), ("float32", 1.0004)],
)
def test_the_dtype_of_accumulators(strategy, dtype, weight):
    model = linear(strategy, steps_per_execution=2)
    model.set_gradient_accumulation_options(2, dtype=dtype)
    x, y = np.float32([[1], [1]]), np.float32([[1], [0.0004]])
    model.fit(x, y, batch_size=1, shuffle=False, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0].item(), weight, rtol=3e-5)


def test_schedules_step_once_per_update(twins, data):
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [0.1, 0.01, 0.0])
    stock, model = compiled_twins(
        twins, dense, keras.optimizers.SGD(schedule), steps_per_execution=8
    )
    model.set_gradient_accumulation_options(2)
    model.fit(*data, batch_size=8, shuffle=False, verbose=0)
    train(stock, LOSS, keras.optimizers.SGD(schedule), *data, batch_size=8, batches_per_update=2)
    assert int(model.optimizer.iterations) == 4
    assert_same(model.get_weights(), stock.get_weights())


def test_moving_averages_follow_every_batch(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input([1]), keras.layers.BatchNormalization(momentum=0.5)])
    model.compile("sgd", "mse", steps_per_execution=2)
    model.set_gradient_accumulation_options(2)
    model.fit(
        np.float32([[0], [2], [2], [6]]), np.zeros((4, 1)), batch_size=2, verbose=0, shuffle=False
    )
    # Means 1 and 4, variances 1 and 4; from 0 and 1.
    assert model.layers[0].moving_mean.numpy().item() == 0.5 * (0.5 * 1) + 0.5 * 4
    assert model.layers[0].moving_variance.numpy().item() == 0.5 * (0.5 + 0.5 * 1) + 0.5 * 4


def test_scaled_losses(twins, data):
    """Gradients are accumulated as they are scaled; the update takes the scale out."""
    keras.config.set_dtype_policy("mixed_float16")
    try:
        stock, model = compiled_twins(twins, dense, steps_per_execution=8)
        model.set_gradient_accumulation_options(4, dtype=tf.float32)
    finally:
        keras.config.set_dtype_policy("float32")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    model.fit(*data, batch_size=8, epochs=2, shuffle=False, verbose=0)
    train(
        stock,
        LOSS,
        keras.optimizers.SGD(0.01),
        *data,
        batch_size=8,
        batches_per_update=4,
        epochs=2,
    )
    assert_same(model.get_weights(), stock.get_weights(), tolerance=2e-3)


class Steps(keras.callbacks.Callback):
    """The step and the loss of each call for a batch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append((batch, round(float(logs["loss"]), 5)))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_callbacks(twins, data, asynchronous):
    _, model = compiled_twins(twins, dense, steps_per_execution=4)
    model.set_gradient_accumulation_options(2)
    model.set_asynchronous_callbacks(asynchronous)
    steps = Steps()
    model.fit(*data, batch_size=8, callbacks=[steps], shuffle=False, verbose=0)
    expected = range(8) if asynchronous else (3, 7)
    assert [batch for batch, _ in steps.seen] == list(expected)
    assert steps.seen[-1][1] == round(model.history.history["loss"][0], 5)


def test_no_effect_on_evaluation_and_prediction(twins, data):
    stock, model = compiled_twins(twins, dense, steps_per_execution=4)
    stock.compile(loss=LOSS, metrics=["accuracy"])
    model.set_gradient_accumulation_options(4)
    assert_same(
        model.evaluate(*data, batch_size=8, verbose=0),
        stock.evaluate(*data, batch_size=8, verbose=0),
    )
    x, _ = data
    assert_same(
        model.predict(x, batch_size=8, verbose=0), stock.predict(x, batch_size=8, verbose=0)
    )


def test_options_may_change_between_runs(twins, data):
    _, model = compiled_twins(twins, dense, steps_per_execution=4)
    for count, updates in ((1, 8), (4, 2), (2, 4), (None, 8)):
        before = int(model.optimizer.iterations)
        model.set_gradient_accumulation_options(count)
        model.fit(*data, batch_size=8, verbose=0)
        assert int(model.optimizer.iterations) - before == updates


# NumPy 2 has a keyword that TensorFlow's __array__ does not know yet; Keras 3.12 makes it warn.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_a_model_without_weights_to_train(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input([2]), keras.layers.Rescaling(2.0)])
    model.compile("sgd", "mse", steps_per_execution=2)
    model.set_gradient_accumulation_options(2)
    with pytest.warns(UserWarning, match="does not have any trainable weights"):
        history = model.fit(np.ones((4, 2)), np.zeros((4, 2)), batch_size=2, verbose=0)
    assert history.history["loss"] == [4.0]


def test_single_batches_are_refused(twins, data):
    _, model = compiled_twins(twins, dense)
    model.set_gradient_accumulation_options(2)
    x, y = data
    before = model.get_weights()
    with raises(
        ValueError,
        "The function 'train' of this model needs batches for 1 replicas and 2 accumulated "
        "gradients at once. Received: 1. Call `fit`",
    ):
        model.train_on_batch(x[:8], y[:8])
    assert_same(model.get_weights(), before, tolerance=0)


def test_the_host_computes_gradients_at_the_same_time(twins, data):
    """What only the metrics need is no reason to take turns."""
    _, model = compiled_twins(twins, normalized, steps_per_execution=8)
    model.set_gradient_accumulation_options(8)
    model.fit(*data, batch_size=8, verbose=0)
    (executable,) = model.train_function.executables
    assert executable.host.execution is HostExecution.PARALLEL_LOOP
