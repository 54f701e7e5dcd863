"""Computes the gradient of a kernel that multiplies several axes as one product.

Keras writes attention's projections, and every `EinsumDense`, as products of each sequence with
the same kernel. TensorFlow's gradient of the kernel is a product for each sequence and then
their sum. One product over all sequences takes a fraction of the time, and needs no memory for
the products.
"""

import contextlib

import tensorflow as tf

from ipu_keras.host.rewrites.replacement import replaced
from ipu_keras.internals.tensorflow.operations import static_shape
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.tracing.as_written import Replaced

# Finds the axes over which TensorFlow sums the gradient of an operand that was broadcast: for
# each of two shapes, those where it has one element or none.
_BROADCAST_AXES = "BroadcastGradientArgs"


def joint_summed_products() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While this is open, sums of products `x^T y` over all batches become one product.

    Only the order of summation differs. Short types are left alone, as their sum is rounded
    after each product.
    """
    return replaced({"Sum"}, _joint_product)


def _joint_product(inputs, output) -> tf.Tensor | None:
    products, axes = inputs
    op = products.op
    if op.type != "BatchMatMulV2" or products.dtype != tf.float32:
        return None
    x, y = op.inputs
    shapes = (x.shape, y.shape, output.shape)
    if (
        not all(shape.is_fully_defined() for shape in shapes)
        or static_sizes(x)[:-2] != static_sizes(y)[:-2]
    ):
        return None
    if not op.get_attr("adj_x") or op.get_attr("adj_y"):
        return None
    if _axes(axes, products.shape.rank) != list(range(products.shape.rank - 2)):
        return None
    if output.shape != static_sizes(products)[-2:]:
        return None
    return tf.matmul(_rows(x), _rows(y), transpose_a=True)


def _axes(axes: tf.Tensor, rank: int) -> list[int] | None:
    """Returns the axes that a tensor names, in order; `None` if they are not known yet."""
    if axes.op.type != _BROADCAST_AXES:
        found = tf.get_static_value(axes)
        return None if found is None else sorted(found.reshape(-1) % rank)
    shapes = [static_shape(shape) for shape in axes.op.inputs]
    if not all(shape.is_fully_defined() for shape in shapes):
        return None
    own = shapes[axes.value_index]
    missing = max(map(len, shapes)) - len(own)
    return [axis for axis, size in enumerate([1] * missing + own.as_list()) if size == 1]


def _rows(matrices: tf.Tensor) -> tf.Tensor:
    return tf.reshape(matrices, (-1, static_sizes(matrices)[-1]))
