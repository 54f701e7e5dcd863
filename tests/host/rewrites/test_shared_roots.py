"""Roots of equal scalars: found by how they are written, and computed once."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from ipu_keras.host.rewrites.replacement import undone
from ipu_keras.host.rewrites.shared_roots import shared_roots
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM


def traced(function, *specs):
    with shared_roots() as found:
        concrete = tf.function(function, autograph=False).get_concrete_function(*specs)
    return concrete, found


def roots_in_use(concrete):
    """Square roots that something takes."""
    operations = concrete.graph.get_operations()
    return [op for op in operations if op.type == "Sqrt" and op.outputs[0].consumers()]


def test_equal_scalars_have_one_root():
    count = tf.Variable(3)

    def both(x):
        return [tf.sqrt(tf.cast(count + 1, tf.float32) * scale) for scale in (x, 2.0, 2.0, x, 3.0)]

    concrete, found = traced(both, tf.TensorSpec((), tf.float32))
    assert len(roots_in_use(concrete)) == 3
    assert len(found) == 2
    expected = np.sqrt(np.float32([20.0, 8.0, 8.0, 20.0, 12.0]))
    np.testing.assert_allclose(concrete(5.0), expected, rtol=1e-6)


def test_roots_of_arrays_are_left():
    concrete, found = traced(lambda x: (tf.sqrt(x), tf.sqrt(x)), tf.TensorSpec((2,), tf.float32))
    assert not found
    np.testing.assert_array_equal(concrete(tf.constant([4.0, 9.0])), [[2.0, 3.0], [2.0, 3.0]])


def test_roots_of_halves_are_left():
    """Each may be rounded at random for itself, and so may what it is of."""

    def both(x):
        squares = [x * x for _ in range(2)]
        wide = [tf.sqrt(tf.cast(square, tf.float32)) for square in squares]
        return [tf.sqrt(squares[0]), tf.sqrt(squares[0])], wide

    concrete, found = traced(both, tf.TensorSpec((), tf.float16))
    assert not found
    np.testing.assert_array_equal(concrete(tf.constant(3.0, tf.float16)), [[3.0, 3.0]] * 2)


def test_a_variable_that_was_written_between_has_another_root():
    value = tf.Variable(4.0)

    def before_and_after():
        before = tf.sqrt(value.read_value())
        value.assign(9.0)
        return before, tf.sqrt(value.read_value())

    concrete, found = traced(before_and_after)
    assert not found
    np.testing.assert_array_equal(concrete(), [2.0, 3.0])


def test_a_function_has_its_roots_for_itself():
    inner = tf.function(lambda x: tf.sqrt(tf.constant(4.0)) * x, autograph=False)
    concrete, found = traced(lambda x: inner(x) + tf.sqrt(4.0), tf.TensorSpec((), tf.float32))
    assert not found
    assert concrete(3.0) == 8.0


def test_each_has_its_own_root_when_it_is_undone():
    concrete, found = traced(
        lambda x: (tf.sqrt(x * 2.0), tf.sqrt(x * 2.0) + 1.0, tf.sqrt(x * 2.0) + 2.0),
        tf.TensorSpec((), tf.float32),
    )
    assert len(found) == 2
    written = undone(concrete, found)
    roots = [op for op in written.graph.get_operations() if op.type == "Sqrt"]
    assert len(roots) == 3
    np.testing.assert_array_equal([float(x) for x in written(tf.constant(8.0))], [4.0, 5.0, 6.0])


def trained(scope):
    keras.utils.set_random_seed(1)
    with scope:
        layers = [keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(2)]
        model = keras.Sequential(layers)
        model.compile("adam", "mse", steps_per_execution=2)
        inputs = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
        model.fit(inputs, inputs[:, :2], batch_size=2, epochs=3, shuffle=False, verbose=0)
    return model.get_weights()


def test_adam_trains_as_in_stock_keras():
    stock = trained(contextlib.nullcontext())
    SYSTEM.reset()
    for ours, theirs in zip(trained(IPUStrategy().scope()), stock, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
