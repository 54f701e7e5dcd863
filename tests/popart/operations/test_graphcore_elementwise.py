"""Graphcore's elementwise operations."""

import math

import numpy as np
import pytest
import tensorflow as tf
from popart_graphs import WAYS, check_gradient, graph, ipu_node, one, onnx_node, results_of

from ipu_keras.popart.exceptions import popart_exception

every_way = pytest.mark.parametrize("way", WAYS)

A, B = np.array([[5.5, -5.5, 7.25], [-7.25, 1.5, -0.5]]), np.array([2.0, -3.0, 1.5])
SMALL = np.array([1e-8, 0.5, -0.25])
BITS = np.array([0b1100, -1, 7], np.int32), np.array([[0b1010], [3]], np.int32)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


CASES = {
    "Atan2": ((A, B), {}, [[math.atan2(y, x) for y, x in zip(row, B, strict=True)] for row in A]),
    "Detach": ((A,), {}, A),
    "Expm1": ((SMALL,), {}, np.expm1(SMALL)),
    # As C has it, and Python.
    "Fmod": ((A, B), {}, [[1.5, -2.5, 1.25], [-1.25, 1.5, -0.5]]),
    "Remainder": ((A, B), {}, [[1.5, -2.5, 1.25], [0.75, -1.5, 1.0]]),
    "Gelu": ((A,), {}, gelu(A)),
    "Log1p": ((SMALL,), {}, np.log1p(SMALL)),
    "Nop": ((A,), {}, A),
    # Halves become even numbers.
    "Round": ((np.array([0.5, 1.5, -2.5, 2.4]),), {}, [0.0, 2.0, -2.0, 2.0]),
    "Scale": ((A,), {"scale": -0.5}, -0.5 * A),
    "ScaledAdd": ((A, B), {"scale0": 2.0, "scale1": -1.0}, 2 * A - B),
}


@every_way
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("kind", CASES)
def test_what_they_compute(kind, dtype, way):
    inputs, attributes, expected = CASES[kind]
    result = one(kind, *(x.astype(dtype) for x in inputs), way=way, **attributes)
    assert result.dtype == dtype
    tolerance = 2e-6 if dtype == np.float32 else 2e-3
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=1e-9 + tolerance / 100)


@every_way
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int8])
def test_bits(dtype, way):
    a, b = (x.astype(dtype) for x in BITS)
    for kind, expected in (
        ("BitwiseAnd", a & b),
        ("BitwiseOr", a | b),
        ("BitwiseXor", a ^ b),
        ("BitwiseXnor", ~(a ^ b)),
    ):
        result = one(kind, a, b, way=way)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(one("BitwiseNot", a, way=way), ~a)


def test_bits_of_numbers_with_fractions():
    with pytest.raises(popart_exception, match=r"^In BitwiseNot 'y0': Bits are.*float32"):
        one("BitwiseNot", np.ones(2, np.float32))


@every_way
def test_remainders_of_integers(way):
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([3, 3, -3, -3], np.int32)
    np.testing.assert_array_equal(one("Fmod", a, b, way=way), [1, -1, 1, -1])
    np.testing.assert_array_equal(one("Remainder", a, b, way=way), [1, 2, -2, -1])


@every_way
def test_factors_that_are_tensors_come_before_attributes(way):
    a, b, factor = np.float32([1, 2]), np.float32([10, 20]), np.float32([3])
    options = {"scale0": 5.0, "scale1": 0.5, "way": way}
    np.testing.assert_array_equal(one("ScaledAdd", a, b, factor, **options), 3 * a + 0.5 * b)
    np.testing.assert_array_equal(one("ScaledAdd", a, b, None, factor, **options), 5 * a + 3 * b)


@pytest.mark.parametrize("kind", sorted(set(CASES) - {"Detach", "Round"}))
def test_gradients(kind):
    inputs, attributes, _ = CASES[kind]
    check_gradient(kind, *inputs, **attributes)


def test_a_detached_tensor_has_no_gradient():
    nodes = [ipu_node("Detach", "x", "d"), onnx_node("Add", "d x", "y")]
    x = tf.constant([2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        (y,) = results_of(graph(nodes, "", "y"), {"x": x})
    assert tape.gradient(y, x).numpy() == 1.0


def test_arguments():
    with pytest.raises(popart_exception, match=r"^In Scale 'y0': The attribute 'scale' is m"):
        one("Scale", A)
    with pytest.raises(popart_exception, match=r"number of inputs 1. Must be between 2\.\.2"):
        one("Fmod", A)
