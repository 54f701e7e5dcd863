"""Gradients of arrays that several loops read: TensorFlow adds up lists of them."""

import pytest
import tensorflow as tf
from configured_ipus import configured

from ipu_keras.config import reset_ipu_configuration


@pytest.fixture(autouse=True)
def _reset():
    yield
    reset_ipu_configuration()


def read_by_two_loops(x, factor):
    array = tf.TensorArray(x.dtype, 2, element_shape=[], clear_after_read=False).unstack(x)

    def loop(total):
        return tf.while_loop(
            lambda k, total: k < 2,
            lambda k, total: (k + 1, total + array.read(k) * factor),
            (0, total),
            maximum_iterations=2,
        )[1]

    return loop(loop(tf.zeros([], x.dtype)))


def read_in_turns(x, factor):
    """The loops that add up lists are in another one."""
    return tf.while_loop(
        lambda k, total: k < 1,
        lambda k, total: (k + 1, total + read_by_two_loops(x, factor)),
        (0, tf.zeros([], x.dtype)),
        maximum_iterations=1,
    )[1]


@pytest.mark.parametrize("jit_compile", [None, True], ids=["executor", "XLA"])
@pytest.mark.parametrize("read", [read_by_two_loops, read_in_turns])
@pytest.mark.parametrize(
    ("dtype", "factor", "slope"),
    [("float16", 4e4, 65504), ("float16", 1.5, 3), ("float32", 4e4, 8e4)],
)
def test_gradients(read, dtype, factor, slope, jit_compile):
    @tf.function(jit_compile=jit_compile, autograph=False)
    def gradient(x, factor):  # XLA fails where two loops have a constant, in float32 as well
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = read(x, factor)
        return tape.gradient(total, x)

    given = [tf.constant([1.0, 2.0], dtype), tf.constant(factor, dtype)]
    assert configured().run(gradient, given).numpy().tolist() == [slope, slope]
