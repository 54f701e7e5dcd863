"""Normalised images, against NumPy."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.ops import image_ops
from ipu_keras.ops.image_ops import normalise_image

OFFSETS, SCALES = np.array([0.5, 0.4, 0.3]), np.array([2.0, 4.0, 8.0])


def by_numpy(image, scale):
    normalised = (image.astype(np.float64) * scale - OFFSETS) * SCALES
    return np.pad(normalised, [(0, 0), (0, 0), (0, 0), (0, 1)])


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    ("dtype", "result", "tolerance"),
    [("uint8", "float16", 2e-3), ("float16", "float16", 2e-3), ("float32", "float32", 1e-5)],
)
def test_values(dtype, result, tolerance, jit_compile):
    image = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3)).astype(dtype)
    function = tf.function(normalise_image, jit_compile=jit_compile)
    found = function(image, OFFSETS, SCALES, scale=1 / 255)
    assert (found.dtype, found.shape) == (result, (2, 3, 4, 4))
    np.testing.assert_allclose(found, by_numpy(image, 1 / 255), rtol=tolerance, atol=tolerance)


def test_defaults_and_tensors():
    image = np.random.default_rng(0).normal(size=(1, 2, 2, 3)).astype("float32")
    found = normalise_image(image, tf.constant(OFFSETS), tf.constant(SCALES, tf.float16))
    np.testing.assert_allclose(found, by_numpy(image, 1), rtol=1e-5, atol=1e-5)


def test_gradient():
    image = tf.ones((1, 2, 2, 3))
    theory, numeric = tf.test.compute_gradient(
        lambda x: normalise_image(x, OFFSETS, SCALES, 0.5), [image], delta=0.1
    )
    np.testing.assert_allclose(theory[0], numeric[0], atol=1e-3)


def test_in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        found = session.run(normalise_image(np.zeros((1, 1, 1, 3), "uint8"), OFFSETS, SCALES))
    np.testing.assert_allclose(found[0, 0, 0], [-1.0, -1.6, -2.4, 0.0], rtol=1e-3)


@pytest.mark.parametrize(
    ("image", "offsets", "error", "text"),
    [
        (np.zeros((1, 1, 1, 3), "int32"), OFFSETS, TypeError, "uint8, float16 or.*of int32"),
        (np.zeros((1, 1, 1, 4), "uint8"), OFFSETS, ValueError, r"three channels.*\(1, 1, 1, 4\)"),
        (np.zeros((1, 1, 3), "uint8"), OFFSETS, ValueError, r"four axes.*\(1, 1, 3\)"),
        (np.zeros((1, 1, 1, 3), "uint8"), [1.0], ValueError, r"`channel_offsets` must.*\(1,\)"),
    ],
)
def test_mistakes(image, offsets, error, text):
    with pytest.raises(error, match=text):
        normalise_image(image, offsets, SCALES)


def test_example():
    assert doctest.testmod(image_ops).failed == 0
