"""The dense layer that multiplies in parts, against Keras's dense layer."""

import doctest

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_battery import run_layer_battery

from ipu_addons.keras.layers import SerialDense
from ipu_addons.keras.layers import serial_dense as module

DIMENSIONS = ("input_columns", "input_rows_kernel_columns", "kernel_rows")


@pytest.mark.parametrize(
    ("dimension", "shape"),
    [
        ("input_columns", (2, 4, 6)),
        ("input_rows_kernel_columns", (4, 6)),
        ("kernel_rows", (2, 4, 6)),
    ],
)
def test_battery(strategy, dimension, shape):
    run_layer_battery(
        strategy,
        SerialDense,
        {"units": 8, "serialization_factor": 2, "serialization_dimension": dimension},
        input_shape=shape,
        expected_output_shape=(*shape[:-1], 8),
        expected_num_trainable_weights=2,
        supports_masking=True,
    )


def test_battery_with_other_arguments(strategy):
    run_layer_battery(
        strategy,
        SerialDense,
        {
            "units": 8,
            "activation": "tanh",
            "use_bias": False,
            "kernel_initializer": "he_normal",
            "kernel_regularizer": "l2",
            "activity_regularizer": "l1",
            "kernel_constraint": "max_norm",
        },
        input_shape=(4, 6),
        expected_output_shape=(4, 8),
        expected_num_trainable_weights=1,
        expected_num_losses=2,
    )


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("shape", [(4, 6), (3, 4, 6)])
def test_values_and_gradients_of_a_dense_layer(dimension, shape):
    x = tf.constant(np.random.default_rng(0).normal(size=shape).astype("float32"))
    stock = keras.layers.Dense(8, activation="gelu", bias_initializer="normal")
    stock.build(shape)
    layer = SerialDense(8, 2, dimension, activation="gelu")
    layer.build(shape)
    layer.set_weights(stock.get_weights())
    results = []
    for each in (layer, stock):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = each(x)
            loss = tf.reduce_sum(y * y)
        sources = [x, *(weight.value for weight in each.trainable_weights)]
        results.append([y, *tape.gradient(loss, sources)])
    for ours, expected in zip(*results, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_open_batch():
    inputs = keras.Input((5, 6))
    model = keras.Model(inputs, SerialDense(4, 2, "kernel_rows")(inputs))
    assert model.output_shape == (None, 5, 4)
    assert model(np.ones((3, 5, 6), "float32")).shape == (3, 5, 4)


def test_each_part_is_a_product_of_its_own():
    layer = SerialDense(8, 4, "kernel_rows")
    graph = tf.function(layer).get_concrete_function(tf.TensorSpec((2, 6))).graph
    products = [op for op in graph.get_operations() if op.type == "MatMul"]
    assert [op.outputs[0].shape.as_list() for op in products] == [[2, 2]] * 4


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0,), "`units` must be a positive integer. Received: units=0"),
        ((4, 1.5), "`serialization_factor` must be a positive integer"),
        ((4, 2, "rows"), "one of input_columns, input_rows_kernel_columns, kernel_rows"),
    ],
)
def test_arguments(arguments, text):
    with pytest.raises(ValueError, match=text):
        SerialDense(*arguments)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_factor_that_does_not_divide(dimension):
    with pytest.raises(ValueError, match="`serialization_factor` must divide"):
        SerialDense(8, 5, dimension)(np.ones((4, 6), "float32"))


def test_example():
    assert doctest.testmod(module).failed == 0
