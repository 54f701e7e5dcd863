"""Three hundred computations of halves beside NumPy's, each in all ways in which a host has them.

An IPU computes in float32 and rounds what each of its operations returns. A case has a formula
that does the same with `half_arithmetic.Halves`, or exactly with float64. Results may be one half
off, as float32's own error may lie on the other side of what is halfway between two halves, and
further where a case says so.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
import pytest
import scipy.special as sp
import tensorflow as tf
from half_arithmetic import EVERY, Halves, halves, once, slopes, spacing

from ipu_addons.keras.layers import SerialDense
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.ops.math_ops import serialized_matmul


@dataclass(frozen=True)
class Case:
    """What is computed, and what is right.

    Args:
        compute: From tensors to a tensor or several.
        expected: From arrays to the same number of arrays.
        given: Arrays of halves, or of integers.
        ulps: By how many halves each result may be off.
        roundings: By how many halves, where they lie as they do near the largest of an array: what
            roundings before the last one change that sum to something small.
        in_xla: Whether XLA has the bits of TensorFlow's kernels. Not where it approximates a function
            in its own way: then it is right as well, but not alike.
        eagerly: Whether single operations have the bits of a function.
    """

    compute: Callable
    expected: Callable
    given: tuple
    ulps: float = 1
    roundings: float = 0
    in_xla: bool = True
    eagerly: bool = True


CASES: dict[str, dict[str, Case]] = {}


def add(group, name, *case, **options):
    found = CASES.setdefault(group, {})
    assert name not in found
    found[name] = Case(*case, **options)


def gradients(compute, *given):
    """Returns what computes gradients of halves; the gradient that arrives is the first argument."""
    places = [k for k, array in enumerate(given) if array.dtype == np.float16]

    def computed(upstream, *tensors):
        sources = [tensors[k] for k in places]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            result = compute(*tensors)
        found = tape.gradient(result, sources, upstream, unconnected_gradients="zero")
        return list(map(tf.convert_to_tensor, found))

    return computed


def sloped(compute, expected, *given, step=1.0):
    """Returns what a case of gradients has.

    What is right is computed by differences, which a step of 1 makes exact for all that is linear in
    each of its arguments.
    """
    result = expected(*map(halves, given))
    upstream = eighths(*result.shape)
    places = [k for k, array in enumerate(given) if array.dtype == np.float16]

    def right(upstream, *given):
        found = slopes(expected, given, upstream, step, places)
        return [halves(slope) for slope in found]

    return gradients(compute, *given), right, (upstream, *given)


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
            [values[id(each)] for each in variables]
            for variables in (made.trainable_variables, made.non_trainable_variables)
        )
        given = inputs[0] if num_inputs == 1 else list(inputs)
        return made.stateless_call(*states, given, **options)[0]

    return computed


# Elementwise operations, of every finite half.

ARRIVING = np.resize(np.float16([1, -0.3, 2.5, 1e-3, 100, -7]), len(EVERY))


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
    "elu": (tf.nn.elu, once(lambda x: np.where(x > 0, x, np.expm1(x))), once(
        lambda x, y, dy: np.where(y < 0, dy * (y + 1), dy))),
    "erf": (tf.math.erf, sp.erf, lambda x, y, dy: dy * ROOT_OF_PI * np.exp(-np.square(x))),
    "erfc": (tf.math.erfc, sp.erfc, lambda x, y, dy: dy * -ROOT_OF_PI * np.exp(-np.square(x))),
    "exp": (tf.exp, np.exp, lambda x, y, dy: dy * y),
    "expm1": (tf.math.expm1, np.expm1, lambda x, y, dy: dy * np.exp(x)),
    "leaky_relu": (tf.nn.leaky_relu, once(lambda x: np.where(x > 0, x, np.float32(0.2) * x)), once(
        lambda x, y, dy: np.where(x > 0, dy, np.float32(0.2) * dy))),
    "lgamma": (tf.math.lgamma, sp.gammaln, lambda x, y, dy: dy * sp.digamma(x)),
    "log": (tf.math.log, np.log, lambda x, y, dy: dy * (1 / x)),
    "log1p": (tf.math.log1p, np.log1p, lambda x, y, dy: dy * (1 / (x + 1))),
    "ndtri": (tf.math.ndtri, sp.ndtri, None),
    "reciprocal": (tf.math.reciprocal, lambda x: 1 / x, once(lambda x, y, dy: -dy * y * y)),
    "relu6": (tf.nn.relu6, lambda x: np.clip(x, 0, 6), None),
    "rsqrt": (tf.math.rsqrt, once(lambda x: 1 / np.sqrt(x)), once(
        lambda x, y, dy: -0.5 * dy * y * y * y)),
    "selu": (tf.nn.selu, once(
        lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(x))), once(
        lambda x, y, dy: np.where(y < 0, dy * (y + SELU_SCALE * SELU_ALPHA), dy * SELU_SCALE))),
    "sigmoid": (tf.sigmoid, sp.expit, once(lambda x, y, dy: dy * y * (1 - y))),
    "sin": (tf.sin, np.sin, lambda x, y, dy: dy * np.cos(x)),
    "sinh": (tf.sinh, np.sinh, lambda x, y, dy: dy * np.cosh(x)),
    "softplus": (tf.nn.softplus, once(lambda x: np.logaddexp(x, 0)),
        lambda x, y, dy: dy * sp.expit(x)),
    "softsign": (tf.nn.softsign, once(lambda x: x / (1 + abs(x))), once(
        lambda x, y, dy: dy / (1 + abs(x)) ** 2)),
    "sqrt": (tf.sqrt, np.sqrt, once(lambda x, y, dy: dy * 0.5 / y)),
    "square": (tf.square, np.square, lambda x, y, dy: dy * (x * 2)),
    "tan": (tf.tan, np.tan, lambda x, y, dy: dy * np.square(1 / np.cos(x))),
    "tanh": (tf.tanh, np.tanh, once(lambda x, y, dy: dy * (1 - y * y))),
    "bessel_i0e": (tf.math.bessel_i0e, sp.i0e, None),
    "bessel_i1e": (tf.math.bessel_i1e, sp.i1e, None),
    "sign": (tf.sign, np.sign, None),
}
for name, (compute, value, slope) in ELEMENTWISE.items():
    add("elementwise", name, compute, value, (EVERY,))
    if slope:
        add("gradients of elementwise operations", name,
            gradients(compute, EVERY),
            lambda dy, x, value=value, slope=slope: slope(x, value(x), dy), (ARRIVING, EVERY))

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
    "xlogy": (lambda a, b: tf.math.xlogy(a, tf.abs(b)), once(
        lambda a, b: np.where(a == 0, 0, a * np.log(abs(b))))),
    "xlog1py": (lambda a, b: tf.math.xlog1py(a, tf.abs(b)), once(
        lambda a, b: np.where(a == 0, 0, a * np.log1p(abs(b))))),
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
    # Numbers that are far apart, and so large that some of their sums are not halves.
    add("reductions", name, compute, value, (MATRIX * np.float16(896),))
    if name not in ("reduce_prod", "cumprod"):
        add("reductions", f"{name}, gradient", *sloped(compute, value, MATRIX, step=2.0**-12))

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
    given = [eighths(*shape) for shape in shapes]
    add("products", name, compute, value, tuple(given))
    large = tuple(array * np.float16(256) for array in given)
    add("products", f"{name}, overflowing", compute, value, large)
    add("products", f"{name}, gradients", *sloped(compute, value, *given))

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
        layer(lambda **d: L.Dense(4, use_bias=False, **d)), once(np.matmul), [(2, 3, 6), (6, 4)]),
    "EinsumDense": (
        layer(lambda **d: L.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="e", **d)),
        biased(product_of("abc,cde->abde")), [(2, 3, 4), (4, 2, 3), (3,)]),
    "SerialDense": (
        layer(lambda **d: SerialDense(4, 2, **d)),
        biased(np.matmul), [(3, 6), (6, 4), (4,)]),
    "Conv1D": (
        layer(lambda **d: L.Conv1D(3, 3, **d)), biased(convolution), [(2, 7, 2), (3, 2, 3), (3,)]),
    "Conv1D, causal": (
        layer(lambda **d: L.Conv1D(3, 2, padding="causal", **d)),
        biased(lambda x, k: convolution(np.pad(x, [(0, 0), (1, 0), (0, 0)]), k)),
        [(2, 5, 2), (2, 2, 3), (3,)]),
    "Conv2D": (
        layer(lambda **d: L.Conv2D(3, 3, **d)), biased(convolution),
        [(2, 5, 5, 2), (3, 3, 2, 3), (3,)]),
    "Conv2D, same": (
        layer(lambda **d: L.Conv2D(3, (2, 3), padding="same", **d)), biased(convolution, same=True),
        [(1, 4, 5, 2), (2, 3, 2, 3), (3,)]),
    "Conv2D, strides": (
        layer(lambda **d: L.Conv2D(3, 3, strides=2, padding="same", **d)),
        biased(convolution, stride=2, same=True), [(2, 6, 6, 2), (3, 3, 2, 3), (3,)]),
    "Conv2D, dilated": (
        layer(lambda **d: L.Conv2D(3, 2, dilation_rate=2, **d)), biased(convolution, dilation=2),
        [(1, 5, 6, 2), (2, 2, 2, 3), (3,)]),
    "Conv2D, groups": (
        layer(lambda **d: L.Conv2D(4, 3, groups=2, **d)), biased(convolution, groups=2),
        [(1, 5, 5, 4), (3, 3, 2, 4), (4,)]),
    "Conv3D": (
        layer(lambda **d: L.Conv3D(2, 2, **d)), biased(convolution),
        [(1, 3, 4, 3, 2), (2, 2, 2, 2, 2), (2,)]),
    "Conv3D, strides": (
        layer(lambda **d: L.Conv3D(2, 2, strides=2, **d)), biased(convolution, stride=2),
        [(1, 4, 4, 4, 2), (2, 2, 2, 2, 2), (2,)]),
    "DepthwiseConv1D": (
        layer(lambda **d: L.DepthwiseConv1D(3, **d)), biased(depthwise),
        [(2, 6, 3), (3, 3, 1), (3,)]),
    "DepthwiseConv2D": (
        layer(lambda **d: L.DepthwiseConv2D(3, depth_multiplier=2, **d)), biased(depthwise),
        [(1, 5, 5, 2), (3, 3, 2, 2), (4,)]),
    "DepthwiseConv2D, strides": (
        layer(lambda **d: L.DepthwiseConv2D(2, strides=2, padding="same", **d)),
        biased(depthwise, stride=2, same=True), [(1, 5, 5, 2), (2, 2, 2, 1), (2,)]),
    "SeparableConv1D": (
        layer(lambda **d: L.SeparableConv1D(3, 3, **d)),
        lambda x, d, p, b: once(convolution)(once(depthwise)(x, d), p) + b,
        [(2, 6, 2), (3, 2, 1), (1, 2, 3), (3,)]),
    "SeparableConv2D": (
        layer(lambda **d: L.SeparableConv2D(3, 3, **d)),
        lambda x, d, p, b: once(convolution)(once(depthwise)(x, d), p) + b,
        [(1, 5, 5, 2), (3, 3, 2, 1), (1, 1, 2, 3), (3,)]),
    "Conv1DTranspose": (
        layer(lambda **d: L.Conv1DTranspose(3, 3, strides=2, **d)), biased(transposed, stride=2),
        [(2, 4, 2), (3, 3, 2), (3,)]),
    "Conv2DTranspose": (
        layer(lambda **d: L.Conv2DTranspose(3, 3, **d)), biased(transposed),
        [(1, 3, 4, 2), (3, 3, 3, 2), (3,)]),
    "Conv2DTranspose, strides": (
        layer(lambda **d: L.Conv2DTranspose(2, 3, strides=2, **d)), biased(transposed, stride=2),
        [(1, 3, 3, 2), (3, 3, 2, 2), (2,)]),
    "Conv3DTranspose": (
        layer(lambda **d: L.Conv3DTranspose(2, 2, strides=2, **d)), biased(transposed, stride=2),
        [(1, 2, 3, 2, 2), (2, 2, 2, 2, 2), (2,)]),
}
for name, (compute, value, shapes) in LAYERS.items():
    given = [eighths(*shape) for shape in shapes]
    add("layers", name, compute, value, tuple(given))
    add("gradients of layers", name, *sloped(compute, value, *given))


# How they are computed.


@functools.cache
def results(group, way):
    """What all cases of a group become, in one function."""
    strategy = IPUStrategy()
    if way != "eager":
        # No function may make the variables of layers.
        results(group, "eager")

    @tf.function(jit_compile=way == "XLA", autograph=False)
    def function(given):
        return {name: CASES[group][name].compute(*given[name]) for name in given}

    given = {name: tuple(map(tf.constant, case.given)) for name, case in CASES[group].items()}
    with strategy.scope(), tf.device("/device:IPU:0"):
        found = function.python_function(given) if way == "eager" else function(given)
    return {name: [np.asarray(t) for t in tf.nest.flatten(found[name])] for name in found}


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


def off(found, right, case):
    """By how much of what is allowed results are off."""
    found, right = (np.nan_to_num(np.float64(each), nan=0) for each in (found, right))
    largest = spacing(abs(right).max(initial=0))
    return abs(found - right) / (case.ulps * spacing(right) + case.roundings * largest)


@each_case
@pytest.mark.parametrize("way", ["executor", "XLA"])
def test_values(group, name, way):
    case = CASES[group][name]
    given = [halves(array) if array.dtype == np.float16 else array for array in case.given]
    expected = case.expected(*given)
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    for one, right in zip(results(group, way)[name], expected, strict=True):
        assert one.dtype == np.float16
        np.testing.assert_array_equal(np.isnan(one), np.isnan(right))
        np.testing.assert_array_less(off(one, right, case), 1 + 1e-9)


@each_case
@pytest.mark.parametrize("way", ["eager", "XLA"])
def test_bits(group, name, way):
    for one, other in zip(results(group, way)[name], results(group, "executor")[name], strict=True):
        np.testing.assert_array_equal(one, other)
