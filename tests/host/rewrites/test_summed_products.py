"""Sums of products as one product: the same numbers, and nothing else is touched."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from operations_in_use import operations_in_use

from ipu_keras.host.rewrites.summed_products import joint_summed_products


def traced(function, *specs):
    """A function as it is and with joint products, and how many of its sums were replaced."""
    plain = tf.function(function).get_concrete_function(*specs)
    with joint_summed_products() as replaced:
        joint = tf.function(function).get_concrete_function(*specs)
    return plain, joint, len(replaced)


CUBE = tf.TensorSpec((3, 3, 3))


def in_use(concrete):
    """The kinds of operations that the results need."""
    return [op.type for op in operations_in_use(concrete)]


def random(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def test_golden():
    """[[1, 2]]^T [[1]] + [[3, 4]]^T [[2]], by hand."""

    def total(x, y):
        return tf.reduce_sum(tf.matmul(x, y, transpose_a=True), 0)

    x, y = tf.constant([[[1.0, 2.0]], [[3.0, 4.0]]]), tf.constant([[[1.0]], [[2.0]]])
    _, joint, count = traced(total, tf.TensorSpec((2, 1, 2)), tf.TensorSpec((2, 1, 1)))
    assert count == 1
    np.testing.assert_array_equal(joint(x, y), [[7.0], [10.0]])
    assert in_use(joint).count("MatMul") == 1
    assert not {"BatchMatMulV2", "Sum"} & set(in_use(joint))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 5, 3, 4), (1, 3, 4)])
def test_the_gradient_of_a_kernel(shape):
    kernel = tf.Variable(random(4, 6))

    def gradient(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(tf.linalg.matmul(x, kernel)))
        return tape.gradient(loss, kernel)

    plain, joint, count = traced(gradient, tf.TensorSpec(shape))
    assert count == 1
    assert "BatchMatMulV2" in in_use(plain)
    x = random(*shape, seed=1)
    np.testing.assert_allclose(joint(x), plain(x), rtol=1e-5, atol=1e-6)
    rows = tf.reshape(x, (-1, 4)).numpy().astype("float64")
    expected = rows.T @ np.cos(rows @ kernel.numpy())
    np.testing.assert_allclose(joint(x), expected, rtol=1e-5, atol=1e-5)


def test_the_projections_of_attention():
    layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=3)
    layer.build((2, 5, 8), (2, 5, 8))

    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, x) ** 2)
        return tape.gradient(loss, layer.trainable_variables)

    plain, joint, count = traced(gradients, tf.TensorSpec((2, 5, 8)))
    assert count == 4  # query, key, value and output
    x = random(2, 5, 8)
    for one, other in zip(joint(x), plain(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "expected"), [((3, 1, 3), 0), ((3, 3, 1), 0), ((3, 3), 1)])
def test_which_axes_are_those_of_batches(shape, expected):
    """As the gradient of something of this shape has them; all axes have the same size."""

    def total(x, y):
        axes = tf.raw_ops.BroadcastGradientArgs(s0=[3, 3, 3], s1=shape)[1]
        return tf.ensure_shape(tf.reduce_sum(tf.matmul(x, y, transpose_a=True), axes), (3, 3))

    plain, joint, count = traced(total, CUBE, CUBE)
    assert count == expected
    x, y = random(3, 3, 3, seed=1), random(3, 3, 3, seed=2)
    np.testing.assert_allclose(joint(x, y), plain(x, y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "specs"),
    [
        (lambda x, y: tf.reduce_sum(tf.matmul(x, y, transpose_a=True), 1), [CUBE, CUBE]),
        (lambda x, y: tf.reduce_sum(tf.matmul(x, y, transpose_a=True), -1), [CUBE, CUBE]),
        (lambda x, y: tf.reduce_sum(tf.matmul(x, y, transpose_a=True)), [CUBE, CUBE]),
        (lambda x, y: tf.reduce_sum(tf.matmul(x, y, transpose_a=True), 0, True), [CUBE, CUBE]),
        (lambda x, y: tf.reduce_sum(tf.matmul(x, y), 0), [CUBE, CUBE]),
        (lambda x, y: tf.reduce_sum(tf.matmul(x, y, True, True), 0), [CUBE, CUBE]),
        (lambda x, y: tf.reduce_sum(tf.matmul(x, y, True), 0), [CUBE, tf.TensorSpec((3, 3))]),
        (
            lambda x, y: tf.reduce_sum(tf.matmul(x, y, transpose_a=True), 0),
            [tf.TensorSpec((3, 3, 3), tf.float64)] * 2,
        ),
        (
            lambda x, y: tf.reduce_sum(tf.matmul(x, y, transpose_a=True), 0),
            [tf.TensorSpec((None, 3, 3))] * 2,
        ),
        (
            lambda x, y: tf.reduce_sum(
                tf.matmul(x, y, transpose_a=True), tf.cast(tf.reduce_min(x), tf.int32)
            ),
            [CUBE, CUBE],
        ),
        (lambda x, y: tf.reduce_sum(x * y, 0), [CUBE, CUBE]),
    ],
    ids=[
        "rows",
        "columns",
        "all",
        "kept axis",
        "not transposed",
        "both transposed",
        "broadcast",
        "float64",
        "unknown shape",
        "unknown axis",
        "no product",
    ],
)
def test_what_is_left_alone(function, specs):
    _, _, count = traced(function, *specs)
    assert count == 0
