"""Outlined functions: the values of the function, and its code once in the model."""

import doctest
import functools

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.ops import functional_ops
from ipu_keras.ops.functional_ops import outlined_function
from ipu_keras.profiling.models import traced_graph
from ipu_keras.profiling.reports import report_of

KERNELS = [np.random.default_rng(k).standard_normal((16, 16), np.float32) for k in range(4)]


def block(x, kernel):
    return tf.nn.relu(tf.matmul(x, kernel))


def gradients_of_blocks(block):
    """A function of four blocks, one after the other, and of the gradients of all kernels."""

    def run(x, *kernels):
        with tf.GradientTape() as tape:
            tape.watch(kernels)
            y = x
            for kernel in kernels:
                y = block(y, kernel)
        return y, tape.gradient(y, kernels)

    return run


def memory_of(function, *shapes):
    graph = traced_graph(function, *(tf.TensorSpec(shape) for shape in shapes))
    return report_of("outlined", graph).model.memory.bytes_by_category


def test_example_in_the_docstring():
    assert doctest.testmod(functional_ops).failed == 0


@pytest.mark.parametrize("jit_compile", [False, True])
def test_values_and_gradients(jit_compile):
    x = np.ones((2, 16), np.float32)
    run = tf.function(gradients_of_blocks(outlined_function(block)), jit_compile=jit_compile)
    expected = gradients_of_blocks(block)(tf.constant(x), *map(tf.constant, KERNELS))
    found = run(tf.constant(x), *map(tf.constant, KERNELS))
    for ours, plain in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-5)


def test_code_is_there_once():
    shapes = [(8, 16), *[(16, 16)] * 4]
    plain = memory_of(gradients_of_blocks(block), *shapes)
    outlined = memory_of(gradients_of_blocks(outlined_function(block)), *shapes)
    # Products share code without being asked; what is around them does as it is outlined.
    for category in ("control_code", "exchange_code"):
        assert outlined[category] < 0.7 * plain[category]
    assert outlined["vertex_state"] <= plain["vertex_state"]
    assert outlined["variables"] == plain["variables"]


def test_stateful_functions_are_inlined():
    def noisy(x, kernel):
        return tf.matmul(x, kernel) + tf.random.uniform((8, 16))

    shapes = [(8, 16), *[(16, 16)] * 4]

    def stacked(block):
        return lambda x, *kernels: functools.reduce(block, kernels, x)

    plain = memory_of(stacked(noisy), *shapes)
    assert memory_of(stacked(outlined_function(noisy)), *shapes) == plain


def test_as_a_decorator_with_arguments():
    @outlined_function(name="double it")
    def double(x):
        """Doubles."""
        return {"twice": 2 * x, "nothing": None}

    assert double.__doc__ == "Doubles."
    assert double(np.float32(2))["twice"].numpy() == 4
    traced = tf.function(double).get_concrete_function(tf.TensorSpec([]))
    names = {op.name for op in traced.graph.get_operations()}
    assert "outlined.doubleit/mul" in names


@pytest.mark.parametrize("options", [{"unique_sharding": True}, {"keep_input_layouts": False}])
def test_options_that_are_not_modelled(options):
    [(name, value)] = options.items()
    with pytest.warns(UserWarning, match=rf"`{name}`.*effect.*Received: .*{name}={value}"):
        outlined_function(block, **options)


def test_what_is_refused():
    with pytest.raises(TypeError, match=r"must be a function of tensors\. Received: func=3"):
        outlined_function(3)
    with pytest.raises(ValueError, match=r"at least one tensor.*Received: None from 'nothing'"):
        outlined_function(lambda x: None, name="nothing")(1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'kernel'"):
        outlined_function(block)(tf.ones((1, 1)), kernel=tf.ones((1, 1)))
