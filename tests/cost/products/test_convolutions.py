"""Convolutions as values."""

import math

import numpy as np
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


def test_padding_is_no_work():
    # Of three elements of the kernel, the outputs at both ends meet two inputs: 2 + 3 + 3 + 2.
    padded = Convolution(1, (4,), (3,), 1, 1, padding=((1, 1),))
    assert padded.input_field == (4,)
    assert padded.flops == 2 * 10
    # Of two outputs, 2 + 3; each by itself, 3 at most.
    assert padded.met_share(0, np.array([4, 2, 1])).tolist() == [10 / 12, 5 / 6, 1]
    assert Convolution(1, (4,), (3,), 1, 1).met_share(0, 4) == 1


def test_a_gradient_of_a_kernel_as_large_as_the_field():
    # Each of 200 outputs meets the one input, with one of 200 elements of the kernel.
    wide = Convolution(1, (200,), (200,), 3, 5, padding=((199, 199),))
    assert wide.input_field == (1,)
    assert wide.flops == 2 * 200 * 3 * 5


def test_a_gradient_of_a_stride():
    # Inputs at 1, 3, 5 of seven padded positions: five outputs meet 1, 2, 1, 2, 1 of them.
    dilated = Convolution(1, (5,), (3,), 1, 1, input_dilations=(2,), padding=((1, 1),))
    assert dilated.input_field == (3,)
    assert dilated.flops == 2 * 7


def test_equal_values_are_one_key():
    written = Convolution(1, (4, 4), (3, 3), 8, 8, strides=(1, 1), kernel_dilations=(1, 1))
    assert len({written, Convolution(1, (4, 4), (3, 3), 8, 8)}) == 1
    assert math.prod(written.input_dilations) == 1
