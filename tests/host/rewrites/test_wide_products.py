"""Products that are taller than wide, as transposes: the same numbers, and nothing else changes."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.host.rewrites.replacement import undone
from ipu_keras.host.rewrites.wide_products import wide_products
from ipu_keras.tracing.as_written import as_written


def traced(function, *specs):
    """A function as it is and with wide products, and what was replaced in it."""
    plain = tf.function(function).get_concrete_function(*specs)
    with wide_products() as replaced:
        wide = tf.function(function, jit_compile=True).get_concrete_function(*specs)
    return plain, wide, replaced


def product(x, y):
    return tf.matmul(x, y, transpose_a=True)


def random(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def test_golden():
    """Of 512 rows (1, 2, 3) and (k,): the sums of 0 to 511, 130,816, and its multiples."""
    x = tf.tile([[1.0, 2.0, 3.0]], [512, 1])
    y = tf.range(512, dtype=tf.float32)[:, tf.newaxis]
    _, wide, replaced = traced(product, tf.TensorSpec((512, 3)), tf.TensorSpec((512, 1)))
    assert [one.result.shape.as_list() for one in replaced] == [[3, 1]]
    np.testing.assert_array_equal(wide(x, y), [[130816.0], [261632.0], [392448.0]])


def test_xla_keeps_the_order():
    """Its simplifier would make `x^T y` of it again, which has the same value."""
    x, y = random(600, 8), random(600, 4, seed=1)

    def function(x, y):
        with wide_products():
            return tf.function(product)(x, y)

    compiled = tf.function(function, jit_compile=True)
    text = compiled.experimental_get_compiler_ir(x, y)("optimized_hlo")
    assert "f32[4,8]" in text
    expected = x.numpy().astype("float64").T @ y.numpy().astype("float64")
    np.testing.assert_allclose(compiled(x, y), expected, rtol=1e-5, atol=1e-4)


def test_the_gradient_of_a_dense_layer():
    kernel = tf.Variable(random(6, 4))

    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(tf.matmul(x, kernel)))
        return tape.gradient(loss, [kernel, x])

    plain, wide, replaced = traced(gradients, tf.TensorSpec((512, 6)))
    assert [one.result.shape.as_list() for one in replaced] == [[6, 4]]  # the kernel's only
    x = random(512, 6, seed=2)
    for found, expected in zip(wide(x), plain(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("x", "y", "transposed"),
    [
        (tf.TensorSpec((512, 3)), tf.TensorSpec((512, 3)), (True, False)),  # square
        (tf.TensorSpec((512, 3)), tf.TensorSpec((512, 4)), (True, False)),  # wide
        (tf.TensorSpec((511, 4)), tf.TensorSpec((511, 3)), (True, False)),  # few rows
        (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 3)), (True, False)),
        (tf.TensorSpec((512, 4), tf.float16), tf.TensorSpec((512, 3), tf.float16), (True, False)),
        (tf.TensorSpec((512, 4)), tf.TensorSpec((3, 512)), (True, True)),
        (tf.TensorSpec((4, 512)), tf.TensorSpec((512, 3)), (False, False)),
    ],
)
def test_other_products_are_left(x, y, transposed):
    def function(x, y):
        return tf.matmul(x, y, transpose_a=transposed[0], transpose_b=transposed[1])

    assert traced(function, x, y)[2] == []


def test_models_and_tensorflow_get_what_was_written():
    """TensorFlow's executor has no barrier, and the model is of the product that users wrote."""
    specs = tf.TensorSpec((512, 4)), tf.TensorSpec((512, 3))
    plain, wide, replaced = traced(product, *specs)
    kinds = [
        sorted(node.op for node in concrete.function_def.node_def if node.op != "Identity")
        for concrete in (plain, as_written(wide, replaced), undone(wide, replaced))
    ]
    assert kinds == [["MatMul"]] * 3
    x, y = random(512, 4), random(512, 3, seed=1)
    np.testing.assert_array_equal(undone(wide, replaced)(x, y), plain(x, y))
