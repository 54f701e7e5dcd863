"""Matrix products, determinants and Einstein sums."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.annotation_names import (
    SERIALIZE_MATMUL_FACTOR,
    SERIALIZE_MATMUL_MODE,
)
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.sizes import sizes_of


@operation("MatMul")
def matmul(a, b, *, context):
    _check_parts(a, b, context.node.annotations)
    if a.shape.rank > 2 and b.shape.rank == 2:
        # Computed as one product: with oneDNN and AVX-512, TensorFlow 2.21's batched product of
        # `(n, 1, m, k)` and `(k, j)` writes behind its result, which ends processes at random.
        *outer, inner = sizes_of(a)
        product = _product(tf.reshape(a, [-1, inner]), b)
        return tf.reshape(product, [*outer, sizes_of(b)[1]])
    if a.shape.rank > 1 and b.shape.rank > 1:
        return _product(a, b)
    # As in NumPy: a vector is a row on the left and a column on the right.
    rows = a if a.shape.rank > 1 else a[tf.newaxis, :]
    columns = b if b.shape.rank > 1 else b[:, tf.newaxis]
    product = _product(rows, columns)
    product = product if b.shape.rank > 1 else tf.squeeze(product, -1)
    if a.shape.rank > 1:
        return product
    return tf.squeeze(product, -2 if b.shape.rank > 1 else -1)


@operation("Gemm", since=11)
def gemm(a, b, c=None, *, alpha, beta, transA, transB):
    product = _scaled(_product(a, b, bool(transA), bool(transB)), alpha)
    if c is None:
        return product
    if c.shape.rank == 2 and c.shape[0] == 1:
        # One row is a bias, which TensorFlow fuses with the product if it is a vector.
        c = tf.squeeze(c, 0)
    return product + _scaled(c, beta)


@operation("Gemm", since=7)
def gemm_7(a, b, c, *, alpha, beta, transA, transB):
    return gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@operation("Gemm", since=6)
def gemm_6(a, b, c, *, alpha, beta, transA, transB, broadcast):
    result = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    if not broadcast and not result.shape.is_compatible_with(c.shape):
        raise popart_exception(
            f"The third input must have the shape {result.shape} of the result, as the "
            f"attribute `broadcast` is 0. Received: {c.shape}. Set `broadcast` to 1."
        )
    return result


def _check_parts(a: Any, b: Any, annotations: Mapping[str, Any]) -> None:
    """Refuses to divide a product into parts of different sizes, by `setSerializeMatMul`."""
    mode: str = annotations.get(SERIALIZE_MATMUL_MODE, "none")
    factor: int = annotations.get(SERIALIZE_MATMUL_FACTOR, 0)
    # A vector has no channels: it is one row, or one column.
    size = {
        "input_channels": a.shape[-2] if a.shape.rank > 1 else 1,
        "reducing_dim": a.shape[-1],
        "output_channels": b.shape[-1] if b.shape.rank > 1 else 1,
    }.get(mode)
    if size is not None and factor and size % factor:
        what = mode.removesuffix("_dim").replace("_", " ")
        raise popart_exception(
            f"Invalid serialisation factor {factor} for {what} dim {size}, which it must divide. "
            "Choose another one with `builder.setSerializeMatMul`."
        )


def _product(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    if not a.dtype.is_unsigned:
        return tf.matmul(a, b, transpose_a, transpose_b)
    # TensorFlow has no product of unsigned matrices. Modulo a power of two, sums of 64 bits wrap
    # around to the same result.
    product = tf.matmul(tf.cast(a, tf.int64), tf.cast(b, tf.int64), transpose_a, transpose_b)
    return tf.cast(product, a.dtype)


def _scaled(x: Any, factor: float) -> Any:
    if factor == 1:
        return x
    if x.dtype.is_integer:
        return tf.cast(tf.cast(x, tf.float64) * factor, x.dtype)
    return factor * x


@operation("Det", since=11)
def det(x):
    if x.dtype is tf.float16:
        # TensorFlow has no float16 kernel for determinants.
        return tf.cast(tf.linalg.det(tf.cast(x, tf.float32)), x.dtype)
    return tf.linalg.det(x)


@operation("Einsum", since=12)
def einsum(*inputs, equation):
    return tf.einsum(equation.replace(" ", ""), *inputs)
