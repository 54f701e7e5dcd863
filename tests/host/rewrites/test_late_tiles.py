"""Gradients of means over images: the same bits, computed before they are repeated."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from operations_in_use import operations_in_use

from ipu_keras.host.rewrites.late_tiles import late_tiles
from ipu_keras.tracing.as_written import as_written

IMAGES = tf.TensorSpec((2, 3, 5, 4))


def traced(function, *specs):
    """A function as it is and with late tiles, and what was replaced in it."""
    plain = tf.function(function).get_concrete_function(*specs)
    with late_tiles() as replaced:
        late = tf.function(function).get_concrete_function(*specs)
    return plain, late, replaced


def in_use(concrete, shape=None):
    """What computes the results, or as much of it as has a shape."""
    given = ("Identity", "Placeholder")
    return sorted(
        op.type
        for op in operations_in_use(concrete)
        if op.type not in given and (shape is None or op.outputs[0].shape == shape)
    )


def random(shape, seed=0):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def test_golden():
    """The gradient of 3 * mean(x) over six pixels is 3 / 6 for each, by hand."""

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = 3.0 * tf.reduce_sum(tf.reduce_mean(x, [0, 1, 2]))
        return tape.gradient(loss, x)

    spec = tf.TensorSpec((1, 2, 3, 2))
    plain, late, replaced = traced(gradient, spec)
    assert [one.result.op.type for one in replaced] == ["RealDiv"]
    np.testing.assert_array_equal(late(tf.ones(spec.shape)), np.full(spec.shape, 0.5))
    assert in_use(plain, spec.shape) == ["RealDiv", "Tile"]
    assert in_use(late, spec.shape) == ["Tile"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_gradient_of_a_variance(dtype):
    """Only the product with the difference to the mean is as large as the images."""

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.sin(tf.nn.moments(x, [0, 1, 2])[1]))
        return tape.gradient(loss, x)

    spec = tf.TensorSpec(IMAGES.shape, dtype)
    plain, late, _ = traced(gradient, spec)
    ours, theirs = ([k for k in in_use(c, spec.shape) if k != "Cast"] for c in (late, plain))
    assert theirs == ["Mul", "Mul", "RealDiv", "SquaredDifference", "Sub", "Tile"]
    assert ours == ["Mul", "SquaredDifference", "Sub"]
    x = tf.cast(random(spec.shape), dtype)
    np.testing.assert_array_equal(late(x), plain(x))
    if dtype == "float32":
        values = x.numpy().astype("float64")
        mean, variance = values.mean((0, 1, 2)), values.var((0, 1, 2))
        expected = np.cos(variance) * 2 * (values - mean) / 30
        np.testing.assert_allclose(late(x), expected, rtol=1e-5, atol=1e-7)


def test_batch_normalization_has_the_same_bits():
    layer = keras.layers.BatchNormalization()
    layer.build(IMAGES.shape)

    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.tanh(layer(x, training=True)) * x)
        return tape.gradient(loss, [x, *layer.trainable_variables])

    plain, late, _ = traced(gradients, IMAGES)
    assert in_use(plain, IMAGES.shape).count("RealDiv") == 2
    assert "RealDiv" not in in_use(late, IMAGES.shape)
    for found, expected in zip(
        late(random(IMAGES.shape)), plain(random(IMAGES.shape)), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_what_is_modelled_is_what_was_written():
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.nn.moments(x, [0, 1, 2])[1])
        return tape.gradient(loss, x)

    plain, late, replaced = traced(gradient, IMAGES)
    kinds = [
        sorted(node.op for node in concrete.function_def.node_def if node.op in ("Mul", "Tile"))
        for concrete in (plain, as_written(late, replaced))
    ]
    assert kinds[0] == kinds[1]
    assert "Tile" in kinds[0]


sizes = st.integers(1, 3)


@settings(max_examples=40)
@given(
    shape=st.tuples(sizes, sizes, sizes, sizes),
    multiples=st.tuples(sizes, sizes, sizes, sizes),
    other=st.sampled_from(["scalar", "last", "whole", "one pixel"]),
    kind=st.sampled_from(["Mul", "RealDiv"]),
    first=st.booleans(),
)
def test_any_tile(shape, multiples, other, kind, first):
    """Also of what is no broadcast, such as `(2,)` of which two make four."""
    whole = tuple(size * count for size, count in zip(shape, multiples, strict=True))
    others = {"scalar": (), "last": whole[-1:], "whole": whole, "one pixel": (1, 1, 1, whole[-1])}
    specs = tf.TensorSpec(shape), tf.TensorSpec(others[other])

    def function(x, y):
        pair = (tf.tile(x, multiples), y) if first else (y, tf.tile(x, multiples))
        return getattr(tf.raw_ops, kind)(x=pair[0], y=pair[1])

    plain, late, replaced = traced(function, *specs)
    x, y = random(shape), random(others[other], seed=1)
    assert late.structured_outputs.shape == plain.structured_outputs.shape
    np.testing.assert_array_equal(late(x, y), plain(x, y))
    broadcast = all(s == 1 or c == 1 for s, c in zip(shape, multiples, strict=True))
    # A row of channels for a source of one: neither as small as the source nor whole.
    assert not replaced or broadcast
    assert replaced or not broadcast or other in ("last", "one pixel")


def test_what_has_no_pixels_is_left():
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.nn.moments(x, [0, 1])[1])
        return tape.gradient(loss, x)

    plain, late, replaced = traced(gradient, tf.TensorSpec((4, 3, 2)))
    assert replaced == []
    assert in_use(late) == in_use(plain)


def test_an_unknown_shape_is_left():
    def function(x, y):
        return tf.tile(x, [2, 1, 1, 1]) * y

    _, late, replaced = traced(
        function, tf.TensorSpec((1, 2, 2, 2)), tf.TensorSpec((None, 2, 2, 2))
    )
    assert replaced == []
    np.testing.assert_array_equal(
        late(tf.ones((1, 2, 2, 2)), tf.ones((2, 2, 2, 2))), np.ones((2, 2, 2, 2))
    )
