"""The scopes of operations that are one on an IPU, and of their gradients."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.tracing import poplar_operation as module
from ipu_keras.tracing.poplar_operation import (
    differentiable,
    kind_of_poplar_operation,
    memory_proportion_of,
    poplar_operation,
    poplar_operation_of,
    without_marks,
)


def names_in(function):
    graph = tf.function(function).get_concrete_function(tf.TensorSpec((2,))).graph
    return [op.name for op in graph.get_operations()]


def cube(x):
    """Of a kind of its own, with a gradient of its own."""

    def run(x):
        return x * x * x, lambda upstream: 3.0 * upstream * tf.square(x, name="square")

    with poplar_operation("Cube"):
        return differentiable(run, x)


def gradient_of_cube(x):
    with tf.GradientTape() as tape, tf.name_scope("layer"):
        tape.watch(x)
        y = cube(x)
    return tape.gradient(y, x)


def test_example_in_the_docstring():
    assert doctest.testmod(module).failed == 0


def test_a_gradient_of_its_own_is_named_after_the_place_of_the_call():
    # Each call of a kind has a scope of its own, as calls of a layer have.
    assert "gradient_tape/layer/poplar.Cube/square" in names_in(gradient_of_cube)


def test_a_gradient_outside_of_any_scope_is_a_gradient():
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = differentiable(lambda x: (x, lambda g: tf.negative(g, name="minus")), x)
        return tape.gradient(y, x)

    assert "gradient_tape/minus" in names_in(function)


def test_values_and_gradients_are_those_of_the_function():
    x = tf.constant([2.0, -3.0])
    np.testing.assert_array_equal(cube(x), [8.0, -27.0])
    np.testing.assert_array_equal(gradient_of_cube(x), [12.0, 27.0])


def test_a_second_call_has_another_scope():
    def function(x):
        return cube(cube(x))

    scopes = {name.split("/")[0] for name in names_in(function)}
    assert {"poplar.Cube", "poplar.Cube_1"} <= scopes


@pytest.mark.parametrize(
    "shares", [(None, None), (0.25, None), (None, 1e-05), (1, np.float32(0.5))]
)
def test_shares_of_memory_are_in_the_name_and_not_in_reports(shares):
    def function(x):
        with tf.name_scope("layer"):
            for _ in range(2):
                with poplar_operation("Cube", memory_proportions=shares):
                    x = tf.square(x)
        return x

    names = [name for name in names_in(function) if name.endswith("Square")]
    paths = [poplar_operation_of(f"gradient_tape/{name}") for name in names]
    assert list(map(kind_of_poplar_operation, paths)) == ["Cube", "Cube"]
    for path in paths:
        assert tuple(memory_proportion_of(path, backward=b) for b in (False, True)) == shares
    assert [without_marks(name) for name in names] == ["layer/Cube/Square", "layer/Cube_1/Square"]
