"""Convolutions as values."""

import math

import pytest

from ipu_keras.cost.products.convolutions import (
    Convolution,
    element_bytes,
    matmul,
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: element_bytes("int8"), "cast other types first. Received: dtype='int8'"),
        (
            lambda: Convolution(1, (8, 8), (3,), 4, 4),
            r"same dimensions. Received: \(8, 8\), \(3,\), \(1, 1\)",
        ),
        (lambda: Convolution(0, (8,), (3,), 4, 4), r"at least 1. Received: .*batch=0"),
        (
            lambda: Convolution(1, (8,), (3,), 4, 6, groups=4),
            "must divide.*Received: groups=4, in_channels=4, out_channels=6",
        ),
        (
            lambda: matmul(1, 2, 3, 4, "float32", "float16"),
            "at least as wide as `dtype`. Received: dtype='float32', partials_dtype='float16'",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_sizes_of_a_strided_convolution():
    forward = Convolution(16, (28, 28), (3, 3), 64, 128, strides=(2, 2))
    # 2 * 16 * 28 * 28 * 3 * 3 * 64 * 128
    assert forward.flops == 1_849_688_064
    # 27 * 2 + 3 rows, of which one is padding.
    assert forward.input_field == (57, 57)


def test_equal_values_are_one_key():
    written = Convolution(1, (4, 4), (3, 3), 8, 8, strides=(1, 1), kernel_dilations=(1, 1))
    assert len({written, Convolution(1, (4, 4), (3, 3), 8, 8)}) == 1
    assert math.prod(written.input_dilations) == 1
