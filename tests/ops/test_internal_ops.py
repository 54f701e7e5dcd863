"""Printing: in every mode, when the program gets there, and each time."""

import doctest
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops import internal_ops
from ipu_keras.ops.internal_ops import print_tensor


@pytest.fixture
def printed(capfd):
    """A function: what was printed to the standard error since, without TensorFlow's log."""

    def lines():
        captured = capfd.readouterr()
        assert captured.out == ""
        return [line for line in captured.err.splitlines() if not re.match(r"[EIW]\d{4} ", line)]

    return lines


@pytest.fixture
def strategy():
    reset_ipu_configuration()
    yield IPUStrategy()
    reset_ipu_configuration()


def test_example_in_the_docstring():
    assert doctest.testmod(internal_ops).failed == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.bool_])
def test_eager(dtype, printed):
    assert print_tensor(np.array([[1, 0]], dtype), name="mine") is None
    assert printed() == ["mine: [[1 0]]"]


def test_all_elements(printed):
    print_tensor(tf.range(100))
    assert printed() == [f"print_tensor: [{' '.join(map(str, range(100)))}]"]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_functions_of_a_strategy(strategy, jit_compile, printed):
    @tf.function(jit_compile=jit_compile)
    def run(x):
        print_tensor(x, "x")
        return 2 * x

    for _ in range(2):
        assert strategy.run(run, [tf.constant(3.0)]).numpy() == 6
    assert printed() == ["x: 3"] * 2


def test_order(printed):
    @tf.function
    def run():
        for number in tf.range(3):
            print_tensor(number, "first")
            print_tensor(-number, "second")

    run()
    assert printed() == [line for k in range(3) for line in (f"first: {k}", f"second: {-k}")]


def test_graph_of_tensorflow_1(printed):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [2])
        operation = print_tensor(x, name="x")
        with tf.control_dependencies([operation]):
            y = x + 1
        session.run([x * 2], {x: [1, 2]})
        assert printed() == []
        session.run([x * 2, operation], {x: [1, 2]})
        assert printed() == ["x: [1 2]"]
        session.run(y, {x: [3, 4]})
        assert printed() == ["x: [3 4]"]


class Printing(keras.layers.Layer):
    def call(self, x):
        print_tensor(x[0, 0], name="first")
        return x


@pytest.mark.parametrize("jit_compile", ["auto", True])
def test_models(strategy, jit_compile, printed):
    """Once for each step, in order, though steps of a prediction may run in any."""
    x = np.arange(8, dtype=np.float32)[:, np.newaxis]
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), Printing(), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=4, jit_compile=jit_compile)
        printed()
        model.fit(x, x, batch_size=2, shuffle=False, verbose=0)
        model.predict(x, batch_size=2, verbose=0)
    assert printed() == ["first: 0", "first: 2", "first: 4", "first: 6"] * 2
