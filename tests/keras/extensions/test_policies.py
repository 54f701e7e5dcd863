"""Models whose layers ask for numbers that IPUs do not have."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

REMEDIES = {
    "bfloat16": "IPUs have no bfloat16 arithmetic: their floating point numbers of 16 bits are "
    "float16. Use the policy 'mixed_float16' or 'float16', or 'float32' for the range of bfloat16",
    "float64": "IPUs compute in float32 and float16. Use the policy 'float32'",
}


def raises(message):
    return pytest.raises(TypeError, match=f"^{re.escape(message)}")


def all_calls(model, data):
    x, y = data
    return [
        lambda: model.fit(x, y, batch_size=8, verbose=0),
        lambda: model.evaluate(x, y, batch_size=8, verbose=0),
        lambda: model.predict(x, batch_size=8, verbose=0),
        lambda: model.train_on_batch(x, y),
        lambda: model.test_on_batch(x, y),
        lambda: model.predict_on_batch(x),
    ]


@pytest.fixture
def policy():
    """Sets the global policy, for one test."""
    before = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(before)


def nested(strategy, dtype):
    with strategy.scope():
        inner = keras.Sequential([keras.layers.Dense(4, dtype=dtype, name="inside")])
        model = keras.Sequential([keras.Input([6]), inner, keras.layers.Dense(3)])
        model.compile("sgd", "mse", jit_compile=False)
    return model


@pytest.mark.parametrize(
    ("asked", "dtype"),
    [
        ("bfloat16", "bfloat16"),
        ("mixed_bfloat16", "bfloat16"),
        (keras.dtype_policies.DTypePolicy("mixed_bfloat16"), "bfloat16"),
        ("float64", "float64"),
    ],
)
def test_a_layer(strategy, data, asked, dtype):
    model = nested(strategy, asked)
    name = getattr(asked, "name", asked)
    message = (
        f"Unsupported data type for layer 'inside': {dtype}. {REMEDIES[dtype]}: as `dtype` of the "
        "layer, or for all that are made afterwards with `keras.config.set_dtype_policy`. "
        f"Received: Dense with the policy {name!r}"
    )
    built = model.built
    for call in all_calls(model, data):
        with raises(message):
            call()
    assert model.built == built
    assert int(model.optimizer.iterations) == 0


@pytest.mark.parametrize("name", ["bfloat16", "mixed_bfloat16", "float64"])
def test_the_global_policy(strategy, data, policy, name):
    policy(name)
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(3)], name="mine")
        model.compile("sgd", "mse", jit_compile=False)
    for call in all_calls(model, data):
        with raises(f"Unsupported data type for layer 'mine': {name.removeprefix('mixed_')}. "):
            call()


@pytest.mark.parametrize("name", ["float16", "mixed_float16", "float32"])
def test_policies_that_can_be(strategy, data, name):
    nested(strategy, name).predict(data[0], batch_size=8, verbose=0)


def bfloat16_loss(y, predicted):
    return keras.ops.mean(keras.ops.cast(predicted, "bfloat16"))


def in_layer(x):
    return tf.cast(tf.cast(x, tf.bfloat16), tf.float32)


@pytest.mark.parametrize("what", ["layer", "loss", "accumulators"])
def test_computing_in_bfloat16_whatever_the_policies(strategy, data, what):
    function = in_layer if what == "layer" else tf.identity
    with strategy.scope():
        layers = [keras.layers.Lambda(function, name="mine"), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input([6]), *layers])
        loss = bfloat16_loss if what == "loss" else "mse"
        model.compile("sgd", loss, jit_compile=False, steps_per_execution=2)
    if what == "accumulators":
        model.set_gradient_accumulation_options(2, dtype="bfloat16")
    before = model.get_weights()
    message = "Unsupported data type for operation: bfloat16\nIPUs have no bfloat16: their floating"
    with raises(message) as raised:
        model.fit(*data, batch_size=8, verbose=0)
    said = "".join(raised.value.__notes__)
    assert ("mine" in said) == (what == "layer")
    for weight, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, expected)
