"""Halves overflow as on an IPU wherever a program comes from; options say how."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from configured_ipus import configured
from in_sessions import compiled, opened

from ipu_keras import loops
from ipu_keras.ops.cross_replica_ops import cross_replica_sum

pytestmark = pytest.mark.usefixtures("reset_afterwards")

LARGEST = 65504.0


def momentum(rate):
    return tf.compat.v1.train.MomentumOptimizer(rate, 0.0)


def halves(*values):
    return np.float16(values)


@pytest.mark.parametrize("jit_compile", [None, True])
@pytest.mark.parametrize(("num_ipus", "nanoo"), [(1, False), (1, True), (2, False)])
def test_functions(num_ipus, nanoo, jit_compile):
    strategy = configured(num_ipus, nanoo=nanoo)

    @tf.function(jit_compile=jit_compile)
    def function(x, *, y):
        return {"product": x * x, "quotient": x / y}, cross_replica_sum(x)

    x = tf.constant(halves(1e4, 4e4, 2))
    for _ in range(2):
        found, total = strategy.run(function, [x], {"y": tf.constant(halves(0, 4, 4))})
        overflow = np.nan if nanoo else LARGEST
        np.testing.assert_array_equal(found["product"], halves(overflow, overflow, 4))
        np.testing.assert_array_equal(found["quotient"], halves(np.nan, 1e4, 0.5))
        largest = 4e4 if num_ipus == 1 else LARGEST
        np.testing.assert_array_equal(total, halves(1e4 * num_ipus, largest, 2 * num_ipus))


@pytest.mark.parametrize("num_ipus", [1, 2])
@pytest.mark.parametrize("jit_compile", ["auto", True])
@pytest.mark.parametrize("nanoo", [False, True])
def test_models(num_ipus, jit_compile, nanoo):
    """One weight of 1, whose gradient for inputs of 300 and 400, labels of 0, overflows."""
    strategy = configured(num_ipus, nanoo=nanoo)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input([1], dtype="float16"),
                keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", dtype="float16"),
            ]
        )
        model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=jit_compile)
    x = halves(300, 400, 300, 400).reshape(4, 1)
    outputs = model.predict(x * halves(100), batch_size=1, verbose=0)
    np.testing.assert_array_equal(outputs, x * halves(100))
    model.fit(x, np.zeros_like(x), batch_size=4 // num_ipus, shuffle=False, verbose=0)
    assert model.get_weights()[0].dtype == np.float16
    gradient = 1.0 - np.float32(model.get_weights()[0].item())
    np.testing.assert_array_equal(np.float16(gradient), halves(np.nan if nanoo else LARGEST)[0])


@pytest.mark.parametrize("nanoo", [False, True])
def test_sessions(nanoo):
    """What is configured after `compile`, and before a session runs, counts."""
    configured()
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float16, [2])

        def net(x):
            return x * x, loops.repeat(2, lambda y: y * np.float16(100), [x])

        product, repeated = compiled(net, [x])
        configured(nanoo=nanoo)
        found = opened().run([product, repeated], {x: halves(1e4, 5)})
    overflow = np.nan if nanoo else LARGEST
    np.testing.assert_array_equal(found, [halves(overflow, 25), halves(overflow, 5e4)])


@pytest.mark.parametrize("num_ipus", [1, 2])
@pytest.mark.parametrize("is_model", [False, True])
def test_what_is_configured_after_the_first_run(is_model, num_ipus):
    """Functions and models compute, and stop, as is configured when they run."""
    strategy = configured(num_ipus)
    x = np.full([2, 1], 300, np.float16)
    if is_model:
        with strategy.scope():
            square = keras.layers.Lambda(tf.square, dtype="float16")
            model = keras.Sequential([keras.Input([1], dtype="float16"), square])
            model.compile()

    @tf.function
    def function(x):
        return x * x + cross_replica_sum(tf.zeros_like(x))

    found = []
    for options in ({}, {"nanoo": True}, {"oflo": True}, {}):
        configured(num_ipus, **options)
        try:
            if is_model:
                results = model.predict(x, batch_size=1, verbose=0)
            else:
                results = np.asarray(strategy.run(function, [tf.constant(x)]))
            found.append(results[1, 0])
        except tf.errors.InternalError:
            found.append("stopped")
    np.testing.assert_equal(found, [LARGEST, np.nan, "stopped", LARGEST])


def test_what_is_configured_after_a_session_ran():
    configured()
    with tf.Graph().as_default():
        results = compiled(lambda: tf.constant(halves(300)) * 300)
        session = opened()
        np.testing.assert_array_equal(session.run(results), [halves(LARGEST)])
        configured(nanoo=True)
        message = "how it computes with halves, is settled when .* Received: nanoo, for 'lambda', "
        with pytest.raises(tf.errors.FailedPreconditionError, match=message):
            session.run(results)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_scaled_loss_sees_an_overflow(dynamic):
    """A gradient that overflows is no update, and halves the scale, as in stock Keras."""
    strategy = configured()
    with strategy.scope():
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, dtype="mixed_float16")])
        optimizer = keras.optimizers.SGD(0.0)
        if dynamic:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**15)
        model.compile(optimizer, "mse", auto_scale_loss=False)
    x = np.full((2, 1), 1e4, np.float32)
    model.fit(x, -x, batch_size=2, verbose=0)
    if dynamic:
        assert float(optimizer.dynamic_scale) == 2.0**14
    assert np.isfinite(model.get_weights()[0]).all()


@pytest.mark.parametrize(
    ("make", "jit"), [(tf.compat.v1.train.GradientDescentOptimizer, False), (momentum, True)]
)
def test_optimizers_of_tensorflow_1(monkeypatch, make, jit):
    """The weight of -6e4 moves by -100 times 100, twice, and cannot; where it can it does."""
    configured()
    monkeypatch.setenv("IPU_KERAS_FIRST_STEPS", "0" if jit else "64")
    with tf.Graph().as_default():

        def step():
            weight = tf.compat.v1.get_variable(
                "weight", initializer=halves(-6e4, 100), use_resource=True
            )
            return make(100.0).minimize(100 * tf.reduce_sum(weight))

        repeated = compiled(lambda: loops.repeat(2, step), [])
        session = opened()
        session.run(repeated)
        [weight] = tf.compat.v1.global_variables()[:1]
        np.testing.assert_array_equal(session.run(weight), halves(-LARGEST, -19904))
