"""Three hundred computations of halves beside NumPy's, each in all ways in which a host has them.

An IPU computes in float32 and rounds what each of its operations returns. A case has a formula
that does the same with `half_arithmetic.Halves`, or exactly with float64. Results may be one half
off, as float32's own error may lie on the other side of what is halfway between two halves, and
further where a case says so.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import pytest
import scipy.special as sp
import tensorflow as tf
from ctc_paths import probabilities_of_labels
from half_arithmetic import EVERY, Halves, differences, halves, once, spacing
from recurrent_sequences import gru_by_numpy, lstm_by_numpy

from ipu_addons.keras.layers import (
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    PopnnGRU,
    PopnnLSTM,
    SerialDense,
)
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops import nn_ops, recurrent
from ipu_keras.ops.embedding_ops import embedding_lookup
from ipu_keras.ops.image_ops import normalise_image
from ipu_keras.ops.math_ops import serialized_matmul
from ipu_keras.ops.nn_ops import ctc_loss_v2, ctc_loss_with_log_probs
from ipu_keras.ops.slicing_ops import sequence_slice

# Keras's UnitNormalization has the inverse of 1e-12 as a half.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")


@dataclass(frozen=True)
class Case:
    """What is computed, and what is right.

    Args:
        compute: From tensors to a tensor.
        value: The same from arrays.
        given: One or several sets of arrays of the same shapes. Halves among them have gradients,
            which are compared for the first set.
        slopes: From what arrives and the arrays of the first set to the gradients of the halves.
        ulps: By how many halves results may be off.
        slope_ulps: By how many halves gradients may be off.
        roundings: By how many halves gradients may be off besides, where they lie as they do near
            the largest one: that is what roundings before the last one do to sums that cancel.
        in_xla: Whether XLA has the bits of TensorFlow's kernels. Not where it approximates a
            function in its own way, or adds up float32 in another order: then it is right as well.
        eagerly: Whether single operations have the bits of a function.
    """

    compute: Callable
    value: Callable
    given: Sequence[tuple]
    slopes: Callable | None = None
    ulps: float = 1
    slope_ulps: float = 1
    roundings: float = 0
    in_xla: bool = True
    eagerly: bool = True

    @functools.cached_property
    def upstream(self):
        # No zeros: next to a NaN or a pole, TensorFlow's kernels make zeros of them, and XLA NaN.
        value = self.value(*as_halves(self.given[0]))
        found = np.random.default_rng(0).choice([-2, -0.625, 0.125, 1, 1.75], value.shape)
        return found.astype(np.float16 if isinstance(value, Halves) else np.float32)

    def run(self, upstream, *tensors):
        """Returns the result and, if there is something to compare them with, the gradients."""
        if self.slopes is None:
            return [self.compute(*tensors)]
        sources = [tensor for tensor in tensors if tensor.dtype == tf.float16]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            result = self.compute(*tensors)
        found = tape.gradient(result, sources, upstream, unconnected_gradients="zero")
        return [result, *map(tf.convert_to_tensor, found)]


CASES: dict[str, dict[str, Case]] = {}


def add(group, name, compute, value, *given, step=None, **options):
    """Adds a case, whose gradients are compared with differences if they have a step.

    Those are exact for a step of 1 if the value is linear in each of its arguments.
    """
    if step is not None:
        options["slopes"] = functools.partial(differences, value, step=step)
    cases = CASES.setdefault(group, {})
    assert name not in cases
    cases[name] = Case(compute, value, given, **options)


def as_halves(arrays):
    return [halves(array) if array.dtype == np.float16 else array for array in arrays]


RANDOM = np.random.default_rng(49)


def usual(*shape):
    return np.float16(RANDOM.normal(size=shape))


def eighths(*shape):
    """Numbers whose products add up without an error in float32, in whatever order."""
    return np.float16(RANDOM.integers(-16, 17, shape) / 8)


def positive(*shape):
    return np.float16(RANDOM.uniform(0.1, 2, shape))


def layer(make, num_inputs=1, **options):
    """Returns what calls a layer of Keras with tensors as inputs and as all of its weights."""

    @functools.cache
    def built(*shapes):
        made = make(dtype="float16")
        made.build(shapes[0] if num_inputs == 1 else list(shapes))
        return made

    def computed(*tensors):
        inputs, weights = tensors[:num_inputs], tensors[num_inputs:]
        made = built(*(tuple(tensor.shape) for tensor in inputs))
        values = dict(zip((id(each) for each in made.weights), weights, strict=True))
        states = (
            [values.get(id(each), each.value) for each in variables]
            for variables in (made.trainable_variables, made.non_trainable_variables)
        )
        given = inputs[0] if num_inputs == 1 else list(inputs)
        return made.stateless_call(*states, given, **options)[0]

    return computed


# Elementwise operations, of every finite half.

ROOT_OF_PI = 2 / np.sqrt(np.pi)
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


# By name: the operation, its value, and its gradient of argument, result and what arrives.
ELEMENTWISE = {
    "acos": (tf.acos, np.arccos, lambda x, y, dy: -dy * (1 / np.sqrt(1 - np.square(x)))),
    "acosh": (tf.acosh, np.arccosh, lambda x, y, dy: dy / np.sinh(y)),
    "asin": (tf.asin, np.arcsin, lambda x, y, dy: dy * (1 / np.sqrt(1 - np.square(x)))),
    "asinh": (tf.asinh, np.arcsinh, lambda x, y, dy: dy / np.cosh(y)),
    "atan": (tf.atan, np.arctan, lambda x, y, dy: dy * (1 / (np.square(x) + 1))),
    "atanh": (tf.atanh, np.arctanh, lambda x, y, dy: dy * (1 / (1 - np.square(x)))),
    "cos": (tf.cos, np.cos, lambda x, y, dy: -dy * np.sin(x)),
    "cosh": (tf.cosh, np.cosh, lambda x, y, dy: dy * np.sinh(x)),
    "digamma": (tf.math.digamma, sp.digamma, None),
    "elu": (
        tf.nn.elu,
        once(lambda x: np.where(x > 0, x, np.expm1(x))),
        once(lambda x, y, dy: np.where(y < 0, dy * (y + 1), dy)),
    ),
    "erf": (tf.math.erf, sp.erf, lambda x, y, dy: dy * ROOT_OF_PI * np.exp(-np.square(x))),
    "erfc": (tf.math.erfc, sp.erfc, lambda x, y, dy: dy * -ROOT_OF_PI * np.exp(-np.square(x))),
    "exp": (tf.exp, np.exp, lambda x, y, dy: dy * y),
    "expm1": (tf.math.expm1, np.expm1, lambda x, y, dy: dy * np.exp(x)),
    "leaky_relu": (
        tf.nn.leaky_relu,
        once(lambda x: np.where(x > 0, x, np.float32(0.2) * x)),
        once(lambda x, y, dy: np.where(x > 0, dy, np.float32(0.2) * dy)),
    ),
    "lgamma": (tf.math.lgamma, sp.gammaln, lambda x, y, dy: dy * sp.digamma(x)),
    "log": (tf.math.log, np.log, lambda x, y, dy: dy * (1 / x)),
    "log1p": (tf.math.log1p, np.log1p, lambda x, y, dy: dy * (1 / (x + 1))),
    "ndtri": (tf.math.ndtri, sp.ndtri, None),
    "reciprocal": (tf.math.reciprocal, lambda x: 1 / x, once(lambda x, y, dy: -dy * y * y)),
    "relu6": (tf.nn.relu6, lambda x: np.clip(x, 0, 6), None),
    "rsqrt": (
        tf.math.rsqrt,
        once(lambda x: 1 / np.sqrt(x)),
        once(lambda x, y, dy: -0.5 * dy * y * y * y),
    ),
    "selu": (
        tf.nn.selu,
        once(lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(x))),
        once(lambda x, y, dy: np.where(y < 0, dy * (y + SELU_SCALE * SELU_ALPHA), dy * SELU_SCALE)),
    ),
    "sigmoid": (tf.sigmoid, sp.expit, once(lambda x, y, dy: dy * y * (1 - y))),
    "sin": (tf.sin, np.sin, lambda x, y, dy: dy * np.cos(x)),
    "sinh": (tf.sinh, np.sinh, lambda x, y, dy: dy * np.cosh(x)),
    "softplus": (
        tf.nn.softplus,
        once(lambda x: np.logaddexp(x, 0)),
        lambda x, y, dy: dy * sp.expit(x),
    ),
    "softsign": (
        tf.nn.softsign,
        once(lambda x: x / (1 + abs(x))),
        once(lambda x, y, dy: dy / (1 + abs(x)) ** 2),
    ),
    "sqrt": (tf.sqrt, np.sqrt, once(lambda x, y, dy: dy * 0.5 / y)),
    "square": (tf.square, np.square, lambda x, y, dy: dy * (x * 2)),
    "tan": (tf.tan, np.tan, lambda x, y, dy: dy * np.square(1 / np.cos(x))),
    "tanh": (tf.tanh, np.tanh, once(lambda x, y, dy: dy * (1 - y * y))),
    "bessel_i0e": (tf.math.bessel_i0e, sp.i0e, None),
    "bessel_i1e": (tf.math.bessel_i1e, sp.i1e, None),
    "sign": (tf.sign, np.sign, None),
}
for name, (compute, value, slope) in ELEMENTWISE.items():
    slopes = slope and (lambda dy, x, f=value, slope=slope: [slope(x, f(x), dy)])
    given = EVERY
    if name == "selu":
        # TensorFlow's kernel takes the slope to the right of zero, and XLA that to the left.
        given = EVERY[EVERY != 0]
    elif name in ("digamma", "lgamma"):
        # Between the poles of negative numbers, float32 has even fewer.
        given = EVERY[EVERY > 0]
    # A gradient may be of a result that was rounded the other way, and one of acosh or asinh has
    # the hyperbolic sine or cosine of that.
    slope_ulps = {"acosh": 8, "asinh": 8, "lgamma": 4}.get(name, 2)
    # Where logarithms of the gamma function are near 0, float32 has few digits of them.
    options = {"ulps": {"digamma": 2, "lgamma": 8}.get(name, 1), "slope_ulps": slope_ulps}
    add("elementwise", name, compute, value, (given,), slopes=slopes, in_xla=False, **options)

# Of two numbers.

ENDS = np.float16([0, 6e-8, 6e-5, 1e-3, 0.1, 1, 1.5, 2, 3, 7, 41, 256, 1000, 4096, 32768, 65504])
ENDS = np.concatenate([ENDS, -ENDS])
PAIRS = ENDS[:, None], ENDS[None]
BINARY = {
    "add": (tf.add, np.add),
    "subtract": (tf.subtract, np.subtract),
    "multiply": (tf.multiply, np.multiply),
    "divide": (tf.divide, np.divide),
    "divide_no_nan": (tf.math.divide_no_nan, once(lambda a, b: np.where(b == 0, 0, a / b))),
    "multiply_no_nan": (tf.math.multiply_no_nan, np.multiply),
    "squared_difference": (tf.math.squared_difference, once(lambda a, b: (a - b) ** 2)),
    "floordiv": (tf.math.floordiv, once(lambda a, b: np.floor(a / b))),
    "floormod": (tf.math.floormod, np.mod),
    "maximum": (tf.maximum, np.maximum),
    "minimum": (tf.minimum, np.minimum),
    "atan2": (tf.atan2, np.arctan2),
    "xlogy": (
        lambda a, b: tf.math.xlogy(a, tf.abs(b)),
        once(lambda a, b: np.where(a == 0, 0, a * np.log(abs(b)))),
    ),
    "xlog1py": (
        lambda a, b: tf.math.xlog1py(a, tf.abs(b)),
        once(lambda a, b: np.where(a == 0, 0, a * np.log1p(abs(b)))),
    ),
    "xdivy": (tf.math.xdivy, once(lambda a, b: np.where(a == 0, 0, a / b))),
}
for name, (compute, value) in BINARY.items():
    add("of two numbers", name, compute, value, PAIRS)


# Sums, and other functions of several numbers.

MATRIX = np.float16(RANDOM.permutation(40).reshape(5, 8) - 19.5) / 8
REDUCTIONS = {
    "reduce_sum": (tf.reduce_sum, np.sum),
    "reduce_sum of rows": (lambda x: tf.reduce_sum(x, 1), lambda x: np.sum(x, 1)),
    "reduce_mean": (tf.reduce_mean, np.mean),
    "reduce_max": (lambda x: tf.reduce_max(x, 0), lambda x: np.max(x, 0)),
    "reduce_prod": (lambda x: tf.reduce_prod(x, 1), lambda x: np.prod(x, 1)),
    "cumsum": (lambda x: tf.cumsum(x, 1), once(lambda x: np.cumsum(x, 1))),
    "cumprod": (lambda x: tf.math.cumprod(x, 1), once(lambda x: np.cumprod(x, 1))),
    "add_n": (lambda x: tf.add_n([x, x[::-1], x]), once(lambda x: x + x[::-1] + x)),
    "l2_loss": (tf.nn.l2_loss, once(lambda x: np.sum(x * x) / 2)),
    "norm": (lambda x: tf.norm(x, axis=1), lambda x: np.sqrt(np.sum(x * x, 1))),
    "segment_sum": (
        lambda x: tf.math.unsorted_segment_sum(x, [1, 0, 1, 1, 0], 2),
        once(lambda x: np.stack([x[[1, 4]].sum(0), x[[0, 2, 3]].sum(0)])),
    ),
    "gather": (lambda x: tf.gather(x, [4, 0, 4]), lambda x: x[[4, 0, 4]]),
    "scatter_nd": (
        lambda x: tf.scatter_nd([[0], [2], [0], [1], [2]], x, [3, 8]),
        once(lambda x: np.stack([x[0] + x[2], x[3], x[1] + x[4]])),
    ),
}
for name, (compute, value) in REDUCTIONS.items():
    # The second numbers are so large that some of their sums are not halves.
    sets = (MATRIX,), (MATRIX * np.float16(896),)
    step = None if name in ("reduce_prod", "cumprod") else 2.0**-12
    add("reductions", name, compute, value, *sets, step=step)

# Products, whose gradients are sums too.


def product_of(formula):
    return once(functools.partial(np.einsum, formula))


PRODUCTS = {
    "matmul": (tf.matmul, product_of("ij,jk"), [(5, 16), (16, 3)]),
    "matmul, transposed": (
        lambda a, b: tf.matmul(a, b, transpose_a=True, transpose_b=True),
        product_of("ji,kj"),
        [(16, 5), (3, 16)],
    ),
    "matmul of batches": (tf.matmul, product_of("bij,bjk->bik"), [(2, 5, 7), (2, 7, 3)]),
    "einsum": (
        lambda a, b: tf.einsum("abc,cde->abde", a, b),
        product_of("abc,cde->abde"),
        [(2, 3, 5), (5, 2, 3)],
    ),
    "tensordot": (
        lambda a, b: tf.tensordot(a, b, [[1, 2], [0, 1]]),
        product_of("abc,bcd"),
        [(2, 3, 5), (3, 5, 2)],
    ),
    "matvec": (tf.linalg.matvec, product_of("ij,j"), [(5, 16), (16,)]),
    "serialized_matmul, columns of a": (
        lambda a, b: serialized_matmul(a, b, 2, "a_columns"),
        product_of("ij,jk"),
        [(4, 6), (6, 4)],
    ),
    "serialized_matmul, rows of b": (
        lambda a, b: serialized_matmul(a, b, 2, "b_rows"),
        product_of("ij,jk"),
        [(4, 6), (6, 4)],
    ),
    "serialized_matmul, sums": (
        lambda a, b: serialized_matmul(a, b, 2, "a_rows_b_columns"),
        lambda a, b: a[:, :3] @ b[:3] + a[:, 3:] @ b[3:],
        [(4, 6), (6, 4)],
    ),
}
for name, (compute, value, shapes) in PRODUCTS.items():
    given = tuple(eighths(*shape) for shape in shapes)
    large = tuple(array * np.float16(256) for array in given)
    add("products", name, compute, value, given, large, step=1)


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
    given = tuple(eighths(*shape) for shape in shapes)
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
    sets = (usual(8, 16),), (np.concatenate([ENDS, usual(96) * 4]).reshape(8, 16),)
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
    given = usual(*IMAGES), *(positive(*shape) for shape in shapes)
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
    given = np.float16(RANDOM.permutation(int(np.prod(shape))).reshape(shape)) / 8
    add("pooling", name, compute, value, (given,), (given * np.float16(512),), step=2.0**-12)


# Recurrent layers: each step rounds its sums, gates and states.


def of_layer(function, num_states):
    """A formula for what a layer is given: sequences of batches first, and no state."""

    def computed(x, *weights):
        units = weights[1].shape[0]
        states = [np.zeros_like(x, shape=(len(x), units))] * num_states
        found = function(np.swapaxes(x, 0, 1), *states, *weights)
        return np.swapaxes(found, 0, 1)

    return computed


def lstm(*given, **options):
    return lstm_by_numpy(*given, **options)[0]


def simple_rnn(x, kernel, recurrent_kernel, bias):
    state, found = 0, []
    for time in range(x.shape[1]):
        before = x[:, time] @ kernel + bias
        state = np.tanh(before if time == 0 else before + state @ recurrent_kernel)
        found.append(state)
    return np.stack(found, 1)


TIMES, BATCH, FEATURES, UNITS = 4, 2, 3, 3
SEQUENCES, STATE = (TIMES, BATCH, FEATURES), (BATCH, UNITS)
INPUTS = BATCH, TIMES, FEATURES
OF_LSTM = [(FEATURES, 4 * UNITS), (UNITS, 4 * UNITS), (4 * UNITS,)]
OF_GRU = [(FEATURES, 3 * UNITS), (UNITS, 3 * UNITS), (3 * UNITS,)]
MASK = np.bool_([[1, 1], [1, 0], [0, 1], [1, 1]])
HARD = {"activation": "relu", "recurrent_activation": "hard_sigmoid"}
RECURRENT = {
    "lstm": (lambda *t: recurrent.lstm(*t)[0], lstm, [SEQUENCES, STATE, STATE, *OF_LSTM]),
    "lstm, masked": (
        lambda *t: recurrent.lstm(*t, mask=MASK)[0],
        functools.partial(lstm, mask=MASK),
        [SEQUENCES, STATE, STATE, *OF_LSTM],
    ),
    "lstm, hard": (
        lambda *t: recurrent.lstm(*t, **HARD)[0],
        functools.partial(lstm, **HARD),
        [SEQUENCES, STATE, STATE, *OF_LSTM],
    ),
    "gru": (recurrent.gru, gru_by_numpy, [SEQUENCES, STATE, *OF_GRU[:2], (2, 3 * UNITS)]),
    "gru, reset before": (
        lambda *t: recurrent.gru(*t, reset_after=False),
        functools.partial(gru_by_numpy, reset_after=False),
        [SEQUENCES, STATE, *OF_GRU],
    ),
    "gru, masked": (
        lambda *t: recurrent.gru(*t, reset_after=False, mask=MASK),
        functools.partial(gru_by_numpy, reset_after=False, mask=MASK),
        [SEQUENCES, STATE, *OF_GRU],
    ),
    "gru with attention": (
        lambda *t: recurrent.gru(*t, reset_after=False),
        functools.partial(gru_by_numpy, reset_after=False),
        [SEQUENCES, STATE, *OF_GRU, (TIMES, BATCH)],
    ),
    "SimpleRNN": (
        layer(lambda **d: L.SimpleRNN(UNITS, return_sequences=True, **d)),
        simple_rnn,
        [INPUTS, (FEATURES, UNITS), (UNITS, UNITS), (UNITS,)],
    ),
    "LSTM": (
        layer(lambda **d: L.LSTM(UNITS, return_sequences=True, **d)),
        of_layer(lstm, 2),
        [INPUTS, *OF_LSTM],
    ),
    "GRU": (
        layer(lambda **d: L.GRU(UNITS, return_sequences=True, reset_after=False, **d)),
        of_layer(functools.partial(gru_by_numpy, reset_after=False), 1),
        [INPUTS, *OF_GRU],
    ),
}
for name, (compute, value, shapes) in RECURRENT.items():
    given = tuple(usual(*shape) for shape in shapes)
    large = given[0] * np.float16(8), *given[1:]
    # Each step rounds several times, and the steps before it by what comes back from it.
    # Gates of an LSTM are tangents, of whose float32 too little may be left for the least halves.
    add(
        "recurrent",
        name,
        compute,
        value,
        given,
        large,
        step=1e-5,
        ulps=2 if "lstm" in name.lower() else 1,
        roundings=8,
        in_xla="lstm" not in name.lower(),
        # A loop adds up gradients step by step, and a tape's all at once.
        eagerly=name not in ("SimpleRNN", "GRU"),
    )


# Attention, embeddings, and what moves rows.


def attention(query, value, key, factor=1):
    products = once(lambda q, k: np.einsum("bqd,bkd->bqk", q, k))(query, key)
    weights = once(softmax)(factor * products if factor != 1 else products)
    return once(lambda w, v: np.einsum("bqk,bkd->bqd", w, v))(weights, value)


def additive_attention(query, value, key, scale):
    scores = once(lambda x: np.sum(x, -1))(
        scale * np.tanh(query[:, :, np.newaxis] + key[:, np.newaxis])
    )
    return once(lambda w, v: np.einsum("bqk,bkd->bqd", w, v))(once(softmax)(scores), value)


def multi_head(x, of_query, of_key, of_value, of_result):
    into_heads = product_of("btc,chd->bthd")
    query, key, value = (into_heads(x, kernel) for kernel in (of_query, of_key, of_value))
    scores = product_of("bqhd,bkhd->bhqk")(query * (1 / np.sqrt(query.shape[-1])), key)
    found = product_of("bhqk,bkhd->bqhd")(once(softmax)(scores), value)
    return product_of("bqhd,hdc->bqc")(found, of_result)


class SelfAttention(keras.layers.MultiHeadAttention):
    """Attends to what it is called with."""

    def build(self, shape):
        super().build(shape, shape)

    def call(self, x):
        return super().call(x, x)


def ctc(time_major, weight=1):
    """Minus the logarithm of all paths' probabilities, one by one, for each sample."""
    probabilities = softmax(time_major)
    found = [
        probabilities_of_labels(probabilities[:length, sample], 0)[labels]
        for sample, (length, labels) in enumerate(zip((4, 3), ((1, 2), (2,)), strict=True))
    ]
    return -np.log(found)


IDS = np.int32([[0, 3], [3, 1]])
HEADS = [(4, 2, 4)] * 3 + [(2, 4, 4)]
MOVED = [2, 1], [2, 1], [1, 3]
# By name: what computes it, its formula, shapes, and roundings of gradients.
OTHERS = {
    "Attention": (layer(L.Attention, 3), attention, [(2, 3, 4), (2, 5, 4), (2, 5, 4)], 1),
    "AdditiveAttention": (
        layer(L.AdditiveAttention, 3),
        additive_attention,
        [(2, 3, 4), (2, 5, 4), (2, 5, 4), (4,)],
        4,
    ),
    "MultiHeadAttention": (
        layer(lambda **d: SelfAttention(2, 4, use_bias=False, **d)),
        multi_head,
        [(2, 3, 4), *HEADS],
        3,
    ),
    "Embedding": (
        functools.partial(layer(lambda **d: L.Embedding(5, 3, **d)), IDS),
        lambda table: table[IDS],
        [(5, 3)],
        0,
    ),
    "embedding_lookup": (
        lambda table: embedding_lookup(table, IDS),
        lambda table: table[IDS],
        [(5, 3)],
        0,
    ),
    "embedding_lookup in parts": (
        lambda table: embedding_lookup(table, IDS, serialization_factor=2),
        lambda table: table[IDS],
        [(6, 3)],
        0,
    ),
    "sequence_slice": (
        lambda to, of: sequence_slice(to, of, *MOVED, False),
        lambda to, of: np.stack([to[0], of[2], of[3], of[1], to[4]]),
        [(5, 3), (4, 3)],
        0,
    ),
    "ctc_loss_v2": (
        lambda x: ctc_loss_v2([[1, 2], [2, 0]], x, [2, 1], [4, 3], 0),
        once(ctc),
        [(4, 2, 3)],
        0,
    ),
    "ctc_loss_with_log_probs": (
        lambda x: ctc_loss_with_log_probs(
            [[1, 2], [2, 0]], tf.nn.log_softmax(x), [2, 1], [4, 3], 0
        ),
        lambda x: once(ctc)(once(lambda y: y - sp.logsumexp(y, -1, keepdims=True))(x)),
        [(4, 2, 3)],
        2,
    ),
    "softmax_cross_entropy": (
        lambda x: tf.nn.softmax_cross_entropy_with_logits([[0.25, 0.75, 0]] * 2, x),
        once(lambda x: sp.logsumexp(x, -1) - x @ [0.25, 0.75, 0]),
        [(2, 3)],
        1,
    ),
    "sparse_softmax_cross_entropy": (
        lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits([2, 0], x),
        once(lambda x: sp.logsumexp(x, -1) - x[[0, 1], [2, 0]]),
        [(2, 3)],
        1,
    ),
    "sigmoid_cross_entropy": (
        lambda x: tf.nn.sigmoid_cross_entropy_with_logits(tf.ones_like(x), x),
        lambda x: np.maximum(x, 0) - x + np.log1p(np.exp(-abs(x))),
        [(2, 3)],
        1,
    ),
    "PReLU": (
        layer(L.PReLU),
        lambda x, a: np.maximum(x, 0) + -a * np.maximum(-x, 0),
        [(4, 6), (6,)],
        1,
    ),
    "Rescaling": (
        layer(lambda **d: L.Rescaling(0.3, 0.7, **d)),
        lambda x: x * 0.3 + 0.7,
        [(4, 6)],
        0,
    ),
    "Multiply": (layer(L.Multiply, 2), np.multiply, [(4, 6), (4, 6)], 0),
    "Average": (layer(L.Average, 2), lambda a, b: (a + b) / 2, [(4, 6), (4, 6)], 0),
    "Dot": (
        layer(lambda **d: L.Dot(1, **d), 2),
        once(lambda a, b: np.sum(a * b, 1, keepdims=True)),
        [(4, 6), (4, 6)],
        0,
    ),
}
for name, (compute, value, shapes, roundings) in OTHERS.items():
    given = tuple(usual(*shape) for shape in shapes)
    add("others", name, compute, value, given, step=1e-5, roundings=roundings)

# Optimizers, of which all that they keep is halves: two steps, rounding by rounding.


def optimizer(make):
    @functools.cache
    def built(shape):
        made, variable = make(), keras.Variable(np.zeros(shape), dtype="float16")
        made.build([variable])
        return made, variable, [each.numpy() for each in made.variables]

    def computed(weight, *slopes):
        made, variable, at_first = built(tuple(weight.shape))
        variable.assign(weight)
        for each, value in zip(made.variables, at_first, strict=True):
            each.assign(value)
        for slope in slopes:
            made.apply([slope], [variable])
        return variable + 0

    return computed


def steps(update, *first):
    """Applies an update to a weight, a gradient, the number of the step, and what is kept.

    What is kept has these values before the first step.
    """

    def computed(weight, *slopes):
        kept = [halves(np.full(weight.shape, value)) for value in first]
        for k, slope in enumerate(slopes):
            weight, *kept = update(weight, slope, halves(k + 1), *kept)
        return weight

    return computed


RATE = 0.0625


def sgd(w, g, k):
    return (w - g * RATE,)


def momentum(w, g, k, m):
    m = m * 0.9 - g * RATE
    return w + m, m


def nesterov(w, g, k, m):
    m = m * 0.9 - g * RATE
    return w + (m * 0.9 - g * RATE), m


def rms_prop(w, g, k, v):
    v = v * 0.9 + np.square(g) * 0.1
    return w - g * RATE / np.sqrt(v + 1e-3), v


def centered(w, g, k, v, mean, m):
    v, mean = v * 0.9 + np.square(g) * 0.1, mean * 0.9 + g * 0.1
    m = m * 0.5 + g * RATE / np.sqrt(v - np.square(mean) + 1e-3)
    return w - m, v, mean, m


def moments(g, m, v):
    return m + (g - m) * (1 - 0.9), v + (np.square(g) - v) * (1 - 0.99)


def adam(w, g, k, m, v):
    rate = RATE * np.sqrt(1 - halves(0.99) ** k) / (1 - halves(0.9) ** k)
    m, v = moments(g, m, v)
    return w - m * rate / (np.sqrt(v) + 1e-3), m, v


def amsgrad(w, g, k, m, v, largest):
    rate = RATE * np.sqrt(1 - halves(0.99) ** k) / (1 - halves(0.9) ** k)
    m, v = moments(g, m, v)
    largest = np.maximum(largest, v)
    return w - m * rate / (np.sqrt(largest) + 1e-3), m, v, largest


def adamw(w, g, k, m, v):
    return adam(w - w * 0.125 * RATE, g, k, m, v)


def adamax(w, g, k, m, u):
    m, u = m + (g - m) * (1 - 0.9), np.maximum(u * 0.99, abs(g))
    return w - m * RATE / ((1 - halves(0.9) ** k) * (u + 1e-3)), m, u


def adadelta(w, g, k, v, u):
    v = v * 0.9 + np.square(g) * 0.1
    delta = -(np.sqrt(u + 1e-3) * g / np.sqrt(v + 1e-3))
    return w + delta * RATE, v, u * 0.9 + np.square(delta) * 0.1


def adagrad(w, g, k, v):
    v = v + np.square(g)
    return w - g * RATE / np.sqrt(v + 1e-3), v


def ftrl(w, g, k, v, linear):
    after, power = v + np.square(g), once(np.sqrt)
    linear = linear + (g - (power(after) - power(v)) / RATE * w)
    clipped = np.clip(linear, -0.125, 0.125)
    return (clipped - linear) / (power(after) / RATE + 0.5), after, linear


def lion(w, g, k, m):
    return w - np.sign(m * 0.9 + g * (1 - halves(0.9))) * RATE, m * 0.99 + g * (1 - halves(0.99))


def lamb(w, g, k, m, v):
    m, v = moments(g, m, v)
    update = m / (1 - halves(0.9) ** k) / (np.sqrt(v / (1 - halves(0.99) ** k)) + 1e-3)
    ratio = np.sqrt(np.sum(np.square(w))) / np.sqrt(np.sum(np.square(update)))
    return w - ratio * RATE * update, m, v


O = keras.optimizers  # noqa: E741
BETAS = {"beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-3}
OPTIMIZERS = {
    "SGD": (lambda: O.SGD(RATE), steps(sgd)),
    "SGD, momentum": (lambda: O.SGD(RATE, momentum=0.9), steps(momentum, 0)),
    "SGD, Nesterov": (
        lambda: O.SGD(RATE, momentum=0.9, nesterov=True),
        steps(nesterov, 0),
    ),
    "RMSprop": (lambda: O.RMSprop(RATE, epsilon=1e-3), steps(rms_prop, 0)),
    "RMSprop, centered": (
        lambda: O.RMSprop(RATE, momentum=0.5, epsilon=1e-3, centered=True),
        steps(centered, 0, 0, 0),
    ),
    "Adam": (lambda: O.Adam(RATE, **BETAS), steps(adam, 0, 0)),
    "Adam, AMSGrad": (
        lambda: O.Adam(RATE, amsgrad=True, **BETAS),
        steps(amsgrad, 0, 0, 0),
    ),
    "AdamW": (lambda: O.AdamW(RATE, 0.125, **BETAS), steps(adamw, 0, 0)),
    "Adamax": (lambda: O.Adamax(RATE, **BETAS), steps(adamax, 0, 0)),
    "Adadelta": (
        lambda: O.Adadelta(RATE, rho=0.9, epsilon=1e-3),
        steps(adadelta, 0, 0),
    ),
    "Adagrad": (lambda: O.Adagrad(RATE, 0.1, epsilon=1e-3), steps(adagrad, 0.1)),
    "Ftrl": (
        lambda: O.Ftrl(RATE, l1_regularization_strength=0.125, l2_regularization_strength=0.25),
        steps(ftrl, 0.1, 0),
    ),
    "Lion": (lambda: O.Lion(RATE), steps(lion, 0)),
    "Lamb": (lambda: O.Lamb(RATE, **BETAS), steps(lamb, 0, 0)),
}
for name, (make, value) in OPTIMIZERS.items():
    add("optimizers", name, optimizer(make), value, tuple(usual(5, 7) for _ in range(3)))


# Losses and metrics, which are float32 whatever they are given.


def exactly(function):
    """What is computed of halves, and is none."""
    return lambda *arrays: function(*(np.asarray(array, np.float64) for array in arrays))


def of_rows(function):
    """The mean over samples of the mean over each one's numbers."""
    return exactly(lambda t, p: np.mean(function(t, p)))


def of_classes(function):
    """The mean over samples of a sum over their classes, whose probabilities sum to 1."""

    def computed(t, p):
        return np.mean(np.sum(function(t, p / p.sum(-1, keepdims=True)), -1))

    return exactly(computed)


def cross_entropy(t, p):
    return -t * np.log(p + 1e-7) - (1 - t) * np.log(1 - p + 1e-7)


def focal(t, p):
    right = t * p + (1 - t) * (1 - p)
    return (1 - right) ** 2 * -(t * np.log(p) + (1 - t) * np.log(1 - p))


def of_unit_vectors(function):
    def unit(x):
        return x / np.sqrt(np.sum(x * x, -1, keepdims=True))

    return exactly(lambda t, p: function(np.sum(unit(t) * unit(p), -1)))


Loss = keras.losses
LOSSES = {
    "mean squared error": (Loss.MeanSquaredError(), of_rows(lambda t, p: (p - t) ** 2)),
    "mean absolute error": (Loss.MeanAbsoluteError(), of_rows(lambda t, p: abs(p - t))),
    "mean absolute percentage error": (
        Loss.MeanAbsolutePercentageError(),
        of_rows(lambda t, p: 100 * abs((t - p) / t)),
    ),
    "mean squared logarithmic error": (
        Loss.MeanSquaredLogarithmicError(),
        of_rows(lambda t, p: (np.log1p(p) - np.log1p(t)) ** 2),
    ),
    "Huber": (
        Loss.Huber(0.25),
        of_rows(
            lambda t, p: np.where(
                abs(p - t) <= 0.25, (p - t) ** 2 / 2, 0.25 * abs(p - t) - 0.25**2 / 2
            )
        ),
    ),
    "log cosh": (Loss.LogCosh(), of_rows(lambda t, p: np.log(np.cosh(p - t)))),
    "Poisson": (Loss.Poisson(), of_rows(lambda t, p: p - t * np.log(p + 1e-7))),
    "KL divergence": (
        Loss.KLDivergence(),
        exactly(lambda t, p: np.mean(np.sum(t * np.log(t / p), -1))),
    ),
    "binary cross-entropy": (Loss.BinaryCrossentropy(), of_rows(cross_entropy)),
    "binary focal cross-entropy": (Loss.BinaryFocalCrossentropy(), of_rows(focal)),
    "binary cross-entropy of logits": (
        Loss.BinaryCrossentropy(from_logits=True),
        of_rows(lambda t, p: np.logaddexp(0, p) - t * p),
    ),
    "categorical cross-entropy": (
        Loss.CategoricalCrossentropy(),
        of_classes(lambda t, p: -t * np.log(p)),
    ),
    "categorical cross-entropy of logits": (
        lambda t, p: Loss.CategoricalCrossentropy(from_logits=True)(
            tf.one_hot(tf.argmax(t, -1), 4), p
        ),
        exactly(lambda t, p: np.mean(sp.logsumexp(p, -1) - p[np.arange(len(p)), t.argmax(-1)])),
    ),
    "categorical focal cross-entropy": (
        Loss.CategoricalFocalCrossentropy(),
        of_classes(lambda t, p: 0.25 * (1 - p) ** 2 * -t * np.log(p)),
    ),
    "sparse categorical cross-entropy of logits": (
        lambda t, p: Loss.SparseCategoricalCrossentropy(from_logits=True)(tf.argmax(t, -1), p),
        exactly(lambda t, p: np.mean(sp.logsumexp(p, -1) - p[np.arange(len(p)), t.argmax(-1)])),
    ),
    "hinge": (Loss.Hinge(), of_rows(lambda t, p: np.maximum(1 - t * p, 0))),
    "squared hinge": (Loss.SquaredHinge(), of_rows(lambda t, p: np.maximum(1 - t * p, 0) ** 2)),
    "categorical hinge": (
        Loss.CategoricalHinge(),
        exactly(
            lambda t, p: np.mean(np.maximum(0, np.max((1 - t) * p, -1) - np.sum(t * p, -1) + 1))
        ),
    ),
    "cosine similarity": (Loss.CosineSimilarity(), of_unit_vectors(lambda c: -np.mean(c))),
    "Dice": (
        Loss.Dice(),
        exactly(lambda t, p: 1 - (2 * np.sum(t * p) + 1e-7) / (np.sum(t) + np.sum(p) + 1e-7)),
    ),
    "Tversky": (
        Loss.Tversky(0.25, 0.5),
        exactly(
            lambda t, p: (
                1
                - np.sum(t * p)
                / (np.sum(t * p) + 0.25 * np.sum((1 - p) * t) + 0.5 * np.sum(p * (1 - t)) + 1e-7)
            )
        ),
    ),
}
for name, (compute, value) in LOSSES.items():
    given = np.float16(RANDOM.uniform(0.05, 0.95, (2, 5, 4)))
    # Grappler writes the powers of graphs as products.
    options = {"roundings": 1, "in_xla": False, "eagerly": "focal" not in name}
    add("losses", name, compute, value, tuple(given), step=1e-6, **options)


METRICS = {
    "MeanSquaredError": of_rows(lambda t, p: (p - t) ** 2),
    "MeanAbsoluteError": of_rows(lambda t, p: abs(p - t)),
    "RootMeanSquaredError": exactly(lambda t, p: np.sqrt(np.mean((p - t) ** 2))),
    "BinaryCrossentropy": of_rows(cross_entropy),
    "CosineSimilarity": of_unit_vectors(np.mean),
    "BinaryAccuracy": of_rows(lambda t, p: (p > 0.5) == t),
    "Poisson": of_rows(lambda t, p: p - t * np.log(p + 1e-7)),
    "KLDivergence": exactly(
        lambda t, p: np.mean(np.sum(np.clip(t, 1e-7, 1) * np.log(np.clip(t, 1e-7, 1) / p), -1))
    ),
}


# How they are computed.


@functools.cache
def function_of(group, way):
    """A function of all cases of a group, which XLA compiles once for all sets of arrays."""

    @tf.function(jit_compile=way == "XLA", autograph=False)
    def function(given):
        return {name: CASES[group][name].run(*given[name]) for name in given}

    return function


@functools.cache
def results(group, way):
    """What the cases of a group become, by name, of each set of arrays."""
    if way != "eager":
        # No function may make the variables of layers.
        results(group, "eager")
    function = function_of(group, way)
    function = function.python_function if way == "eager" else function
    strategy = IPUStrategy()
    found = {name: [] for name in CASES[group]}
    with strategy.scope(), tf.device("/device:IPU:0"):
        for k in range(max(len(case.given) for case in CASES[group].values())):
            given = {
                name: tuple(
                    map(tf.constant, (case.upstream, *case.given[min(k, len(case.given) - 1)]))
                )
                for name, case in CASES[group].items()
            }
            # Less than `strategy.run` does, which also counts what a program costs.
            returned = strategy.extended.call_for_each_replica(function, (given,))
            for name, tensors in returned.items():
                found[name].append([np.asarray(tensor) for tensor in tensors])
    return found


@pytest.fixture(scope="module", autouse=True)
def _ipu():
    reset_ipu_configuration()
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    yield
    results.cache_clear()
    reset_ipu_configuration()


each_case = pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group, cases in CASES.items() for name in cases]
)
WAYS = ["executor", "XLA"]


def off(found, right, ulps, roundings=0):
    """By how much of what is allowed a result is off; it has to be NaN where it should."""
    is_half = isinstance(right, Halves)
    assert found.dtype == (np.float16 if is_half else np.float32)
    assert found.shape == right.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
    found, right = (np.nan_to_num(np.asarray(each, np.float64)) for each in (found, right))
    allowed = ulps * spacing(right) + roundings * spacing(abs(right).max(initial=0))
    if not is_half:
        # Some of float32's last bits, as many operations were before.
        allowed *= 2.0**-9
    return (abs(found - right) / allowed).max(initial=0)


@each_case
@pytest.mark.parametrize("way", WAYS)
def test_values(group, name, way):
    case = CASES[group][name]
    for given, (found, *_) in zip(case.given, results(group, way)[name], strict=False):
        assert off(found, case.value(*as_halves(given)), case.ulps) <= 1


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, name) for group in CASES for name, case in CASES[group].items() if case.slopes],
)
@pytest.mark.parametrize("way", WAYS)
def test_gradients(group, name, way):
    case = CASES[group][name]
    _, *found = results(group, way)[name][0]
    right = case.slopes(*as_halves([case.upstream, *case.given[0]]))
    for one, other in zip(found, right, strict=True):
        assert off(one, other, case.slope_ulps, case.roundings) <= 1


@pytest.mark.parametrize(
    ("way", "group", "name"),
    [
        (way, group, name)
        for way in ("eager", "XLA")
        for group, cases in CASES.items()
        for name, case in cases.items()
        if (case.eagerly if way == "eager" else case.in_xla)
    ],
)
def test_bits(way, group, name):
    found, others = results(group, way)[name], results(group, "executor")[name]
    for some, right in zip(found, others, strict=True):
        for one, other in zip(some, right, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("xla_from_the_start")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_metrics(jit_compile):
    """A model computes them in float32 whatever it predicts."""
    labels = np.eye(4, dtype=np.float16)[[0, 1, 2, 3, 3, 2, 0, 0]]
    predictions = np.float16(RANDOM.uniform(0.05, 0.95, labels.shape))
    with IPUStrategy().scope():
        model = keras.Sequential([keras.Input([4], dtype="float16"), L.Identity(dtype="float16")])
        metrics = [getattr(keras.metrics, name)(name=name) for name in METRICS]
        model.compile(loss="mse", metrics=metrics, jit_compile=jit_compile)
    found = model.evaluate(predictions, labels, batch_size=4, verbose=0, return_dict=True)
    for name, expected in METRICS.items():
        np.testing.assert_allclose(found[name], expected(labels, predictions), 1e-5, err_msg=name)


def test_training(monkeypatch):
    """Recurrent layers of a model have the same bits in TensorFlow's executor and in XLA."""
    data = usual(8, TIMES, FEATURES)
    weights = []
    for first_steps in ("0", "1000"):
        monkeypatch.setenv("IPU_KERAS_FIRST_STEPS", first_steps)
        keras.utils.set_random_seed(0)
        with IPUStrategy().scope():
            inputs = keras.Input(data.shape[1:], batch_size=4, dtype="float16")
            layers = [L.SimpleRNN, L.LSTM, L.GRU, PopnnLSTM, PopnnGRU]
            outputs = L.Add()([layer(UNITS, dtype="float16")(inputs) for layer in layers])
            model = keras.Model(inputs, outputs)
            model.compile(keras.optimizers.SGD(0.25), "mse")
        model.fit(data, np.zeros((8, UNITS)), batch_size=4, epochs=2, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)
