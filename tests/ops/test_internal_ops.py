"""Printing: in every mode, when the program gets there, and each time."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops import internal_ops
from ipu_keras.ops.internal_ops import print_tensor


@pytest.fixture
def strategy():
    reset_ipu_configuration()
    yield IPUStrategy()
    reset_ipu_configuration()


def test_example_in_the_docstring():
    assert doctest.testmod(internal_ops).failed == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.bool_])
def test_eager(dtype, capfd):
    assert print_tensor(np.array([[1, 0]], dtype), name="mine") is None
    found = capfd.readouterr()
    assert found.err.split(":") == ["mine", " [[1 0]]\n"]
    assert found.out == ""


def test_all_elements(capfd):
    print_tensor(tf.range(100))
    assert capfd.readouterr().err == f"print_tensor: [{' '.join(map(str, range(100)))}]\n"


@pytest.mark.parametrize("jit_compile", [False, True])
def test_functions_of_a_strategy(strategy, jit_compile, capfd):
    @tf.function(jit_compile=jit_compile)
    def run(x):
        print_tensor(x, "x")
        return 2 * x

    for _ in range(2):
        assert strategy.run(run, [tf.constant(3.0)]).numpy() == 6
    assert capfd.readouterr().err == "x: 3\n" * 2


def test_order(capfd):
    @tf.function
    def run():
        for number in tf.range(3):
            print_tensor(number, "first")
            print_tensor(-number, "second")

    run()
    assert capfd.readouterr().err == "".join(f"first: {k}\nsecond: {-k}\n" for k in range(3))


def test_graph_of_tensorflow_1(capfd):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [2])
        operation = print_tensor(x, name="x")
        with tf.control_dependencies([operation]):
            y = x + 1
        session.run([x * 2], {x: [1, 2]})
        assert capfd.readouterr().err == ""
        session.run([x * 2, operation], {x: [1, 2]})
        assert capfd.readouterr().err == "x: [1 2]\n"
        session.run(y, {x: [3, 4]})
        assert capfd.readouterr().err == "x: [3 4]\n"


class Printing(keras.layers.Layer):
    def call(self, x):
        print_tensor(x[0, 0], name="first")
        return x


@pytest.mark.parametrize("jit_compile", ["auto", True])
def test_models(strategy, jit_compile, capfd):
    """Once for each step, in order, though steps of a prediction may run in any."""
    x = np.arange(8, dtype=np.float32)[:, np.newaxis]
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), Printing(), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=4, jit_compile=jit_compile)
        capfd.readouterr()
        model.fit(x, x, batch_size=2, shuffle=False, verbose=0)
        model.predict(x, batch_size=2, verbose=0)
    assert capfd.readouterr().err == "first: 0\nfirst: 2\nfirst: 4\nfirst: 6\n" * 2
