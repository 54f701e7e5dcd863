"""Convolutions that are one operation: what is named, and that values stay."""

import doctest
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.ops import multi_convolution
from ipu_keras.ops.nn_ops import multi_conv

random = np.random.default_rng(0)
IMAGE = tf.constant(random.normal(size=(1, 6, 6, 3)), tf.float32)
OTHER = tf.constant(random.normal(size=(1, 6, 6, 3)), tf.float32)
KERNEL = tf.constant(random.normal(size=(3, 3, 3, 4)), tf.float32)
CONVOLUTIONS = ("Conv2D", "Conv3D", "DepthwiseConv2dNative")


def independent(left, right, kernel):
    """Two convolutions in layers of their own, with something else after each."""
    with tf.name_scope("one"):
        left = tf.nn.relu(tf.nn.conv2d(left, kernel, 1, "SAME"))
    with tf.name_scope("other"):
        right = tf.nn.depthwise_conv2d(right, kernel, [1, 1, 1, 1], "VALID") + 1.0
    return left, right


def names_in(function, *tensors):
    graph = tf.function(function).get_concrete_function(*tensors).graph
    return {op.name: op.type for op in graph.get_operations()}


def gradients(function):
    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            results = function(*tensors)
            loss = tf.add_n([tf.reduce_sum(result**2) for result in results])
        return *results, *tape.gradient(loss, tensors)

    return run


def test_convolutions_are_in_one_scope_and_nothing_else_is():
    names = names_in(multi_conv(independent), IMAGE, OTHER, KERNEL)
    inside = {kind for name, kind in names.items() if name.startswith("poplar.MultiConv/")}
    assert inside == {"Conv2D", "DepthwiseConv2dNative"}
    assert any(name.startswith("one/") and kind == "Relu" for name, kind in names.items())


def test_the_gradients_of_all_are_in_one_scope():
    names = names_in(gradients(multi_conv(independent)), IMAGE, OTHER, KERNEL)
    found = [name for name, kind in names.items() if re.search("Conv.*Backprop", kind)]
    assert len(found) == 4
    assert all(name.startswith("gradient_tape/poplar.MultiConv/") for name in found)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_values_and_gradients_stay(jit_compile):
    expected = gradients(independent)(IMAGE, OTHER, KERNEL)
    for function in (
        multi_conv(independent),
        multi_conv(options={"planType": "serial"})(independent),
    ):
        compiled = tf.function(gradients(function), jit_compile=jit_compile)
        for found, value in zip(compiled(IMAGE, OTHER, KERNEL), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-4)
    eager = gradients(multi_conv(independent))(IMAGE, OTHER, KERNEL)
    for found, value in zip(eager, expected, strict=True):
        np.testing.assert_array_equal(found, value)


def test_layers_of_keras():
    layers = [keras.layers.Conv2D(2, 3), keras.layers.DepthwiseConv2D(3), keras.layers.Conv3D(2, 3)]

    @multi_conv
    def convolutions(x, y, z):
        return [layer(tensor) for layer, tensor in zip(layers, (x, y, z), strict=True)]

    volume = tf.ones((1, 4, 4, 4, 3))
    convolutions(IMAGE, OTHER, volume)
    names = names_in(convolutions, IMAGE, OTHER, volume)
    inside = {kind for name, kind in names.items() if name.startswith("poplar.MultiConv/")}
    # They read their weights there.
    assert inside - {"Placeholder", "ReadVariableOp"} == set(CONVOLUTIONS)


def test_each_call_is_an_operation_of_its_own_and_others_are_left_alone():
    def function(x, kernel):
        once = multi_conv(lambda x: tf.nn.conv2d(x, kernel, 1, "SAME"))
        tf.nn.conv2d(x, kernel, 2, "SAME")
        return once(x) + once(x)

    names = [name for name, kind in names_in(function, IMAGE, KERNEL).items() if kind == "Conv2D"]
    assert sorted(names) == ["Conv2D", "poplar.MultiConv/Conv2D", "poplar.MultiConv_1/Conv2D"]


def test_serial_plans_are_convolutions_without_it():
    serial = multi_conv(options={"planType": "serial"})(independent)
    assert not any("MultiConv" in name for name in names_in(serial, IMAGE, OTHER, KERNEL))


def test_it_ends_with_the_function_when_that_fails():
    @multi_conv
    def fails(x):
        raise KeyError

    def function(x, kernel):
        with pytest.raises(KeyError):
            fails(x)
        return tf.nn.conv2d(x, kernel, 1, "SAME")

    assert "Conv2D" in names_in(function, IMAGE, KERNEL)


def test_arguments_become_tensors():
    assert tf.is_tensor(multi_conv(lambda x: x)(np.ones(2)))
    with pytest.raises(ValueError, match="KerasTensor"):
        multi_conv(lambda x: x)(keras.Input((2,)))


def test_options_that_are_not_modelled():
    with pytest.warns(UserWarning, match="perConvReservedTiles and cycleBackOff.*not modelled"):
        multi_conv(options={"perConvReservedTiles": "50", "cycleBackOff": "0.1"})


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"options": {"tiles": 1}}, ValueError, r"planType, perConvReservedTiles.*\{'tiles': 1\}"),
        ({"options": {"planType": "both"}}, ValueError, "parallel, serial. Received: planType='bo"),
        ({"options": "parallel"}, TypeError, "must be a dictionary.*'parallel'"),
        ({"func": {"planType": "serial"}}, TypeError, "To set options, name them"),
    ],
)
def test_mistakes(arguments, error, text):
    with pytest.raises(error, match=text):
        multi_conv(**arguments)


def test_a_function_without_a_result():
    with pytest.raises(ValueError, match=r"must return at least one tensor\. Received: None"):
        multi_conv(lambda x: None)(IMAGE)


def test_example():
    assert doctest.testmod(multi_convolution).failed == 0
