"""The gradient of a kernel that multiplies several axes, as one product.

Keras writes attention's projections, and every `EinsumDense`, as products of each sequence with
the same kernel. TensorFlow's gradient of the kernel is a product for each sequence and then their
sum; as one product over all sequences it takes a fraction of the time, and the products need no
memory.
"""

import contextlib

import tensorflow as tf

from ipu_keras.tracing.replacement import Replaced, replaced

# Gradients of operands that were broadcast are summed over the axes that this finds.
_BROADCAST_AXES = "BroadcastGradientArgs"


def joint_summed_products() -> contextlib.AbstractContextManager[list[Replaced]]:
    """While tracing, replaces sums of products `x^T y` over all batches by one product.

    The numbers are the same but for the order in which they are summed. Only float32 is
    replaced: the sum of short types is rounded after each product.
    """
    return replaced("Sum", _joint_product)


def _joint_product(inputs, output) -> tf.Tensor | None:
    products, axes = inputs
    op = products.op
    if op.type != "BatchMatMulV2" or products.dtype != tf.float32:
        return None
    x, y = op.inputs
    shapes = (x.shape, y.shape, output.shape)
    if not all(shape.is_fully_defined() for shape in shapes) or x.shape[:-2] != y.shape[:-2]:
        return None
    if not op.get_attr("adj_x") or op.get_attr("adj_y"):
        return None
    if not _sums_batches(axes, products.shape.rank) or output.shape != products.shape[-2:]:
        return None
    return tf.matmul(_rows(x), _rows(y), transpose_a=True)


def _sums_batches(axes: tf.Tensor, rank: int) -> bool:
    if axes.op.type == _BROADCAST_AXES:
        return True  # which are among those of batches
    found = tf.get_static_value(axes)
    return found is not None and sorted(found.reshape(-1) % rank) == list(range(rank - 2))


def _rows(matrices: tf.Tensor) -> tf.Tensor:
    return tf.reshape(matrices, (-1, matrices.shape[-1]))
