"""Convolutions of few channels, as programs of XLA in what TensorFlow's executor gets."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.host.rewrites.shifted_products import max_of_convolution, shifted_convolutions
from ipu_keras.host.rewrites.unread_edges import unread_edges

# Small convolutions are left, so there are many filters.
IMAGES = tf.TensorSpec((4, 11, 14, 1))
FILTERS = 256


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def convolved(x, window=3, filters=FILTERS, strides=1, padding="VALID", **options):
    rows, columns = (window, window) if isinstance(window, int) else window
    kernel = tf.cast(random(rows, columns, x.shape[-1], filters), x.dtype)
    return tf.nn.conv2d(x, kernel, strides, padding, **options)


def activated(x, activation=tf.nn.relu, **options):
    images = convolved(x, **options)
    return activation(tf.nn.bias_add(images, random(images.shape[-1], seed=1)))


def pooled(x, pool=2, edges="VALID", **options):
    return tf.nn.max_pool2d(activated(x, **options), pool, pool, edges)


def traced(step, spec=IMAGES):
    """A step as it is and for TensorFlow's executor."""
    plain = tf.function(step).get_concrete_function(spec)
    return plain, shifted_convolutions(plain)


def kinds(function):
    return [op.type for op in function.graph.get_operations()]


def compiled(function):
    calls = [op for op in function.graph.get_operations() if op.type == "PartitionedCall"]
    assert all(op.get_attr("_XlaMustCompile") for op in calls)
    return calls


def test_golden():
    """Windows of 1 by 2 results, which are differences of pixels side by side."""
    images = tf.reshape(tf.constant([1.0, 4, 9, 7, 7, 0]), (1, 1, 6, 1))
    kernel = tf.reshape(tf.constant([-1.0, 1]), (1, 2, 1, 1))
    found = max_of_convolution(
        images, kernel, strides=(1, 1), dilations=(1, 1), window=(1, 2), size=(1, 2)
    )
    # 3, 5, -2, 0, and -7, which no window has.
    np.testing.assert_array_equal(found[0, 0, :, 0], [5, 0])


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(convolved, id="alone"),
        pytest.param(activated, id="activation"),
        pytest.param(pooled, id="pooling"),
        pytest.param(lambda x: tf.nn.max_pool2d(convolved(x), 2, 2, "VALID"), id="no bias"),
        pytest.param(lambda x: pooled(x, activation=lambda x: x), id="no activation"),
        pytest.param(lambda x: pooled(x, activation=tf.nn.relu6), id="relu6"),
        pytest.param(lambda x: pooled(x, activation=tf.nn.leaky_relu), id="leaky relu"),
        pytest.param(lambda x: pooled(x, pool=(3, 1)), id="windows 3 by 1"),
        pytest.param(lambda x: pooled(x, window=(4, 3), padding="SAME"), id="even windows"),
        pytest.param(lambda x: pooled(x, window=(2, 5)), id="windows 2 by 5"),
        pytest.param(
            lambda x: pooled(x, window=(2, 3), edges="SAME"), id="pooling of all without edges"
        ),
        pytest.param(lambda x: pooled(tf.concat([x, -2 * x], 3), window=(3, 2)), id="two channels"),
        pytest.param(lambda x: activated(x, padding="SAME"), id="edges"),
        pytest.param(
            lambda x: activated(x, filters=1024, strides=(2, 3), padding="SAME"),
            id="edges with strides",
        ),
        pytest.param(lambda x: pooled(x, filters=1024, strides=(2, 1)), id="strides and pooling"),
        pytest.param(
            lambda x: pooled(x, padding=[[0, 0], [2, 0], [1, 3], [0, 0]]), id="given edges"
        ),
        pytest.param(
            lambda x: activated(x, dilations=(2, 3), filters=512, padding="SAME"), id="dilations"
        ),
        pytest.param(
            lambda x: tf.nn.relu(random(1, 1, 1, FILTERS) + convolved(x)), id="sum, bias first"
        ),
    ],
)
def test_numbers_are_those_of_convolutions(step):
    plain, other = traced(step)
    assert "Conv2D" not in kinds(other)
    assert "MaxPool" not in kinds(other)
    assert len(compiled(other)) == 1
    x = tf.constant(random(*IMAGES.shape, seed=2))
    expected = plain(x)
    np.testing.assert_allclose(other(x), expected, rtol=1e-5, atol=1e-5)
    assert np.any(np.asarray(expected) != 0)
    # What was traced stays as it was, for reports.
    assert "Conv2D" in {node.op for node in plain.function_def.node_def}


def test_half_of_edges_are_before_the_images_and_the_rest_behind():
    """As of `SAME`, where a window of 2 has one column of zeros behind the images."""

    def step(x):
        return tf.nn.conv2d(x, tf.ones((1, 2, 1, 1 << 15)), 1, "SAME")

    _, other = traced(step, tf.TensorSpec((1, 1, 3, 1)))
    assert compiled(other)
    x = tf.reshape(tf.constant([1.0, 10, 100]), (1, 1, 3, 1))
    np.testing.assert_array_equal(other(x)[0, 0, :, 0], [11, 110, 100])


def test_pooling_that_leaves_out_edges():
    """After the rewrite that cuts them off, and whose operations are not in use any more."""

    def step(x):
        return pooled(x, filters=512)

    plain = tf.function(step).get_concrete_function(IMAGES)
    with unread_edges() as replaced:
        cut = tf.function(step).get_concrete_function(IMAGES)
    assert replaced
    other = shifted_convolutions(cut)
    assert "Conv2D" not in kinds(other)
    x = tf.constant(random(*IMAGES.shape, seed=2))
    np.testing.assert_allclose(other(x), plain(x), rtol=1e-5, atol=1e-5)


def test_the_rest_of_a_step_stays():
    """Variables, what is written, and inputs that nothing uses."""
    kernel = tf.Variable(random(3, 3, 1, FILTERS))
    count = tf.Variable(0.0)

    def step(x, unused):
        count.assign_add(1.0)
        return {"sums": tf.reduce_sum(tf.nn.conv2d(x, kernel, 1, "VALID"), (1, 2)), "count": count}

    specs = IMAGES, tf.TensorSpec((2,))
    plain = tf.function(step).get_concrete_function(*specs)
    other = shifted_convolutions(plain)
    assert "Conv2D" not in kinds(other)
    x = tf.constant(random(*IMAGES.shape))
    first, second = other(x, tf.zeros(2)), plain(x, tf.zeros(2))
    assert (float(first["count"]), float(second["count"])) == (1.0, 2.0)
    np.testing.assert_allclose(first["sums"], second["sums"], rtol=1e-4, atol=1e-4)
    # Weights are read anew.
    kernel.assign(tf.zeros_like(kernel))
    np.testing.assert_array_equal(other(x, tf.zeros(2))["sums"], np.zeros((4, FILTERS)))


def several_users(x):
    images = activated(x)
    return tf.nn.max_pool2d(images, 2, 2, "VALID"), tf.reduce_sum(images, (1, 2))


def bias_of_pixels(x):
    return tf.nn.relu(convolved(x) + random(9, 12, 1, seed=1))


def overlapping(x):
    return tf.nn.max_pool2d(activated(x), 3, 2, "VALID")


@pytest.mark.parametrize(
    ("step", "left"),
    [
        pytest.param(several_users, "MaxPool", id="several users"),
        pytest.param(bias_of_pixels, "AddV2", id="a bias of pixels"),
        pytest.param(overlapping, "MaxPool", id="overlapping windows"),
        pytest.param(lambda x: pooled(x, edges="SAME"), "MaxPool", id="pooling with edges"),
        pytest.param(lambda x: pooled(x, activation=tf.sin), "Sin", id="another activation"),
    ],
)
def test_what_follows_is_left(step, left):
    plain, other = traced(step)
    assert compiled(other)
    assert "Conv2D" not in kinds(other)
    assert left in kinds(other)
    x = tf.constant(random(*IMAGES.shape, seed=2))
    for received, expected in zip(*map(tf.nest.flatten, (other(x), plain(x))), strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-4)


def trained(x):
    """A convolution of few channels that is not trained, before one that is."""
    kernel = tf.constant(random(3, 3, FILTERS, 4))
    images = pooled(x)
    with tf.GradientTape() as tape:
        tape.watch(kernel)
        loss = tf.reduce_sum(tf.nn.conv2d(images, kernel, 1, "VALID") ** 2)
    return tape.gradient(loss, kernel)


def grouped(x):
    return tf.nn.conv2d(tf.tile(x, (1, 1, 1, 2)), random(2, 2, 1, FILTERS), 1, "VALID")


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda x: pooled(x, pool=1, window=4), id="16 products without pooling"),
        pytest.param(lambda x: pooled(x, window=(4, 7)), id="28 products"),
        pytest.param(lambda x: pooled(x, window=5, pool=3), id="25 products in 9 places"),
        pytest.param(lambda x: convolved(x, window=1), id="a product"),
        pytest.param(lambda x: convolved(x, filters=64), id="a small result"),
        pytest.param(lambda x: convolved(tf.tile(x, (1, 1, 1, 8))), id="many channels"),
        pytest.param(grouped, id="groups"),
        pytest.param(trained, id="trained convolutions"),
        pytest.param(lambda x: convolved(tf.cast(x, tf.float64)), id="float64"),
    ],
)
def test_what_is_left(step):
    plain, other = traced(step)
    assert other is plain
