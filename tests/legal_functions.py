"""Functions of TensorFlow that are legal, made of one operation after the other."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

FLOATS = (tf.float32, tf.float16, tf.bfloat16, tf.float64)
INTEGERS = (
    *(tf.int8, tf.int16, tf.int32, tf.int64),
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64),
)
COMPLEX = (tf.complex64, tf.complex128)
NARROW = (tf.dtypes.experimental.float8_e4m3fn, tf.dtypes.experimental.int4)
DTYPES = (*FLOATS, *INTEGERS, *COMPLEX, tf.bool, *NARROW)
SHAPES = ((), (1,), (6,), (3, 4), (4, 4), (2, 1, 5), (2, 8, 8, 3))

Step = Callable[[tf.Tensor], tf.Tensor]


def _rows(x: tf.Tensor) -> tf.Tensor:
    """Of any tensor, a matrix of the same elements."""
    return tf.reshape(x, (1 if 0 in x.shape else x.shape[0], -1)) if x.shape.rank else x[None, None]


def _images(x: tf.Tensor) -> tf.Tensor:
    return x if x.shape.rank == 4 else tf.reshape(_rows(x), (1, -1, 1, 1))


def _square(x: tf.Tensor) -> tf.Tensor:
    return tf.matmul(_rows(x), _rows(x), adjoint_b=True)


def _ordered(x: tf.Tensor) -> tf.Tensor:
    """Rows of numbers that have an order: among others, XLA ends the process of who searches."""
    return tf.maximum(_rows(x), _rows(x))


def _index(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.reduce_max(tf.cast(x, tf.float32)), tf.int32) % 3


def _indices(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.reshape(x, (-1,)), tf.int32) % 3


def _in_python(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(np.copy, [x], x.dtype), x.shape)


def _loop(x: tf.Tensor) -> tf.Tensor:
    condition, body = (lambda k, _: k < _index(x)), (lambda k, y: (k + 1, y + y))
    return tf.while_loop(condition, body, (0, x))[1]


def _unary(*kinds: str) -> dict[str, Step]:
    return {kind: lambda x, kind=kind: getattr(tf.raw_ops, kind)(x=x) for kind in kinds}


def _binary(*kinds: str, names: tuple[str, str] = ("x", "y")) -> dict[str, Step]:
    """Of a tensor and its last part, which is broadcast."""

    def call(x: tf.Tensor, kind: str) -> tf.Tensor:
        other = tf.reverse(x, [0])[:1] if x.shape.rank else x
        return getattr(tf.raw_ops, kind)(**dict(zip(names, (x, other), strict=True)))

    return {kind: lambda x, kind=kind: call(x, kind) for kind in kinds}


def _along(*kinds: str) -> dict[str, Step]:
    return {
        kind: lambda x, kind=kind: getattr(tf.raw_ops, kind)(input=_rows(x), axis=[1])
        for kind in kinds
    }


def _windows(x: tf.Tensor, kind: str, window: int) -> tf.Tensor:
    pool = getattr(tf.nn, kind)
    return pool(_images(x), window, min(window, 2), "SAME")


# By name. What one makes of a tensor that it does not take is no function.
STEPS: Mapping[str, Step] = {
    **_unary(
        *("Abs", "Acosh", "Asin", "Atanh", "BesselI0e", "Ceil", "Cos", "Cosh", "Digamma"),
        *("Erf", "Erfc", "Erfinv", "Exp", "Expm1", "Floor", "Inv", "Invert", "IsFinite", "IsInf"),
        *("IsNan", "Lgamma", "Log", "Log1p", "LogicalNot", "Ndtri", "Neg", "PopulationCount"),
        *("Reciprocal", "Rint", "Round", "Rsqrt", "Sigmoid", "Sign", "Sinh", "Sqrt", "Square"),
        *("Tan", "Tanh"),
    ),
    **_binary(
        *("Add", "Atan2", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "DivNoNan"),
        *(
            "Equal",
            "FloorDiv",
            "FloorMod",
            "Greater",
            "Igamma",
            "Igammac",
            "LeftShift",
            "LessEqual",
        ),
        *("LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mod", "Mul", "MulNoNan", "NextAfter"),
        *("NotEqual", "Pow", "RightShift", "SquaredDifference", "Sub", "TruncateDiv"),
        *("TruncateMod", "Xdivy", "Xlog1py", "Xlogy"),
    ),
    **_binary("Complex", names=("real", "imag")),
    **_binary("Igamma", "Igammac", "Polygamma", names=("a", "x")),
    **_binary("NextAfter", names=("x1", "x2")),
    **_binary("Zeta", names=("x", "q")),
    **_along("All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum"),
    **{
        f"bitcast to {dtype.name}": lambda x, dtype=dtype: tf.bitcast(x, dtype)
        for dtype in (tf.uint8, tf.int16, tf.uint32, tf.float32, tf.float64, tf.complex64)
    },
    **{
        f"cast to {dtype.name}": lambda x, dtype=dtype: tf.cast(x, dtype)
        for dtype in (*DTYPES, tf.float32)
    },
    **{
        f"{kind} of {window}": lambda x, kind=kind, window=window: _windows(x, kind, window)
        for kind in ("avg_pool2d", "max_pool2d")
        for window in (1, 3)
    },
    "argmax": lambda x: tf.argmax(_rows(x), axis=1),
    "bincount": lambda x: tf.math.bincount(_indices(x)),
    "boolean mask": lambda x: tf.boolean_mask(x, tf.cast(x, tf.bool)),
    "bucketize": lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[0.0, 1.0]),
    "case": lambda x: tf.switch_case(_index(x), [lambda: x + x, lambda: -x, lambda: x * x]),
    "categorical": lambda x: tf.random.categorical(_rows(x), 2),
    "cholesky": lambda x: tf.linalg.cholesky(_square(x)),
    "clip": lambda x: tf.clip_by_value(x, tf.zeros_like(x), tf.ones_like(x)),
    "concat": lambda x: tf.concat([_rows(x), _rows(x)], 1),
    "cond": lambda x: tf.cond(_index(x) > 0, lambda: x + x, lambda: tf.zeros_like(x)),
    "conjugate": tf.math.conj,
    "convolution": lambda x: tf.nn.conv2d(
        _images(x), tf.ones((3, 1, _images(x).shape[-1], 2), x.dtype), 2, "SAME"
    ),
    "cumprod": lambda x: tf.math.cumprod(_rows(x), axis=1, reverse=True),
    "cumsum": lambda x: tf.cumsum(_rows(x), axis=1, exclusive=True),
    "cumulative logsumexp": lambda x: tf.math.cumulative_logsumexp(_rows(x), axis=1),
    "determinant": lambda x: tf.linalg.det(_square(x)),
    "eigenvalues": lambda x: tf.linalg.eigvalsh(_square(x)),
    "empty": lambda x: _rows(x)[:, :0],
    "fake quantization": tf.quantization.fake_quant_with_min_max_args,
    "fft": lambda x: tf.signal.fft(_rows(x)),
    "gamma": lambda x: tf.random.gamma((2,), tf.abs(x)),
    "gather": lambda x: tf.gather(_rows(x), _indices(x) % _rows(x).shape[0]),
    "gather of a batch": lambda x: tf.gather(_rows(x), [[0], [0]], batch_dims=1, axis=1),
    "gradient of ReLU": lambda x: tf.raw_ops.ReluGrad(gradients=x, features=x),
    "in Python": _in_python,
    "inverse": lambda x: tf.linalg.inv(_square(x)),
    "loop": _loop,
    "map": lambda x: tf.map_fn(lambda row: row + row, _rows(x)),
    "matrix band": lambda x: tf.linalg.band_part(_rows(x), 1, 0),
    "matrix diagonal": lambda x: tf.linalg.diag(_rows(x)[:, :5]),
    "nonzero": lambda x: tf.where(tf.cast(x, tf.bool)),
    "normal": lambda x: tf.random.normal(x.shape, dtype=x.dtype),
    "one hot": lambda x: tf.one_hot(_indices(x), 4, dtype=x.dtype),
    "pad": lambda x: tf.pad(_rows(x), [[0, 1], [2, 0]], constant_values=tf.ones((), x.dtype)),
    "poisson": lambda x: tf.random.poisson((2,), tf.abs(x)),
    "product": _square,
    "qr": lambda x: tf.linalg.qr(_rows(x))[1],
    "range of a value": lambda x: tf.range(_index(x)),
    "real part": tf.math.real,
    "reshape to a value": lambda x: tf.reshape(x, tf.stack([_index(x) * 0 + 1, -1])),
    "resize": lambda x: tf.image.resize(_images(x), (4, 5)),
    "reverse": lambda x: tf.reverse(_rows(x), [1]),
    "rfft": lambda x: tf.signal.rfft(_rows(x)),
    "roll": lambda x: tf.roll(_rows(x), 1, 1),
    "scan": lambda x: tf.scan(lambda total, row: total + row, _rows(x)),
    "scatter": lambda x: tf.scatter_nd(_indices(x)[:, None], tf.reshape(x, (-1,)), (3,)),
    "scatter of maxima": lambda x: tf.tensor_scatter_nd_max(
        tf.zeros((3,), x.dtype), _indices(x)[:, None], tf.reshape(x, (-1,))
    ),
    "search": lambda x: tf.searchsorted(_ordered(x), _ordered(x)),
    "segments": lambda x: tf.math.unsorted_segment_prod(tf.reshape(x, (-1,)), _indices(x), 3),
    "shuffle": tf.random.shuffle,
    "slice": lambda x: tf.slice(_rows(x), [0, _index(x)], [1, 1]),
    "softmax": tf.nn.softmax,
    "solve": lambda x: tf.linalg.triangular_solve(_square(x), _square(x)),
    "sort": lambda x: tf.sort(_rows(x), axis=1),
    "sort downwards": lambda x: tf.argsort(_rows(x), axis=0, direction="DESCENDING"),
    "svd": lambda x: tf.linalg.svd(_rows(x), compute_uv=False),
    "text": lambda x: tf.strings.to_number(tf.strings.as_string(x)),
    "tile": lambda x: tf.tile(_rows(x), [1, 2]),
    "top": lambda x: tf.math.top_k(_rows(x), 1).indices,
    "transpose": tf.transpose,
    "unique": lambda x: tf.unique(tf.reshape(x, (-1,)))[0],
    "update": lambda x: tf.tensor_scatter_nd_update(_rows(x), [[0]], _rows(x)[:1]),
}


def function_of(names: Sequence[str]) -> tuple[Callable[[tf.Tensor], Any], list[str]]:
    """A function of the named steps, and those that it took when it was traced last.

    A step is left out if its operation does not take the tensor that it would get: TensorFlow
    says so while it traces. A result of unknown shape, which no IPU can return, is summed up.

    Args:
        names: Keys of `STEPS`.
    """
    taken: list[str] = []

    def function(x: tf.Tensor) -> Any:
        taken.clear()
        for name in names:
            try:
                x = STEPS[name](x)
            except (AttributeError, TypeError, ValueError, tf.errors.OpError):
                continue
            taken.append(name)
        if not x.shape.is_fully_defined():
            x = tf.reduce_sum(tf.cast(x, tf.float32))
        return x

    return function, taken
