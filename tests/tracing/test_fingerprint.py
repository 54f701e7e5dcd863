"""Which traced functions are the same to XLA."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.tracing import fingerprint as module
from ipu_keras.tracing.fingerprint import fingerprint
from ipu_keras.tracing.lowering import LoweringError

X = tf.TensorSpec((4, 3), tf.float32)


def of(function, *specs):
    return fingerprint(tf.function(function).get_concrete_function(*(specs or (X,))))


def test_example():
    assert doctest.testmod(module).failed == 0


def looping(limit):
    def step(x):
        for _ in tf.range(limit):
            if tf.reduce_sum(x) > 0:
                x = tf.map_fn(lambda row: row * 2, x)
        return x

    return step


def test_counters_of_the_process_do_not_matter():
    first = of(looping(3))
    of(looping(5))
    assert of(looping(3)) == first
    assert of(looping(4)) != first


@tf.custom_gradient
def passed(x):
    return x, lambda upstream: upstream * 3


def gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = passed(x)
    return tape.gradient(y, x)


def test_gradients_do_not_matter_by_their_number():
    assert of(gradient) == of(gradient) != of(passed)


def test_called_functions_count_with_all_they_do():
    def calling(scale):
        inner = tf.function(lambda x: x * scale)
        return lambda x: inner(x) + 1

    assert of(calling(2.0)) == of(calling(2.0)) != of(calling(3.0))


@pytest.mark.parametrize(
    "others",
    [
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: tf.reduce_sum(x, 0), lambda x: tf.reduce_sum(x, 1)),
        (lambda x: tf.nn.relu(x), lambda x: tf.nn.elu(x)),
        (lambda x: (x, x + x), lambda x: (x + x, x)),
        (lambda x: tf.identity(x, name="a"), lambda x: tf.identity(x, name="b")),
        (lambda x: x @ tf.transpose(x), lambda x: tf.matmul(x, x, transpose_b=True)),
    ],
)
def test_other_functions(others):
    first, second = others
    assert of(first) != of(second)


def test_inputs_count():
    assert of(tf.nn.relu) != of(tf.nn.relu, tf.TensorSpec((4, 2), tf.float32))
    assert of(tf.nn.relu) != of(tf.nn.relu, tf.TensorSpec((4, 3), tf.float16))


def test_captured_values_and_variables_count():
    def adding(value):
        return lambda x: x + value

    ones, twos = tf.ones((3,)), 2 * tf.ones((3,))
    assert of(adding(ones)) == of(adding(tf.ones((3,)))) != of(adding(twos))
    first, second = (tf.Variable(np.full((3,), k, "float32"), name="w") for k in (1, 2))
    assert of(adding(first)) == of(adding(second)) != of(adding(ones))
    assert of(adding(first)) != of(adding(tf.Variable(np.ones((4, 3), "float32"), name="w")))
    assert of(adding(first)) != of(adding(tf.Variable(np.ones((3,), "float32"), name="v")))


def test_xla_flags_count(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    before = of(tf.nn.relu)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert of(tf.nn.relu) != before


def test_what_xla_cannot_take():
    with pytest.raises(LoweringError, match="must be a tensor of numbers"):
        of(lambda x: x, tf.TensorSpec((), tf.string))
