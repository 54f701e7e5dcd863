"""What arithmetic of an IPU stops at stops executions, and errors say where it was."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from configured_ipus import configured

pytestmark = pytest.mark.usefixtures("reset_afterwards")


STEPS = 32
PLANTED = 17


class Root(keras.layers.Layer):
    def call(self, x):
        return tf.sqrt(x)


class Dividing(keras.optimizers.SGD):
    """Divides by the gradient, which is 0 where the inputs are."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient / gradient, variable, learning_rate)


def made(strategy, layer, optimizer=None, dtype="float32", replicas=1, **options):
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input([1], dtype=dtype),
                keras.layers.Dense(1, kernel_initializer="ones", use_bias=False, dtype=dtype),
                *([layer] if layer else []),
            ]
        )
        optimizer = optimizer or keras.optimizers.SGD(1e-3, momentum=0.5)
        options = {"steps_per_execution": STEPS, **options}
        model.compile(optimizer, "mse", **options)
    return model


def data(planted, replica=0, replicas=1, dtype="float32"):
    x = np.ones([2 * STEPS * replicas, 1], dtype)
    batch = PLANTED * replicas + replica
    bad = x.copy()
    bad[2 * batch : 2 * batch + 2] = planted
    return x, bad


STOPS = [
    (Root, None, -1.0, "INV", ["(Sqrt) of", "/root'"]),
    (Root, None, 0.0, "DIV0", ["(SqrtGrad) in the gradient of", "/root'"]),
    (None, Dividing, 0.0, "INV", ["(RealDiv)"]),
    (None, None, 1e30, "OFLO", ["mse/Square"]),
]


# Each two of what stops, replicas and ways to compile meet.
@pytest.mark.parametrize(
    ("layer", "optimizer", "planted", "kind", "said", "replicas", "jit_compile"),
    [
        (*stop, replicas, ("auto", True)[(row + replicas) % 2])
        for row, stop in enumerate(STOPS)
        for replicas in (1, 2)
    ],
)
def test_fit(layer, optimizer, planted, kind, said, replicas, jit_compile):
    strategy = configured(replicas, inv=True, div0=True, oflo=True)
    optimizer = optimizer and optimizer(1e-3)
    model = made(
        strategy, layer and layer(name=layer.__name__.lower()), optimizer, jit_compile=jit_compile
    )
    x, bad = data(planted, replicas - 1, replicas)
    if optimizer is not None:
        bad[2 * PLANTED * replicas : 2 * (PLANTED + 1) * replicas] = planted
    y = 3 * x
    model.fit(x, y, batch_size=2, shuffle=False, verbose=0)
    before = [v.numpy() for v in model.variables + model.optimizer.variables]
    with pytest.raises(tf.errors.InternalError, match="Tiles in excepted state") as error:
        model.fit(bad, y, batch_size=2, shuffle=False, verbose=0)
    after = [v.numpy() for v in model.variables + model.optimizer.variables]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    message = str(error.value)
    assert f"({kind})" in message
    for part in said:
        assert part in message
    assert f"in step {PLANTED} of" in message
    assert ("of replica 1" in message) == (replicas == 2 and optimizer is None)
    history = model.fit(x, y, batch_size=2, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize("jit_compile", ["auto", True])
def test_fit_by_a_pipeline(jit_compile):
    """The root of zero is in the second stage; the weight update comes after eight batches."""
    strategy = configured(4, inv=True, div0=True, oflo=True)
    model = made(strategy, Root(name="root"), jit_compile=jit_compile)
    model.set_pipeline_stage_assignment([0, 1])
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
    x, bad = data(0.0, replica=1, replicas=2)
    model.fit(x, x, batch_size=2, shuffle=False, verbose=0)
    before = [v.numpy() for v in model.variables + model.optimizer.variables]
    message = r"\(DIV0\) in the operation .* \(SqrtGrad\) in the gradient of '.*/root', in "
    with pytest.raises(tf.errors.InternalError, match=message) as error:
        model.fit(bad, x, batch_size=2, shuffle=False, verbose=0)
    assert f"step {PLANTED} of replica 1 of the execution's {STEPS} " in str(error.value)
    after = [v.numpy() for v in model.variables + model.optimizer.variables]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    history = model.fit(x, x, batch_size=2, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize("place", ["environment", "configuration"])
def test_engine_option(monkeypatch, place):
    strategy = configured()
    flags = {"debug.floatPointOpException": "true"}
    if place == "environment":
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(flags))
    else:
        strategy = configured(compilation_poplar_options=flags)
    model = made(strategy, Root(name="root"), steps_per_execution=1)
    x = np.full([2, 1], -1, "float32")
    with pytest.raises(tf.errors.InternalError, match=r"\(INV\).*\(Sqrt\) of 'sequential.*/root'"):
        model.train_on_batch(x, x)
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"debug.floatPointOpException": "false"}')
    model = made(strategy, Root(name="root"), steps_per_execution=1)
    assert np.isnan(model.train_on_batch(x, x))


def test_overflow_as_a_variable_is_written():
    """The optimizer's update is finite, and so was the variable."""
    strategy = configured(inv=True, div0=True, oflo=True)
    with strategy.scope():
        layer = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)
        model = keras.Sequential([keras.Input([1]), layer])
        model.compile(keras.optimizers.SGD(3e38), lambda y, p: tf.reduce_sum(p))
    layer.kernel.assign([[-3e38]])
    x = np.ones([1, 1], "float32")
    with pytest.raises(tf.errors.InternalError, match=r"\(OFLO\) in .* \(AssignSubVariableOp\)"):
        model.train_on_batch(x, x)
    assert layer.kernel.numpy() == np.float32(-3e38)


class Masked(keras.layers.Layer):
    """The root of a negative number is masked, so that all results and variables are finite."""

    def call(self, x):
        return tf.where(x < 0.0, x, tf.sqrt(tf.stop_gradient(x)))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_is_masked(dtype, jit_compile):
    strategy = configured(inv=True, div0=True, oflo=True)
    layer = Masked(name="masked", dtype=dtype)
    model = made(strategy, layer, dtype=dtype, jit_compile=jit_compile)
    x, bad = data(-1.0, dtype=dtype)
    model.fit(x, x, batch_size=2, shuffle=False, verbose=0)
    before = [v.numpy() for v in model.variables + model.optimizer.variables]
    with pytest.raises(tf.errors.InternalError, match=r"\(INV\) .* \(Sqrt\) of '.*/masked'") as e:
        model.fit(bad, x, batch_size=2, shuffle=False, verbose=0)
    assert f"in step {PLANTED} of" in str(e.value)
    after = [v.numpy() for v in model.variables + model.optimizer.variables]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("number", "nanoo", "expected"),
    [(300, False, 65504), (300, True, "INV"), (np.inf, False, "INV"), (np.inf, True, "INV")],
)
def test_invalid_halves(number, nanoo, expected):
    """Their arithmetic makes NaN of infinities, and with `nanoo` of what is too large."""
    strategy = configured(inv=True, nanoo=nanoo)
    function = tf.function(tf.square)
    given = [tf.constant(number, tf.float16)]
    if expected == "INV":
        with pytest.raises(tf.errors.InternalError, match=r"by invalid operation \(INV\) in "):
            strategy.run(function, given)
    else:
        assert strategy.run(function, given) == expected


@pytest.mark.parametrize(
    ("compute", "given", "kind"),
    [
        (tf.matmul, [[[np.nan, 1], [np.inf, 1]], [[0.0], [1]]], "INV"),
        (tf.matmul, [[[np.nan, 1], [np.inf, 1]], [[2.0], [1]]], ""),
        (tf.divide, [[np.nan, 0], [1.0, 0]], "INV"),
        (tf.divide, [[np.nan, 1], [0.0, 1]], ""),
        (tf.divide, [[np.inf, 1], [1.0, 0]], "DIV0"),
        (tf.multiply, [[np.inf, 3e38], [1.0, 3e38]], "OFLO"),
        (tf.multiply, [[np.inf, 3e38], [1.0, 1]], ""),
    ],
)
def test_beside_what_was_not_finite_before(compute, given, kind):
    """Exceptions count where numbers make them, and not what becomes of NaN and infinities."""
    strategy = configured(inv=True, div0=True, oflo=True)
    function = tf.function(lambda *tensors: compute(*tensors), autograph=False)
    if kind:
        with pytest.raises(tf.errors.InternalError, match=rf"\({kind}\) in the operation "):
            strategy.run(function, [*map(tf.constant, given)])
    else:
        assert not np.isfinite(strategy.run(function, [*map(tf.constant, given)])).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_variables_that_were_not_finite_before(value):
    strategy = configured(inv=True, div0=True, oflo=True)
    with strategy.scope():
        variable = tf.Variable([value, 1.0])
    strategy.run(tf.function(variable.assign_add), [tf.constant([1.0, 1.0])])
    np.testing.assert_array_equal(variable, [value, 2.0])
