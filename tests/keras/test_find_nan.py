"""`find_nan` and its callback name what makes NaN or an infinity, and leave all as it is."""

import doctest
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from configured_ipus import configured

import ipu_keras

pytestmark = pytest.mark.usefixtures("reset_afterwards")


@pytest.fixture
def strategy():
    return configured()


class Root(keras.layers.Layer):
    def call(self, x):
        return tf.sqrt(x)


class Masked(keras.layers.Layer):
    def call(self, x):
        return tf.where(x > 0, tf.math.log(tf.stop_gradient(x)), x)


class Dividing(keras.optimizers.SGD):
    """Divides by the gradient, which is 0 where the inputs are."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient / gradient, variable, learning_rate)


def made(strategy, *layers, optimizer=None, dtype="float32", **options):
    with strategy.scope():
        dense = keras.layers.Dense(
            1, kernel_initializer="ones", use_bias=False, name="dense", dtype=dtype
        )
        model = keras.Sequential([keras.Input([1], dtype=dtype), dense, *layers], name="m")
        model.compile(optimizer or keras.optimizers.SGD(1e-3, momentum=0.5), "mse", **options)
    return model


def batch(x, y, dtype="float32"):
    return np.full([2, 1], x, dtype), np.full([2, 1], y, dtype)


def values(model):
    return [v.numpy() for v in [*model.variables, *model.optimizer.variables]]


def check_unchanged(before, model):
    for old, new in zip(before, values(model), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("layers", "optimizer", "data", "part", "kind", "layer", "operation"),
    [
        ([Root], None, (-1, 1), "forward", "invalid operation (INV)", "m/root", "m/root/Sqrt"),
        (
            [Root],
            None,
            (0, 1),
            "gradient",
            "division by zero (DIV0)",
            "m/root",
            "gradient_tape/m/root/SqrtGrad",
        ),
        (
            [],
            Dividing,
            (0, 0),
            "optimizer",
            "invalid operation (INV)",
            "dividing",
            "dividing/truediv",
        ),
        (
            [],
            None,
            (1e30, 0),
            "forward",
            "overflow (OFLO)",
            "compile_loss/mse",
            "compile_loss/mse/Square",
        ),
        ([Root], None, (1, 1), "", "", "", ""),
        ([Masked], None, (0, 1), "", "", "", ""),
    ],
)
def test_where_it_is(strategy, layers, optimizer, data, part, kind, layer, operation):
    made_optimizer = optimizer and optimizer(1e-3, name="dividing")
    layers = [one(name=one.__name__.lower()) for one in layers]
    model = made(strategy, *layers, optimizer=made_optimizer)
    model.train_on_batch(*batch(1, 3))
    before = values(model)
    found = ipu_keras.find_nan(model, batch(*data))
    check_unchanged(before, model)
    assert (found.part, found.kind, found.layer, found.operation) == (part, kind, layer, operation)
    assert bool(found) == bool(part)
    text = f"{kind} in the operation {operation!r} ("
    assert str(found).startswith(text if part else "The results of 'm.train', and all that it")
    assert ("of the optimizer" in str(found)) == (part == "optimizer")
    # The model goes on from where it was.
    assert np.isfinite(model.train_on_batch(*batch(1, 3)))


def test_before_the_model_ran(strategy):
    model = made(strategy, Root(name="root"))
    assert ipu_keras.find_nan(model, batch(-1, 1)).layer == "m/root"
    assert not ipu_keras.find_nan(model, batch(-1, 1)[0] + 2)
    assert ipu_keras.find_nan(model, batch(-1, 1)[0]).operation == "m/root/Sqrt"
    assert ipu_keras.find_nan(model, batch(-1, 1), mode="test").operation == "m/root/Sqrt"
    assert int(model.optimizer.iterations) == 0


@pytest.mark.parametrize("nanoo", [False, True])
def test_halves_that_overflow(nanoo):
    model = made(configured(nanoo=nanoo), dtype="float16")
    # The kernel's gradient is 300 * 300, which is 65504 on an IPU, and NaN with nanoo.
    found = ipu_keras.find_nan(model, batch(300, 0, "float16"), mode="train")
    both = "invalid operation (INV) and overflow (OFLO)"
    assert (found.part, found.kind) == (("gradient", both) if nanoo else ("", ""))


def test_accumulation_and_replicas():
    model = made(configured(2), Root(name="root"))
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
    found = ipu_keras.find_nan(model, batch(0, 1))
    assert (found.part, found.step, found.replica) == ("gradient", 0, 0)
    assert "in step 0 of replica 0 of the execution's 2" in str(found)
    np.testing.assert_array_equal(model.get_layer("dense").kernel.numpy(), [[1]])


def test_pipelines():
    strategy = configured(2)
    with strategy.scope():
        x = inputs = keras.Input([1])
        with ipu_keras.keras.PipelineStage(0):
            x = keras.layers.Dense(1, kernel_initializer="ones")(x)
        with ipu_keras.keras.PipelineStage(1):
            x = Root(name="root")(x)
        model = keras.Model(inputs, x, name="staged")
        model.compile("sgd", "mse")
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    found = ipu_keras.find_nan(model, batch(0, 1))
    assert (found.part, found.layer, found.step) == ("gradient", "staged/root", 0)


def test_what_is_not_finite_before(strategy):
    model = made(strategy)
    x, y = batch(1, 3)
    y[1, 0] = np.nan
    found = ipu_keras.find_nan(model, (x, y))
    assert (found.part, found.operation) == ("data", "data[1]")
    assert str(found) == "data[1] has NaN before the step, first at [1, 0]."
    model.get_layer("dense").kernel.assign([[np.inf]])
    found = ipu_keras.find_nan(model, batch(1, 3))
    assert (found.part, found.operation) == ("weights", "m/dense/kernel")
    assert str(found).startswith(
        "The variable 'm/dense/kernel' has an infinity before the step: an "
    )


def test_metrics_from_before_do_not_matter(strategy):
    model = made(strategy)
    model.metrics[0].total.assign(np.nan)
    assert not ipu_keras.find_nan(model, batch(1, 3))
    assert np.isnan(model.metrics[0].total.numpy())


def test_what_is_refused(strategy):
    plain = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)], name="plain")
    with pytest.raises(ValueError, match=r"^find_nan is for models that run as programs .*plain"):
        ipu_keras.find_nan(plain, batch(1, 1))
    model = made(strategy)
    with pytest.raises(ValueError, match=r"one of train, test, predict. Received: mode='fit'"):
        ipu_keras.find_nan(model, batch(1, 1), mode="fit")
    with strategy.scope():
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)], name="bare")
    message = r"^To train a model it must be compiled.*mode='train' for 'bare'"
    with pytest.raises(ValueError, match=message):
        ipu_keras.find_nan(model, batch(1, 1), mode="train")
    with pytest.raises(ValueError, match=r"^FindNan is for models that run as programs .*plain"):
        ipu_keras.FindNan().set_model(plain)
    model = made(strategy)
    model.set_asynchronous_callbacks(True)
    with pytest.raises(ValueError, match=r"^FindNan repeats .*Received: 'm', whose callbacks"):
        ipu_keras.FindNan().set_model(model)


def test_callback(strategy, capsys):
    model = made(strategy, Root(name="root"), steps_per_execution=4)
    x = np.ones([32, 1], "float32")
    found = ipu_keras.FindNan()
    model.fit(x, 3 * x, batch_size=2, shuffle=False, verbose=0, callbacks=[found])
    assert found.finding is None
    x[26:28] = -1  # step 13, which is step 1 of the fourth execution
    history = model.fit(
        x, 3 * x, batch_size=2, epochs=3, shuffle=False, verbose=0, callbacks=[found]
    )
    assert len(history.epoch) == 1
    assert (found.finding.part, found.finding.layer) == ("forward", "m/root")
    assert found.finding.step == 1
    assert f"The loss is not finite: {found.finding}\n" in capsys.readouterr().out
    # Variables are what the execution left.
    assert np.isnan(model.get_layer("dense").kernel.numpy()).all()
    model.fit(x, 3 * x, batch_size=2, shuffle=False, verbose=0, callbacks=[found])
    assert (found.finding.part, found.finding.operation) == ("weights", "m/dense/kernel")


def test_callback_does_not_outlive_fit(strategy):
    model = made(strategy)
    found = ipu_keras.FindNan()
    data = batch(1, 3)
    model.fit(*data, batch_size=2, verbose=0, callbacks=[found])
    assert model.train_function._kept is None
    model.fit(*data, batch_size=2, verbose=0)
    assert model.train_function._kept is None


def test_doctests():
    configured(1)
    found = doctest.testmod(sys.modules["ipu_keras.keras.find_nan"])
    assert (found.failed, found.attempted > 0) == (0, True)
