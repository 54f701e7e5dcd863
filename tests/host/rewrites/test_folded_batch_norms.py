"""Normalizations by known statistics that become a part of the convolution before them."""

import numpy as np
import pytest
import tensorflow as tf
from operations_in_use import operations_in_use

from ipu_keras.host.rewrites.folded_batch_norms import folded_batch_norms
from ipu_keras.tracing.as_written import as_written

IMAGES = tf.TensorSpec((2, 12, 12, 3))
FOLDED = "FusedBatchNormV3"
CHANGED = {"BiasAdd", "Conv2D", "DepthwiseConv2dNative", FOLDED, "Mul", "Relu", "Rsqrt"}


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def normalized(images, channels, *, dtype="float32", is_training=False, data_format="NHWC"):
    statistics = [1.5, 0.5, -0.25] if not is_training else [1.5, 0.5]
    given = [tf.fill([channels], value) for value in statistics]
    variance = tf.constant(np.linspace(0.5, 2.0, channels, dtype="float32"))
    empty = tf.constant([], tf.float32)
    return tf.raw_ops.FusedBatchNormV3(
        x=tf.cast(images, dtype),
        scale=given[0],
        offset=given[1],
        mean=empty if is_training else given[2],
        variance=empty if is_training else variance,
        epsilon=0.25,
        is_training=is_training,
        data_format=data_format,
    ).y


def convolved(x, kernel=(3, 3, 3, 4)):
    return tf.nn.conv2d(x, random(*kernel), 1, "SAME")


def biased(x):
    return tf.nn.bias_add(convolved(x), random(4, seed=1))


def depthwise(x):
    return tf.nn.depthwise_conv2d(x, random(3, 3, 3, 2), (1, 2, 2, 1), "VALID")


def padded(x):
    paddings = [[0, 0], [1, 2], [0, 1], [0, 0]]
    return tf.nn.conv2d(x, random(3, 3, 3, 4), (1, 2, 2, 1), paddings, dilations=(1, 2, 1, 1))


def traced(step, spec=IMAGES):
    """A step as it is and with the rewrite, and the kinds of operations that it then uses."""
    plain = tf.function(step).get_concrete_function(spec)
    with folded_batch_norms() as replaced:
        other = tf.function(step).get_concrete_function(spec)
    return plain, other, replaced, [op.type for op in operations_in_use(other)]


def test_golden():
    """A kernel of 2, normalized by mean 3 and variance 3.75 + 0.25 and scaled by 4, is one of 4.

    By hand, the bias: 5 + (1 - 3) * 4 / 2.
    """

    def step(x):
        images = tf.nn.bias_add(tf.nn.conv2d(x, [[[[2.0]]]], 1, "VALID"), [1.0])
        return tf.raw_ops.FusedBatchNormV3(
            x=images,
            scale=[4.0],
            offset=[5.0],
            mean=[3.0],
            variance=[3.75],
            epsilon=0.25,
            is_training=False,
        ).y

    _, folded, [_], kinds = traced(step, tf.TensorSpec((1, 1, 2, 1)))
    assert kinds.count("Conv2D") == 1
    assert FOLDED not in kinds
    received = folded(tf.constant([[[[1.0], [0.5]]]]))
    np.testing.assert_allclose(received, [[[[5.0], [3.0]]]], rtol=1e-6)


@pytest.mark.parametrize(
    ("before", "channels"), [(convolved, 4), (biased, 4), (depthwise, 6), (padded, 4)]
)
def test_numbers_are_those_of_the_normalization(before, channels):
    def step(x):
        return tf.nn.relu(normalized(before(x), channels))

    plain, folded, replaced, kinds = traced(step)
    assert len(replaced) == 1
    assert FOLDED not in kinds
    x = random(*IMAGES.shape, seed=2)
    np.testing.assert_allclose(folded(x), plain(x), rtol=1e-5, atol=1e-5)
    # Reports have what was written.
    written, expected = (
        sorted(node.op for node in one.function_def.node_def if node.op in CHANGED)
        for one in (as_written(folded, replaced), plain)
    )
    assert written == expected


def gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(normalized(convolved(x), 4) ** 2)
    return tape.gradient(loss, x)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda x: normalized(x, 3), id="no convolution"),
        pytest.param(lambda x: normalized(convolved(x) + 1.0, 4), id="something between"),
        pytest.param(lambda x: normalized(convolved(x), 4, is_training=True), id="statistics"),
        pytest.param(lambda x: normalized(convolved(x), 12, data_format="NCHW"), id="formats"),
        pytest.param(
            lambda x: normalized(
                tf.nn.conv2d(tf.cast(x, "half"), random(3, 3, 3, 4).astype("half"), 1, "SAME"),
                4,
                dtype="half",
            ),
            id="half precision",
        ),
        pytest.param(lambda x: normalized(convolved(x, (5, 5, 3, 4))[:1], 4), id="a part"),
        pytest.param(
            lambda x: normalized(tf.nn.conv2d(x, random(12, 12, 3, 4), 1, "VALID"), 4),
            id="a kernel larger than its result",
        ),
        pytest.param(gradient, id="a gradient"),
    ],
)
def test_what_is_left(step):
    plain, _, replaced, kinds = traced(step)
    assert not replaced
    assert any(kind.startswith("FusedBatchNorm") for kind in kinds)
    assert sorted(kinds) == sorted(op.type for op in operations_in_use(plain))
