"""The gradient of max pooling: bit by bit that of TensorFlow's CPU kernel."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.host.rewrites.pooling import fast_pooling_gradients, max_pool_gradient
from ipu_keras.host.rewrites.random_bits import compilable_random


def by_kernel(inputs, gradient, window, padding):
    outputs = tf.nn.max_pool2d(inputs, window, window, padding)
    return outputs, tf.raw_ops.MaxPoolGrad(
        orig_input=inputs,
        orig_output=outputs,
        grad=gradient,
        ksize=[1, *window, 1],
        strides=[1, *window, 1],
        padding=padding,
    )


def test_golden():
    """Of two equal elements the first gets the gradient; the odd column gets none."""
    inputs = tf.constant([[1.0, 4.0, 9.0], [4.0, 2.0, 9.0]])[None, :, :, None]
    gradient = max_pool_gradient(
        inputs, tf.fill((1, 1, 1, 1), 4.0), tf.fill((1, 1, 1, 1), 7.0), (2, 2)
    )
    np.testing.assert_array_equal(gradient[0, :, :, 0], [[0, 7, 0], [0, 0, 0]])


@settings(deadline=None, max_examples=60)
@given(
    size=st.tuples(st.integers(3, 9), st.integers(3, 9)),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    channels=st.integers(1, 3),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    seed=st.integers(0, 99),
)
def test_bits_are_those_of_the_kernel(size, window, channels, dtype, seed):
    random = np.random.default_rng(seed)
    # Few values, so that many are equal.
    inputs = tf.constant(random.integers(-2, 3, (2, *size, channels)).astype(dtype))
    rows, columns = size[0] // window[0], size[1] // window[1]
    gradient = tf.constant(random.standard_normal((2, rows, columns, channels)).astype(dtype))
    outputs, expected = by_kernel(inputs, gradient, window, "VALID")
    received = max_pool_gradient(inputs, outputs, gradient, window)
    np.testing.assert_array_equal(received, expected)


def gradient_ops(size, window, strides, padding, data_format="NHWC"):
    """Traces a gradient; returns whether it is computed by the kernel, and its values."""

    @tf.function
    def run(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            pooled = tf.nn.max_pool2d(inputs, window, strides, padding, data_format)
            result = tf.reduce_sum(pooled * pooled)
        return tape.gradient(result, inputs)

    random = np.random.default_rng(0)
    inputs = tf.constant(random.standard_normal((2, *size, 3), dtype="float32"))
    expected = run(inputs)
    with fast_pooling_gradients():
        # A function of its own: the other is traced already.
        concrete = tf.function(run.python_function).get_concrete_function(inputs)
    (result,) = concrete.graph.outputs
    kinds = set()
    while result.op.type == "Identity":
        result = result.op.inputs[0]
    kinds.add(result.op.type)
    np.testing.assert_array_equal(concrete(inputs), expected)
    return kinds == {"MaxPoolGrad"}


@pytest.mark.parametrize(
    ("size", "window", "strides", "padding", "by_the_kernel"),
    [
        ((8, 8), 2, 2, "VALID", False),
        ((9, 7), (2, 3), (2, 3), "VALID", False),
        ((8, 6), 2, 2, "SAME", False),
        ((9, 8), 2, 2, "SAME", True),
        ((8, 8), 3, 2, "VALID", True),
        ((8, 8), 2, 3, "VALID", True),
        ((12, 6), 6, 6, "VALID", False),
        ((14, 7), 7, 7, "VALID", True),
    ],
)
def test_which_gradients_are_replaced(size, window, strides, padding, by_the_kernel):
    assert gradient_ops(size, window, strides, padding) is by_the_kernel


def test_unknown_shapes_are_left_to_the_kernel():
    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1])])
    def run(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            pooled = tf.nn.max_pool2d(inputs, 2, 2, "VALID")
        return tape.gradient(pooled, inputs)

    with fast_pooling_gradients():
        gradient = run(tf.random.normal((3, 8, 8, 1)))
    assert float(tf.reduce_sum(gradient)) == 3 * 16


def test_nothing_is_replaced_afterwards():
    with fast_pooling_gradients():
        pass
    assert gradient_ops((9, 8), 2, 2, "SAME")
    inputs = tf.random.normal((1, 4, 4, 1))

    @tf.function
    def run(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            pooled = tf.nn.max_pool2d(inputs, 2, 2, "VALID")
        return tape.gradient(pooled, inputs)

    kinds = {op.type for op in run.get_concrete_function(inputs).graph.get_operations()}
    assert "PartitionedCall" not in kinds
    assert "MaxPoolGrad" in kinds


def test_other_replacements_stay():
    """TensorFlow gives each callback the outputs of the one before."""

    @tf.function
    def run(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            pooled = tf.nn.max_pool2d(inputs, 2, 2, "VALID")
            pooled *= tf.random.stateless_uniform(pooled.shape, (1, 2))
        return tape.gradient(pooled, inputs)

    inputs = tf.random.normal((1, 4, 4, 1))
    with fast_pooling_gradients(), compilable_random():
        both = run.get_concrete_function(inputs)
    calls = {op.type: op for op in both.graph.get_operations() if "Call" in op.type}
    assert calls.keys() == {"PartitionedCall", "XlaCallModule"}
    assert "max_pool_gradient" in calls["PartitionedCall"].get_attr("f").name
    assert b"@ipu_uniform(" in calls["XlaCallModule"].get_attr("module")
    np.testing.assert_array_equal(both(inputs), tf.function(run.python_function)(inputs))
