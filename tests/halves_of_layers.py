"""Layers, activations, normalizations and pooling of halves beside NumPy."""

import functools

import keras
import numpy as np
import scipy.special as sp
import tensorflow as tf
from half_arithmetic import once
from half_cases import Numbers, add, layer
from halves_of_operations import ENDS, product_of

from ipu_addons.keras.layers import (
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    SerialDense,
)
from ipu_keras.ops import nn_ops
from ipu_keras.ops.image_ops import normalise_image

NUMBERS = Numbers()

# Convolutions and the like: layers of Keras.


def convolution(x, kernel, stride=1, dilation=1, same=False, groups=1):
    """A convolution of any number of dimensions, with channels last."""
    sizes = kernel.shape[:-2]
    if same:
        ends = [(size - 1) * dilation for size in sizes]
        lacking = [
            max((-(-n // stride) - 1) * stride + end + 1 - n, 0)
            for n, end in zip(x.shape[1:-1], ends, strict=True)
        ]
        x = np.pad(x, [(0, 0), *((n // 2, n - n // 2) for n in lacking), (0, 0)])
    total = 0
    for place in np.ndindex(*sizes):
        window = tuple(
            slice(k * dilation, n - (size - 1 - k) * dilation, stride)
            for k, size, n in zip(place, sizes, x.shape[1:-1], strict=True)
        )
        parts = zip(
            np.split(x[(slice(None), *window)], groups, -1),
            np.split(kernel[place], groups, -1),
            strict=True,
        )
        total = total + np.concatenate([part @ matrix for part, matrix in parts], -1)
    return total


def depthwise(x, kernel, **options):
    """Each channel has filters of its own."""
    *sizes, channels, multiplier = kernel.shape
    kernel = kernel.reshape(*sizes, 1, channels * multiplier)
    return convolution(x, kernel, groups=channels, **options)


def transposed(x, kernel, stride=1):
    """Each element of an image adds the filter, times itself, to a larger image."""
    sizes = kernel.shape[:-2]
    image = np.zeros(
        [
            len(x),
            *((n - 1) * stride + k for n, k in zip(x.shape[1:-1], sizes, strict=True)),
            kernel.shape[-2],
        ]
    )
    for place in np.ndindex(*sizes):
        window = tuple(
            slice(k, k + (n - 1) * stride + 1, stride)
            for k, n in zip(place, x.shape[1:-1], strict=True)
        )
        image[(slice(None), *window)] += x @ kernel[place].T
    return image


def biased(function, **options):
    """One rounding of sums of products, and one of a sum with the bias."""
    rounding = once(functools.partial(function, **options))
    return lambda *given: rounding(*given[:-1]) + given[-1]


L = keras.layers
LAYERS = {
    "Dense": (layer(lambda **d: L.Dense(4, **d)), biased(np.matmul), [(3, 6), (6, 4), (4,)]),
    "Dense without bias": (
        layer(lambda **d: L.Dense(4, use_bias=False, **d)),
        once(np.matmul),
        [(2, 3, 6), (6, 4)],
    ),
    "EinsumDense": (
        layer(lambda **d: L.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="e", **d)),
        biased(product_of("abc,cde->abde")),
        [(2, 3, 4), (4, 2, 3), (3,)],
    ),
    "SerialDense": (
        layer(lambda **d: SerialDense(4, 2, **d)),
        biased(np.matmul),
        [(3, 6), (6, 4), (4,)],
    ),
    "Conv1D": (
        layer(lambda **d: L.Conv1D(3, 3, **d)),
        biased(convolution),
        [(2, 7, 2), (3, 2, 3), (3,)],
    ),
    "Conv1D, causal": (
        layer(lambda **d: L.Conv1D(3, 2, padding="causal", **d)),
        biased(lambda x, k: convolution(np.pad(x, [(0, 0), (1, 0), (0, 0)]), k)),
        [(2, 5, 2), (2, 2, 3), (3,)],
    ),
    "Conv2D": (
        layer(lambda **d: L.Conv2D(3, 3, **d)),
        biased(convolution),
        [(2, 5, 5, 2), (3, 3, 2, 3), (3,)],
    ),
    "Conv2D, same": (
        layer(lambda **d: L.Conv2D(3, (2, 3), padding="same", **d)),
        biased(convolution, same=True),
        [(1, 4, 5, 2), (2, 3, 2, 3), (3,)],
    ),
    "Conv2D, strides": (
        layer(lambda **d: L.Conv2D(3, 3, strides=2, padding="same", **d)),
        biased(convolution, stride=2, same=True),
        [(2, 6, 6, 2), (3, 3, 2, 3), (3,)],
    ),
    "Conv2D, dilated": (
        layer(lambda **d: L.Conv2D(3, 2, dilation_rate=2, **d)),
        biased(convolution, dilation=2),
        [(1, 5, 6, 2), (2, 2, 2, 3), (3,)],
    ),
    "Conv2D, groups": (
        layer(lambda **d: L.Conv2D(4, 3, groups=2, **d)),
        biased(convolution, groups=2),
        [(1, 5, 5, 4), (3, 3, 2, 4), (4,)],
    ),
    "Conv3D": (
        layer(lambda **d: L.Conv3D(2, 2, **d)),
        biased(convolution),
        [(1, 3, 4, 3, 2), (2, 2, 2, 2, 2), (2,)],
    ),
    "Conv3D, strides": (
        layer(lambda **d: L.Conv3D(2, 2, strides=2, **d)),
        biased(convolution, stride=2),
        [(1, 4, 4, 4, 2), (2, 2, 2, 2, 2), (2,)],
    ),
    "DepthwiseConv1D": (
        layer(lambda **d: L.DepthwiseConv1D(3, **d)),
        biased(depthwise),
        [(2, 6, 3), (3, 3, 1), (3,)],
    ),
    "DepthwiseConv2D": (
        layer(lambda **d: L.DepthwiseConv2D(3, depth_multiplier=2, **d)),
        biased(depthwise),
        [(1, 5, 5, 2), (3, 3, 2, 2), (4,)],
    ),
    "DepthwiseConv2D, strides": (
        layer(lambda **d: L.DepthwiseConv2D(2, strides=2, padding="same", **d)),
        biased(depthwise, stride=2, same=True),
        [(1, 5, 5, 2), (2, 2, 2, 1), (2,)],
    ),
    "SeparableConv1D": (
        layer(lambda **d: L.SeparableConv1D(3, 3, **d)),
        lambda x, d, p, b: once(convolution)(once(depthwise)(x, d), p) + b,
        [(2, 6, 2), (3, 2, 1), (1, 2, 3), (3,)],
    ),
    "SeparableConv2D": (
        layer(lambda **d: L.SeparableConv2D(3, 3, **d)),
        lambda x, d, p, b: once(convolution)(once(depthwise)(x, d), p) + b,
        [(1, 5, 5, 2), (3, 3, 2, 1), (1, 1, 2, 3), (3,)],
    ),
    "Conv1DTranspose": (
        layer(lambda **d: L.Conv1DTranspose(3, 3, strides=2, **d)),
        biased(transposed, stride=2),
        [(2, 4, 2), (3, 3, 2), (3,)],
    ),
    "Conv2DTranspose": (
        layer(lambda **d: L.Conv2DTranspose(3, 3, **d)),
        biased(transposed),
        [(1, 3, 4, 2), (3, 3, 3, 2), (3,)],
    ),
    "Conv2DTranspose, strides": (
        layer(lambda **d: L.Conv2DTranspose(2, 3, strides=2, **d)),
        biased(transposed, stride=2),
        [(1, 3, 3, 2), (3, 3, 2, 2), (2,)],
    ),
    "Conv3DTranspose": (
        layer(lambda **d: L.Conv3DTranspose(2, 2, strides=2, **d)),
        biased(transposed, stride=2),
        [(1, 2, 3, 2, 2), (2, 2, 2, 2, 2), (2,)],
    ),
}
for name, (compute, value, shapes) in LAYERS.items():
    given = tuple(NUMBERS.eighths(*shape) for shape in shapes)
    add("layers", name, compute, value, given, step=1)


# Activations of Keras, and those that Poplar's libraries have as one operation.


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


K = keras.activations
# By name: the function, and what it computes, rounding by rounding.
ACTIVATIONS = {
    "celu": (K.celu, lambda x: np.maximum(x, 0) + np.expm1(np.minimum(x, 0) / 1)),
    "exponential": (K.exponential, np.exp),
    "gelu": (K.gelu, lambda x: 0.5 * x * sp.erfc(-x * np.sqrt(0.5))),
    "glu": (K.glu, lambda x: x[:, :8] * sp.expit(x[:, 8:])),
    "hard_shrink": (K.hard_shrink, lambda x: np.where(abs(x) > 0.5, x, 0)),
    "hard_sigmoid": (K.hard_sigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
    "hard_silu": (K.hard_silu, lambda x: x * (np.clip(x + 3, 0, 6) / 6)),
    "hard_tanh": (K.hard_tanh, lambda x: np.clip(x, -1, 1)),
    "log_sigmoid": (K.log_sigmoid, lambda x: -once(lambda y: np.logaddexp(y, 0))(-x)),
    "log_softmax": (K.log_softmax, once(lambda x: x - sp.logsumexp(x, -1, keepdims=True))),
    "mish": (K.mish, lambda x: x * np.tanh(once(lambda y: np.logaddexp(y, 0))(x))),
    "relu": (
        lambda x: K.relu(x, negative_slope=0.25, max_value=2.0, threshold=0.5),
        lambda x: np.clip(np.where(x > 0.5, x, 0.25 * (x - 0.5)), None, 2),
    ),
    "silu": (K.silu, lambda x: x * sp.expit(x)),
    "softmax": (K.softmax, once(softmax)),
    "soft_shrink": (
        K.soft_shrink,
        lambda x: np.where(x > 0.5, x - 0.5, np.where(x < -0.5, x + 0.5, 0)),
    ),
    "sparse_plus": (
        K.sparse_plus,
        lambda x: np.where(
            x <= -1, 0, np.where(x < 1, 0.25 * once(np.square)(np.clip(x, -1, 1) + 1), x)
        ),
    ),
    "sparse_sigmoid": (
        K.sparse_sigmoid,
        lambda x: np.where(x <= -1, 0, np.where(x >= 1, 1, 0.5 * (x + 1))),
    ),
    "squareplus": (K.squareplus, lambda x: (x + np.sqrt(np.square(x) + 4)) / 2),
    "tanh_shrink": (K.tanh_shrink, lambda x: x - np.tanh(x)),
    "threshold": (lambda x: K.threshold(x, 0.25, 0.125), lambda x: np.where(x > 0.25, x, 0.125)),
    "gelu of Popnn": (nn_ops.gelu, once(gelu)),
    "gelu of Popnn, exact": (
        lambda x: nn_ops.gelu(x, approximate=False),
        once(lambda x: x * sp.ndtr(x)),
    ),
    "hard_sigmoid of Popnn": (nn_ops.hard_sigmoid, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "swish of Popnn": (nn_ops.swish, once(lambda x: x * sp.expit(x))),
}
for name, (compute, value) in ACTIVATIONS.items():
    sets = (NUMBERS.usual(8, 16),), (np.concatenate([ENDS, NUMBERS.usual(96) * 4]).reshape(8, 16),)
    add("activations", name, compute, value, *sets, step=1e-5, roundings=2, in_xla=False)


# Normalizations, whose statistics are float32 and which round what they return.


def normalized(*axes, epsilon=1e-3):
    """Along these axes, and then times a factor and plus an offset for each of the last axis."""

    def computed(x, gamma=1, beta=0):
        mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
        return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta

    return once(computed)


def in_groups(x, gamma, beta, strided=False):
    """Two groups of channels, which are neighbours or, if they are strided, every other one."""
    shape = (*x.shape[:-1], 2, 2)
    grouped = x.reshape(shape).swapaxes(-1, -2) if strided else x.reshape(shape)
    found = normalized(1, 2, 4)(grouped)
    return (found.swapaxes(-1, -2) if strided else found).reshape(x.shape) * gamma + beta


IMAGES, CHANNELS = (2, 3, 3, 4), [(4,), (4,)]
NORMALIZATIONS = {
    "BatchNormalization": (
        layer(L.BatchNormalization),
        once(lambda x, g, b, m, v: (x - m) / np.sqrt(v + 1e-3) * g + b),
        CHANNELS * 2,
    ),
    "BatchNormalization in training": (
        layer(L.BatchNormalization, training=True),
        once(lambda x, g, b, m, v: normalized(0, 1, 2)(x, g, b)),
        CHANNELS * 2,
    ),
    "LayerNormalization": (layer(L.LayerNormalization), normalized(-1), CHANNELS),
    "LayerNormalization of images": (
        layer(lambda **d: L.LayerNormalization(axis=[1, 2, 3], **d)),
        normalized(1, 2, 3),
        [(3, 3, 4)] * 2,
    ),
    "GroupNormalization": (
        layer(lambda **d: L.GroupNormalization(2, **d)),
        once(in_groups),
        CHANNELS,
    ),
    "RMSNormalization": (
        layer(L.RMSNormalization),
        once(lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g),
        [(4,)],
    ),
    "UnitNormalization": (
        layer(L.UnitNormalization),
        lambda x: x * once(lambda y: 1 / np.sqrt(y))(np.sum(np.square(x), -1, keepdims=True)),
        [],
    ),
    "GroupNormalization of an IPU": (
        layer(lambda **d: GroupNormalization(**d)),
        once(functools.partial(in_groups, strided=True)),
        CHANNELS,
    ),
    "InstanceNormalization of an IPU": (layer(InstanceNormalization), normalized(1, 2), CHANNELS),
    "LayerNormalization of an IPU": (layer(LayerNormalization), normalized(-1), CHANNELS),
    "lrn": (
        lambda x: tf.nn.lrn(x, 1, 2.0, 0.5, 0.75),
        once(
            lambda x: (
                x
                / (
                    2
                    + 0.5
                    * sum(np.pad(x * x, [(0, 0)] * 3 + [(1, 1)])[..., k : k + 4] for k in range(3))
                )
                ** 0.75
            )
        ),
        [],
    ),
    "l2_normalize": (
        lambda x: tf.math.l2_normalize(x, -1),
        lambda x: x * once(lambda y: 1 / np.sqrt(y))(np.sum(np.square(x), -1, keepdims=True)),
        [],
    ),
    "normalise_image": (
        lambda x: normalise_image(x[..., :3], [1, 2, 3], [0.5, 2, 0.125], 0.25),
        once(
            lambda x: np.pad(
                (x[..., :3] * 0.25 - [1, 2, 3]) * [0.5, 2, 0.125], [(0, 0)] * 3 + [(0, 1)]
            )
        ),
        [],
    ),
}
for name, (compute, value, shapes) in NORMALIZATIONS.items():
    given = NUMBERS.usual(*IMAGES), *(NUMBERS.positive(*shape) for shape in shapes)
    large = given[0] * np.float16(2**14), *given[1:]
    add("norms", name, compute, value, given, large, step=1e-5, roundings=1, in_xla=False)

# Pooling.


def pooled(reduce, size, stride, same=False):
    def computed(x):
        sizes = x.shape[1:-1]
        if same:
            lacking = [max((-(-n // stride) - 1) * stride + size - n, 0) for n in sizes]
            x = np.pad(
                x,
                [(0, 0), *((n // 2, n - n // 2) for n in lacking), (0, 0)],
                constant_values=np.nan,
            )
        windows = np.lib.stride_tricks.sliding_window_view(
            x, [size] * len(sizes), range(1, 1 + len(sizes))
        )
        windows = windows[(slice(None), *[slice(None, None, stride)] * len(sizes))]
        return reduce(windows, tuple(range(-len(sizes), 0)))

    return once(computed)


POOLING = {
    "MaxPooling1D": (L.MaxPooling1D(2), pooled(np.nanmax, 2, 2), (2, 6, 3)),
    "MaxPooling2D": (L.MaxPooling2D(2), pooled(np.nanmax, 2, 2), (2, 4, 4, 3)),
    "MaxPooling2D, overlapping": (L.MaxPooling2D(3, 2), pooled(np.nanmax, 3, 2), (1, 5, 5, 2)),
    "MaxPooling2D, same": (
        L.MaxPooling2D(2, padding="same"),
        pooled(np.nanmax, 2, 2, same=True),
        (1, 3, 5, 2),
    ),
    "MaxPooling3D": (L.MaxPooling3D(2), pooled(np.nanmax, 2, 2), (1, 4, 4, 2, 2)),
    "AveragePooling1D": (L.AveragePooling1D(3, 1), pooled(np.nanmean, 3, 1), (2, 6, 3)),
    "AveragePooling2D": (L.AveragePooling2D(3), pooled(np.nanmean, 3, 3), (1, 6, 6, 3)),
    "AveragePooling2D, same": (
        L.AveragePooling2D(3, 2, padding="same"),
        pooled(np.nanmean, 3, 2, same=True),
        (1, 6, 6, 2),
    ),
    "AveragePooling3D": (L.AveragePooling3D(2), pooled(np.nanmean, 2, 2), (1, 4, 4, 2, 2)),
    "GlobalAveragePooling1D": (L.GlobalAveragePooling1D(), lambda x: np.mean(x, 1), (2, 7, 3)),
    "GlobalAveragePooling2D": (
        L.GlobalAveragePooling2D(),
        once(lambda x: x.mean((1, 2))),
        (2, 3, 7, 3),
    ),
    "GlobalMaxPooling2D": (L.GlobalMaxPooling2D(), once(lambda x: x.max((1, 2))), (2, 3, 7, 3)),
    "UpSampling2D": (
        L.UpSampling2D(2),
        lambda x: np.repeat(np.repeat(x, 2, 1), 2, 2),
        (1, 2, 3, 2),
    ),
    "ZeroPadding2D": (
        L.ZeroPadding2D(1),
        lambda x: np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)]),
        (1, 2, 3, 2),
    ),
}
for name, (compute, value, shape) in POOLING.items():
    compute.dtype_policy = keras.DTypePolicy("float16")
    given = np.float16(NUMBERS.random.permutation(int(np.prod(shape))).reshape(shape)) / 8
    add("pooling", name, compute, value, (given,), (given * np.float16(512),), step=2.0**-12)
