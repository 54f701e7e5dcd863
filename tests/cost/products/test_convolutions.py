"""Convolutions and their gradients as values."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_keras.cost.products.convolutions import (
    Convolution,
    data_gradient,
    element_bytes,
    matmul,
    weight_gradient,
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


@st.composite
def convolutions(draw):
    rank = draw(st.integers(1, 3))
    sizes = st.tuples(*[st.integers(1, 9)] * rank)
    groups = draw(st.integers(1, 3))
    return Convolution(
        batch=draw(st.integers(1, 9)),
        field=draw(sizes),
        kernel=draw(sizes),
        in_channels=groups * draw(st.integers(1, 20)),
        out_channels=groups * draw(st.integers(1, 20)),
        groups=groups,
        strides=draw(st.tuples(*[st.integers(1, 3)] * rank)),
    )


@given(convolution=convolutions())
def test_gradients_have_equal_flops(convolution):
    data, weights = data_gradient(convolution), weight_gradient(convolution)
    assert data.flops == weights.flops == convolution.flops
    # Differentiated once more, they are what they came from.
    assert data_gradient(data) == convolution
    assert weight_gradient(weights) == convolution
    if math.prod(convolution.strides) > 1:
        # A transposed convolution has the weights of the one that it transposes.
        assert weight_gradient(data) == weights


def test_gradients_of_a_strided_convolution():
    forward = Convolution(16, (28, 28), (3, 3), 64, 128, strides=(2, 2))
    # 2 * 16 * 28 * 28 * 3 * 3 * 64 * 128
    assert forward.flops == 1_849_688_064
    # 27 * 2 + 3 rows, of which one is padding.
    assert forward.input_field == (57, 57)
    assert data_gradient(forward) == dataclasses.replace(
        forward,
        field=(56, 56),
        in_channels=128,
        out_channels=64,
        strides=(1, 1),
        input_dilations=(2, 2),
    )
    assert weight_gradient(forward) == Convolution(
        64, (3, 3), (28, 28), 16, 128, kernel_dilations=(2, 2)
    )


def test_equal_values_are_one_key():
    written = Convolution(1, (4, 4), (3, 3), 8, 8, strides=(1, 1), kernel_dilations=(1, 1))
    assert len({written, Convolution(1, (4, 4), (3, 3), 8, 8)}) == 1
    assert math.prod(written.input_dilations) == 1
