"""Stock Keras models under `tf.device`: nothing here knows about IPUs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

IPU = "/job:localhost/replica:0/task:0/device:IPU:0"

# Stock Keras saves a variable with np.array(), whose `copy` argument TensorFlow's
# __array__ does not know yet; it warns on the CPU as well.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture
def data():
    generator = np.random.default_rng(0)
    return generator.normal(size=[64, 8]).astype("float32"), generator.integers(0, 3, size=[64])


def build(**compile_options):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input([8]),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], **compile_options)
    return model


def train(model, data):
    history = model.fit(*data, batch_size=16, epochs=2, shuffle=False, verbose=0).history
    return history["loss"], model.evaluate(*data, verbose=0), model.predict(data[0], verbose=0)


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}, {"run_eagerly": True}])
def test_training_in_the_scope_equals_the_cpu(devices, data, options):
    expected = train(build(**options), data)
    assert devices[0].counters().num_function_calls == 0
    with tf.device("/device:IPU:0"):
        model = build(**options)
        actual = train(model, data)
    assert {v.value.device for v in model.variables} == {IPU}
    counters = devices[0].counters()
    if options.get("run_eagerly"):
        assert counters.num_operations > 1000
    else:
        assert counters.num_function_calls >= 8 + 2 + 2  # Batches to fit, evaluate, predict.
    for on_ipu, on_cpu in zip(actual, expected, strict=True):
        np.testing.assert_allclose(on_ipu, on_cpu, rtol=1e-6)


def test_training_outside_the_scope_follows_the_variables(devices, data):
    with tf.device("/device:IPU:0"):
        model = build()
    devices[0].reset_counters()
    model.fit(*data, batch_size=16, verbose=0)
    assert devices[0].counters().num_function_calls >= 4


def test_a_saved_model_loads_on_the_cpu_and_on_another_device(devices, data, tmp_path):
    path = str(tmp_path / "model.keras")
    with tf.device("/device:IPU:0"):
        model = build()
        model.fit(*data, batch_size=16, verbose=0)
    model.save(path)
    expected = model.predict(data[0], verbose=0)
    on_cpu = keras.models.load_model(path)
    with tf.device("/device:IPU:1"):
        on_other = keras.models.load_model(path)
    assert on_cpu.weights[0].value.device.endswith("/device:CPU:0")
    assert on_other.weights[0].value.device == devices[1].name
    np.testing.assert_array_equal(on_cpu.predict(data[0], verbose=0), expected)
    np.testing.assert_array_equal(on_other.predict(data[0], verbose=0), expected)
