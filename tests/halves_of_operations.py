"""Operations of halves beside NumPy: elementwise ones of every finite half, sums and products."""

import functools

import numpy as np
import scipy.special as sp
import tensorflow as tf
from half_arithmetic import EVERY, once
from half_cases import Numbers, add

from ipu_keras.ops.math_ops import serialized_matmul

NUMBERS = Numbers()

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

MATRIX = np.float16(NUMBERS.random.permutation(40).reshape(5, 8) - 19.5) / 8
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
    given = tuple(NUMBERS.eighths(*shape) for shape in shapes)
    large = tuple(array * np.float16(256) for array in given)
    add("products", name, compute, value, given, large, step=1)
