"""Images that are computed only as far as windows of pooling reach."""

import numpy as np
import pytest
import tensorflow as tf
from operations_in_use import operations_in_use

from ipu_keras.host.rewrites.unread_edges import unread_edges
from ipu_keras.tracing.as_written import as_written

# Pixels that windows of 2 by 2 do not divide.
IMAGES = tf.TensorSpec((2, 13, 15, 8))
CHANGED = {"AddV2", "AvgPool", "BiasAdd", "Conv2D", "MaxPool", "Relu", "StridedSlice"}


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def convolved(x, filters=48, padding="VALID", **options):
    kernel = random(3, 3, x.shape[-1], filters)
    return tf.nn.conv2d(x, kernel, options.pop("strides", 1), padding, **options)


def pooled(x, pool=tf.nn.max_pool2d, padding="VALID"):
    return pool(x, 2, 2, padding)


def traced(step, spec=IMAGES):
    """A step as it is and with the rewrite."""
    plain = tf.function(step).get_concrete_function(spec)
    with unread_edges() as replaced:
        other = tf.function(step).get_concrete_function(spec)
    return plain, other, replaced


def sizes(function, kind):
    """Rows and columns of what operations of a kind return, the largest first."""
    found = [op.outputs[0] for op in operations_in_use(function) if op.type == kind]
    return sorted((tuple(tensor.shape[1:3]) for tensor in found), reverse=True)


def test_golden():
    """One window of 2 by 2 pixels, of which the convolution has computed 3 by 3.

    It adds pairs of pixels side by side: of the rows 1 2 3 4, 5 6 7 8 and 9 9 9 9 the window gets
    3, 5, 11 and 13.
    """

    def step(x):
        kernel = np.ones((1, 2, 1, 64), "float32")
        return pooled(tf.nn.conv2d(x, kernel, 1, "VALID"))

    plain, cut, [_] = traced(step, tf.TensorSpec((1, 3, 4, 1)))
    assert (sizes(plain, "Conv2D"), sizes(cut, "Conv2D")) == ([(3, 3)], [(2, 2)])
    x = tf.reshape(tf.constant([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9]), (1, 3, 4, 1))
    np.testing.assert_array_equal(cut(x), np.full((1, 1, 1, 64), 13.0))


def biased(x):
    return pooled(tf.nn.relu(tf.nn.bias_add(convolved(x), random(48, seed=1))))


def as_of_keras(x):
    """With the bias as another operand of a sum, and a channel for each pixel."""
    return pooled(tf.nn.relu(convolved(x) + random(1, 1, 1, 48, seed=1)), tf.nn.avg_pool2d)


def dilated(x):
    return pooled(convolved(x, strides=(1, 1), dilations=(2, 3)))


def twice(x):
    return pooled(tf.nn.relu(convolved(pooled(tf.nn.relu(convolved(x))))))


@pytest.mark.parametrize(
    ("step", "convolved_to"),
    [
        # Of 11 by 13 pixels, windows read 10 by 12.
        pytest.param(biased, [(10, 12)], id="bias"),
        pytest.param(as_of_keras, [(10, 12)], id="sum"),
        # Of 9 by 9.
        pytest.param(dilated, [(8, 8)], id="dilations"),
        # Of 5 by 6 pixels the second convolution makes 3 by 4, of which windows read 2 by 4: these
        # need 4 by 6 pixels before them, and so 8 by 12 of the first convolution.
        pytest.param(twice, [(8, 12), (2, 4)], id="through other pooling"),
    ],
)
def test_numbers_are_those_of_whole_images(step, convolved_to):
    plain, cut, replaced = traced(step)
    assert replaced
    assert sizes(cut, "Conv2D") == convolved_to
    x = random(*IMAGES.shape, seed=2)
    np.testing.assert_allclose(cut(x), plain(x), rtol=1e-5, atol=1e-5)
    # Reports have what was written.
    written, expected = (
        sorted(node.op for node in one.function_def.node_def if node.op in CHANGED)
        for one in (as_written(cut, replaced), plain)
    )
    assert written == expected


def of_unknown_rank(x):
    images = convolved(x)
    sizes = tf.compat.v1.placeholder_with_default(images.shape.as_list(), [None])
    activations = tf.nn.relu(tf.reshape(images, sizes))
    activations.set_shape(images.shape)
    return pooled(activations)


def gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(biased(x) ** 2)
    return tape.gradient(loss, x)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda x: pooled(convolved(x)[:, :10, :12]), id="all of it read"),
        pytest.param(pooled, id="no convolution"),
        pytest.param(lambda x: pooled(convolved(x), padding="SAME"), id="pooling of edges"),
        pytest.param(lambda x: pooled(convolved(x, padding="SAME")), id="edges around the images"),
        pytest.param(lambda x: pooled(tf.sin(convolved(x))), id="something else between"),
        pytest.param(lambda x: pooled(convolved(x) + random(11, 13, 1)), id="a sum of pixels"),
        pytest.param(lambda x: pooled(convolved(x, filters=1)), id="more to copy than it spares"),
        pytest.param(of_unknown_rank, id="an operand of unknown rank"),
        pytest.param(gradient, id="a gradient"),
    ],
)
def test_what_is_left(step):
    plain, other, replaced = traced(step)
    assert not replaced
    kinds = [[op.type for op in operations_in_use(one)] for one in (plain, other)]
    assert sorted(kinds[0]) == sorted(kinds[1])
    assert sizes(other, "Conv2D") == sizes(plain, "Conv2D")
