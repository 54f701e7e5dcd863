import doctest
import inspect
import re

import keras
import pytest
import tensorflow as tf
from comparison import LOSS, assert_same, devices_of
from plain_training import train

import ipu_keras
from ipu_keras.keras import PipelineStage, Sequential
from ipu_keras.keras.legacy import sequential


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


def test_the_example(no_system):
    assert doctest.testmod(sequential).failed == 0


def layers():
    return [keras.layers.Dense(5, "tanh"), keras.layers.Dense(3)]


def compiled(model, optimizer="sgd"):
    model.compile(optimizer, LOSS, metrics=["accuracy"], jit_compile=False)
    return model


@pytest.mark.parametrize(("num_ipus", "count"), [(1, 4), (2, 2)])
def test_training_evaluation_and_prediction(strategies, data, num_ipus, count):
    stock = keras.Sequential([keras.Input([6]), *layers()])
    with strategies[num_ipus].scope():
        optimizer = keras.optimizers.Adam(0.01)
        model = compiled(
            Sequential([keras.Input([6]), *layers()], gradient_accumulation_count=count), optimizer
        )
        model.set_weights(stock.get_weights())
        history = model.fit(*data, batch_size=4, epochs=2, shuffle=False, verbose=0)
        results = model.evaluate(*data, batch_size=8, verbose=0)
        outputs = model.predict(data[0], batch_size=8, verbose=0)
    train(
        stock,
        LOSS,
        keras.optimizers.Adam(0.01),
        *data,
        batch_size=4,
        batches_per_update=num_ipus * count,
        epochs=2,
    )
    assert_same(model.get_weights(), stock.get_weights())
    assert_same(outputs, stock.predict(data[0], verbose=0))
    assert history.params["steps"] == 16 // (num_ipus * count)
    if num_ipus == 1:  # else they are those of the last replica
        assert_same(results, compiled(stock).evaluate(*data, verbose=0))


def test_no_trainable_variables_before_a_run(strategies, data, capsys):
    message = (
        "Weights for model small have not yet been created. The list of trainable variables of "
        "Sequential can be had after `fit`, `evaluate` or `predict` has run."
    )
    with strategies[1].scope():
        for model in (
            Sequential(layers(), name="small"),
            Sequential([keras.Input([6]), *layers()], name="small"),
        ):
            compiled(model)
            model.summary()
            for name in ("trainable_variables", "trainable_weights"):
                with raises(ValueError, message):
                    getattr(model, name)
            model.predict(data[0], batch_size=8, verbose=0)
            assert len(model.trainable_variables) == len(model.trainable_weights) == 4
            assert devices_of(model.trainable_weights) == {"IPU:0"}
            model.summary()
    assert "Trainable params: 53" in capsys.readouterr().out


def test_a_run_that_fails_is_none(strategies, data):
    with strategies[1].scope():
        model = compiled(Sequential(layers()))
        with raises(ValueError, "`fit` of Sequential needs labels"):
            model.fit(data[0], batch_size=8, verbose=0)
        with raises(ValueError, "Weights for model "):
            _ = model.trainable_variables


def test_layers_can_be_added(strategies, data):
    with strategies[2].scope():
        model = Sequential(gradient_accumulation_count=2)
        with PipelineStage(0):  # of no effect
            for layer in layers():
                model.add(layer)
        model.pop()
        model.add(keras.layers.Dense(3))
        compiled(model).fit(*data, batch_size=4, verbose=0)
    assert int(model.optimizer.iterations) == 4


@pytest.mark.parametrize("mode", ["train", "predict"])
def test_costs(strategies, mode):
    with strategies[1].scope():
        model = compiled(Sequential(layers(), name="small"))
    specs = tf.TensorSpec([8, 6]), tf.TensorSpec([8], tf.int32)
    report = ipu_keras.profile(model, *specs[: 2 if mode == "train" else 1])
    assert report.name == f"small.{mode}"
    with raises(ValueError, "Sequential can only be called through the `fit`, `evaluate` or "):
        model(tf.zeros([8, 6]))


def test_refusals(strategies, data):
    message = "Sequential can only be used on an IPU device.\nCall `fit`, `evaluate` and `predict` "
    with strategies[1].scope():
        model = compiled(Sequential(layers()))
        with raises(ValueError, "Sequential can only be called through the `fit`, `evaluate` or "):
            model(data[0])
        with raises(NotImplementedError, "IPU Keras models do not support the `save` interface.\n"):
            model.save("model.keras")
        with raises(ValueError, "`gradient_accumulation_count` must be a positive integer, of the"):
            Sequential(layers(), gradient_accumulation_count=None)
        assert not hasattr(model, "set_gradient_accumulation_options")
    with raises(ValueError, message):
        model.evaluate(*data, batch_size=8, verbose=0)


def test_the_signature():
    assert str(inspect.signature(Sequential)) == (
        "(layers=None, *, gradient_accumulation_count: int = 1, "
        "gradient_accumulation_dtype=None, name: str | None = None)"
    )
