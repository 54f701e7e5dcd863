"""Partial sums of halves equal those of NumPy in every bit, which adds up 16 channels at a time."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from in_passes import added, product
from ipu_keras._rounding import RoundingKeys

from ipu_keras.host.halves import with_halves
from ipu_keras.machine.numerics import Numerics
from ipu_keras.settings.enumerations import StochasticRoundingBehaviour

HALVES = Numerics(half_partials=frozenset({"convolution", "dot"}))
LARGEST = 65504.0

in_both = pytest.mark.parametrize("jit_compile", [None, True])


def computed(function, *arrays, numerics=HALVES, jit_compile=None, seed=0):
    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arrays]
    options = {"autograph": False, "jit_compile": jit_compile}
    concrete = tf.function(function, **options).get_concrete_function(*specs)
    keys = RoundingKeys(seed)
    found = with_halves(concrete, numerics, keys)
    assert found is not concrete
    return tf.nest.map_structure(lambda t: t.numpy(), found(*map(tf.constant, arrays)))


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


@in_both
def test_sums_that_no_longer_grow(jit_compile):
    """From 1024 on halves are 1 apart, and 16 products of 0.03 make 0.48: half of it is more."""
    x, y = np.ones((1, 65536), np.float16), np.full((65536, 1), 0.03, np.float16)
    for numerics, expected in ((HALVES, 1024), (Numerics(), 1967)):
        found = computed(tf.matmul, x, y, numerics=numerics, jit_compile=jit_compile)
        assert found.tolist() == [[expected]]


SHAPES = [
    *[(1, 1, 1), (2, 16, 3), (3, 17, 1), (1, 33, 40), (5, 31, 8), (4, 64, 9), (33, 100, 45)],
    *[(64, 128, 64), (7, 1000, 5), (1, 4096, 2), (2, 15, 32), (6, 48, 33), (128, 16, 10)],
    *[(10, 257, 31), (9, 80, 65), (31, 32, 16), (3, 500, 100), (100, 20, 3), (8, 784, 10)],
    (4, 0, 2),
]


@pytest.mark.parametrize(("num_rows", "num_summed", "num_columns"), SHAPES)
@in_both
def test_products(num_rows, num_summed, num_columns, jit_compile):
    x, y = drawn(num_rows, num_summed), drawn(num_summed, num_columns, seed=1)
    found = computed(tf.matmul, x, y, jit_compile=jit_compile)
    np.testing.assert_array_equal(found, product(x, y))


@in_both
def test_products_of_stacks_and_transposed_matrices(jit_compile):
    x, y, z = drawn(2, 3, 5, 40), drawn(3, 40, 7, seed=1), drawn(40, 7, seed=2)
    swapped = [np.swapaxes(each, -1, -2).copy() for each in (x, y)]
    rows = np.swapaxes(x, 1, 2).copy()

    def function(x, y, z, x_swapped, y_swapped, rows):
        return (
            tf.matmul(x, y),
            tf.matmul(x_swapped, y_swapped, adjoint_a=True, transpose_b=True),
            tf.matmul(x_swapped[0, 0], z, transpose_a=True),
            tf.einsum("...ab,bc->c...a", x, z),
            tf.einsum("ab,c...b->...ca", tf.transpose(z), rows),
            tf.einsum("abcd,bde->bcea", x, y),
            tf.einsum("...cd,...de->...ce", x, y),
        )

    found = computed(function, x, y, z, *swapped, rows, jit_compile=jit_compile)
    expected = product(x, y)
    by_one = product(x, z)
    of_rows = product(rows, z)
    wanted = (
        expected,
        expected,
        by_one[0, 0],
        np.moveaxis(by_one, -1, 0),
        np.moveaxis(of_rows, 0, 2),
        np.transpose(expected, [1, 2, 3, 0]),
        expected,
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


# Stride, dilation, padding, sizes of images, batch, channels, window, channels of filters, and
# features.
CONVOLUTIONS = [
    (1, 1, "VALID", (5, 6), 2, 3, (3, 3), 3, 4),
    (1, 1, "SAME", (5, 4), 1, 16, (3, 3), 16, 5),
    (2, 1, "SAME", (7, 6), 3, 20, (3, 2), 20, 3),
    (2, 1, "VALID", (8, 8), 2, 33, (2, 2), 33, 33),
    (1, 2, "SAME", (7, 7), 1, 5, (3, 3), 5, 2),
    (1, 1, [[0, 0], [1, 2], [0, 3], [0, 0]], (4, 5), 2, 18, (3, 3), 18, 2),
    (1, 1, "VALID", (1, 1), 17, 40, (1, 1), 40, 6),
    (1, 1, "SAME", (4, 4), 2, 36, (2, 2), 18, 4),
    (3, 1, "SAME", (4, 5), 18, 2, (1, 2), 2, 3),
    (1, 1, "SAME", (3, 4, 5), 2, 17, (2, 2, 3), 17, 2),
    (2, 1, "VALID", (5, 4, 5), 2, 3, (2, 1, 2), 3, 4),
]


def zeros_before(sizes, window, stride, dilation, padding):
    """Zeros before and after each dimension of images."""
    if isinstance(padding, list):
        return padding[1:-1]
    if padding == "VALID":
        return [(0, 0)] * len(sizes)
    reach = [(w - 1) * dilation + 1 for w in window]
    total = [
        max((math.ceil(s / stride) - 1) * stride + r - s, 0)
        for s, r in zip(sizes, reach, strict=True)
    ]
    return [(t // 2, t - t // 2) for t in total]


class Reference:
    """A convolution and its gradients by loops over passes, of one group of channels."""

    def __init__(self, stride, dilation, zeros, images, filters):
        self.stride, self.dilation, self.zeros = stride, dilation, zeros
        self.images, self.filters = images, filters
        self.window = filters.shape[:-2]
        self.padded = np.pad(images, [(0, 0), *zeros, (0, 0)])
        self.sizes = [
            (s - (w - 1) * dilation - 1) // stride + 1
            for s, w in zip(self.padded.shape[1:-1], self.window, strict=True)
        ]

    def positions(self):
        return itertools.product(*map(range, self.window))

    def at(self, position):
        """What all places have at a position of the window, as a slice of what is padded."""
        starts = [w * self.dilation for w in position]
        return (
            slice(None),
            *(
                slice(start, start + (size - 1) * self.stride + 1, self.stride)
                for start, size in zip(starts, self.sizes, strict=True)
            ),
        )

    def result(self):
        found = np.zeros((len(self.images), *self.sizes, self.filters.shape[-1]), np.float16)
        for first in range(0, self.images.shape[-1], 16):
            own = slice(first, first + 16)
            for position in self.positions():
                patch = self.padded[self.at(position)][..., own]
                found = added(found, patch, self.filters[position][own])
        return found

    def gradient_of_images(self, gradient):
        """Passes go over features, and positions of the window that is turned around."""
        found = np.zeros(self.padded.shape, np.float16)
        for first in range(0, gradient.shape[-1], 16):
            own = slice(first, first + 16)
            for position in reversed([*self.positions()]):
                there = self.at(position)
                of_filters = self.filters[position][:, own].T
                found[there] = added(found[there], gradient[..., own], of_filters)
        inner = [
            slice(b, b + s) for (b, _), s in zip(self.zeros, self.images.shape[1:-1], strict=True)
        ]
        return found[:, *inner]

    def gradient_of_filters(self, gradient):
        """Passes go over the batch, and over places of the result."""
        found = np.zeros(self.filters.shape, np.float16)
        for first in range(0, len(self.images), 16):
            own = slice(first, first + 16)
            for place in itertools.product(*map(range, self.sizes)):
                for position in self.positions():
                    x = self.padded[self.at(position)][own, *place]
                    found[position] = added(found[position], x.T, gradient[own, *place])
        return found


def by_group(case, method, *gradients):
    """What a method of `Reference` gives for each group of channels, joined."""
    stride, dilation, padding, images, filters = case
    zeros = zeros_before(images.shape[1:-1], filters.shape[:-2], stride, dilation, padding)
    num_groups = images.shape[-1] // filters.shape[-2]
    split = (np.split(each, num_groups, -1) for each in (images, filters, *gradients))
    return np.concatenate(
        [
            getattr(Reference(stride, dilation, zeros, x, w), method)(*g)
            for x, w, *g in zip(*split, strict=True)
        ],
        -1,
    )


@pytest.mark.parametrize("case", range(len(CONVOLUTIONS)))
@in_both
def test_convolutions_and_their_gradients(case, jit_compile):
    stride, dilation, padding, sizes, batch, channels, window, own, features = CONVOLUTIONS[case]
    images, filters = drawn(batch, *sizes, channels), drawn(*window, own, features, seed=1)
    given = (stride, dilation, padding, images, filters)
    expected = by_group(given, "result")
    gradient = drawn(*expected.shape, seed=2)

    def function(images, filters, gradient):
        with tf.GradientTape() as tape:
            tape.watch([images, filters])
            if len(sizes) == 2:
                y = tf.nn.conv2d(images, filters, stride, padding, dilations=dilation)
            else:
                y = tf.nn.conv3d(images, filters, [1, *[stride] * 3, 1], padding)
        return y, *tape.gradient(y, [images, filters], gradient)

    found = computed(function, images, filters, gradient, jit_compile=jit_compile)
    np.testing.assert_array_equal(found[0], expected)
    of_images = by_group(given, "gradient_of_images", gradient)
    np.testing.assert_array_equal(found[1], of_images)
    np.testing.assert_array_equal(found[2], by_group(given, "gradient_of_filters", gradient))


@in_both
def test_depthwise_convolutions(jit_compile):
    """Each channel is a group: a pass of one channel for each position of the window."""
    images, filters = drawn(3, 5, 4, 3), drawn(3, 2, 3, 2, seed=1)
    grouped = (1, 1, "SAME", images, filters.reshape(3, 2, 1, 6))
    expected = by_group(grouped, "result")
    gradient = drawn(*expected.shape, seed=2)

    def function(images, filters, gradient):
        with tf.GradientTape() as tape:
            tape.watch([images, filters])
            y = tf.nn.depthwise_conv2d(images, filters, [1, 1, 1, 1], "SAME")
        return y, *tape.gradient(y, [images, filters], gradient)

    found = computed(function, images, filters, gradient, jit_compile=jit_compile)
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], by_group(grouped, "gradient_of_images", gradient))
    of_filters = by_group(grouped, "gradient_of_filters", gradient)
    np.testing.assert_array_equal(found[2], of_filters.reshape(filters.shape))


@in_both
@pytest.mark.parametrize("nanoo", [False, True])
def test_partial_sums_overflow(jit_compile, nanoo):
    """The first pass makes 16e4, of which the second takes away as much: 65504 - 16e4 saturates."""
    x = np.float16([[1e4] * 16 + [-1e4] * 16, [1e4] * 16 + [1] * 16, [np.inf] + [0] * 31, [1] * 32])
    y = np.ones((32, 1), np.float16)
    numerics = replace(HALVES, nanoo=nanoo)
    found = computed(tf.matmul, x, y, numerics=numerics, jit_compile=jit_compile)
    saturated = np.float16([-LARGEST, LARGEST, np.nan, 32])
    expected = np.float16([np.nan, np.nan, np.nan, 32]) if nanoo else saturated
    np.testing.assert_array_equal(found[:, 0], expected)


def test_partial_sums_at_random():
    """Both ways draw the same bits, others for each pass; what is lost to the nearest is not."""
    x, y = np.ones((64, 4096), np.float16), np.full((4096, 5), 0.03, np.float16)
    at_random = replace(HALVES, rounding=StochasticRoundingBehaviour.ON)
    found, of_xla, other = (
        computed(tf.matmul, x, y, numerics=at_random, jit_compile=jit_compile, seed=seed)
        for jit_compile, seed in ((None, 1), (True, 1), (None, 2))
    )
    np.testing.assert_array_equal(found, of_xla)
    assert (found != other).any()
    # From 64 to 128 halves are 1/16 apart: a pass of 0.48 is off by less than a half of it to
    # the nearest, and at random by 1/32 at most in standard deviation, 256 times.
    exact = 4096 * float(np.float16(0.03))
    assert len(np.unique(found)) > 10
    assert abs(found.mean(dtype=np.float64) - exact) < 4 * 256**0.5 / 32 / found.size**0.5
