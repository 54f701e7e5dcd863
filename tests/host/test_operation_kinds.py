"""Which numbers XLA draws otherwise than TensorFlow, and that steps with them leave it."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ipu_keras.host.operation_kinds import drawn_otherwise_by_xla
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM
from ipu_keras.tracing import graph_of

NUM_STEPS, BATCH_SIZE = 16, 16
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(NUM_STEPS * BATCH_SIZE, 5)).astype(np.float32)
Y = RANDOM.normal(size=(NUM_STEPS * BATCH_SIZE, 3)).astype(np.float32)


class Adds(layers.Layer):
    """Adds numbers that a function draws, in training."""

    def __init__(self, draws):
        super().__init__()
        self._draws = draws
        self.seed_generator = keras.random.SeedGenerator(3)

    def call(self, x, training=False):
        if not training:
            return x
        return x + 0.1 * tf.cast(self._draws(x, self.seed_generator), x.dtype)


def by_keras(name, *arguments, **options):
    """Draws of `keras.random`, for numbers of a fixed shape."""

    def draws(x, seed):
        return getattr(keras.random, name)((BATCH_SIZE, 7), *arguments, seed=seed, **options)

    return lambda: Adds(draws)


# By name: a layer, and whether XLA compiles its step.
DRAWS = {
    "GaussianNoise": (lambda: layers.GaussianNoise(0.3), True),
    "GaussianDropout": (lambda: layers.GaussianDropout(0.3), True),
    "AlphaDropout": (lambda: layers.AlphaDropout(0.3), True),
    "normal": (by_keras("normal"), True),
    "half normal": (by_keras("normal", dtype="float16"), True),
    "double normal": (by_keras("normal", dtype="float64"), False),
    "truncated normal": (by_keras("truncated_normal"), True),
    "half truncated": (by_keras("truncated_normal", dtype="float16"), True),
    "uniform": (by_keras("uniform"), True),
    "integers": (by_keras("randint", 0, 9), True),
    "gamma": (by_keras("gamma", 2.0), False),
    "binomial": (by_keras("binomial", 10.0, 0.3), False),
    "shuffle": (lambda: Adds(lambda x, seed: keras.random.shuffle(x, seed=seed)), True),
    "categorical": (lambda: Adds(lambda x, seed: keras.random.categorical(x, 7, seed=seed)), False),
    "tf.random.normal": (lambda: Adds(lambda x, seed: tf.random.normal(tf.shape(x))), True),
}


def trained(make_layer, scope, **options):
    keras.backend.clear_session()
    keras.utils.set_random_seed(5)
    with scope:
        inputs = keras.Input((5,), BATCH_SIZE)
        model = keras.Sequential(
            [inputs, layers.Dense(7, "relu"), make_layer(), layers.Dense(3, "tanh")]
        )
        model.compile("sgd", "mse", **options)
        model.fit(X, Y, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    return model


@pytest.mark.usefixtures("xla_from_the_start")
@pytest.mark.parametrize("name", DRAWS)
def test_weights_are_those_of_stock_keras(name):
    make_layer, is_compiled = DRAWS[name]
    stock = trained(make_layer, contextlib.nullcontext())
    SYSTEM.reset()
    model = trained(make_layer, IPUStrategy().scope(), steps_per_execution=NUM_STEPS)
    assert model.train_function.executables[0].host.execution.is_compiled is is_compiled
    for ours, expected in zip(model.get_weights(), stock.get_weights(), strict=True):
        # Sums of XLA have another order; numbers that differ are off by 1e-3 and more.
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6 if is_compiled else 0)


def named(function, *specs):
    concrete = tf.function(function, autograph=False).get_concrete_function(*specs)
    return drawn_otherwise_by_xla(graph_of(concrete))


def test_draws_whose_numbers_nobody_takes_do_not_count():
    def unused(seed):
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        tf.raw_ops.StatelessRandomNormalV2(shape=[4], key=key, counter=counter, alg=1)
        return seed

    seed = tf.TensorSpec([2], tf.int32)
    assert named(unused, seed) is None
    draw = tf.function(lambda seed: tf.random.stateless_normal([4], seed), autograph=False)
    assert "StatelessRandomNormalV2" in named(draw, seed)


def test_draws_of_functions_that_are_called_count():
    def looped(seed):
        return tf.while_loop(
            lambda step, _: step < 3,
            lambda step, total: (step + 1, total + tf.random.stateless_normal([4], seed)),
            [0, tf.zeros([4])],
        )[1]

    assert "StatelessRandomNormalV2" in named(looped, tf.TensorSpec([2], tf.int32))


def test_without_a_seed_any_numbers_are_as_good():
    """Kernels with a generator of their own begin anywhere then, so XLA may draw."""
    tf.random.set_seed(None)
    draw = tf.random.normal
    assert named(lambda: draw([4])) is None
    assert named(lambda: draw([4], seed=1)) is not None
    tf.random.set_seed(1)
    assert named(lambda: draw([4])) is not None


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform_numbers_of_float16_are_drawn_equally(dtype):
    found = named(
        lambda seed: tf.random.stateless_uniform([4], seed, dtype=dtype),
        tf.TensorSpec([2], tf.int32),
    )
    assert (found is None) == (dtype == "float16")
