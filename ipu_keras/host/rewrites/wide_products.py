"""Computes gradients of kernels with more rows than columns as transposes of wide products.

For a product `x^T y`, XLA packs one operand and has a slower kernel if the result is taller
than wide. Its transpose `y^T x` takes as long as any, and to transpose the result takes next to
nothing if there are many rows to sum over.
"""

import contextlib
from collections.abc import Sequence

import tensorflow as tf

from ipu_keras.host.rewrites.replacement import replaced
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.internals.tensorflow.xla import barrier, transposes_products
from ipu_keras.tracing.as_written import Replaced

# The number of products in each element of the result. Fewer are little beside what reads the
# transposed result. Measured with Adam after the product, processor time without by that with,
# medians of 21 rounds, for results of 512x128 and 784x256: 32 rows 0.82 and 0.81, 128 0.92 and
# 0.83, 256 0.99 and 0.84, 512 1.09 and 0.89, 1024 1.15 and 0.91, 2048 1.27 and 0.98.
_LEAST_ROWS = 512


def wide_products() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While this is open for XLA, products `x^T y` of float32 taller than wide are transposed.

    Only the order of summation differs.
    """
    return replaced({"MatMul"} if transposes_products() else (), _transposed)


def _transposed(inputs: Sequence[tf.Tensor], output: tf.Tensor) -> tf.Tensor | None:
    x, y = inputs
    op = output.op
    if output.dtype != tf.float32 or not op.get_attr("transpose_a") or op.get_attr("transpose_b"):
        return None
    if not (x.shape.is_fully_defined() and y.shape.is_fully_defined()):
        return None
    (num_rows, height), width = static_sizes(x), static_sizes(y)[1]
    if num_rows < _LEAST_ROWS or height <= width:
        return None
    # Without the barrier, XLA's simplifier makes `x^T y` of it again.
    return tf.transpose(barrier(tf.matmul(y, x, transpose_a=True)))
