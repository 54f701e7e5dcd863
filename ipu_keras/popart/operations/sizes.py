"""Computes with sizes of axes: numbers if they are known while tracing, tensors if they are not."""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception


def sizes_of(x: Any) -> list[Any]:
    """Returns the size of each axis of a tensor whose rank is known."""
    known = x.shape.as_list()
    if None not in known:
        return known
    sizes = tf.unstack(tf.shape(x, out_type=tf.int64))
    return [size if number is None else number for number, size in zip(known, sizes, strict=True)]


# The limit of all that is computed while tracing; an IPU has less memory for its whole program.
MOST_BYTES = 2**30


def check_bytes(num_bytes: int, most: int = MOST_BYTES) -> None:
    """Raises a `popart_exception` if tensors that follow from the model alone take too much memory.

    A few bytes of an untrusted file, such as a `ConstantOfShape`, may ask for any amount.
    """
    if num_bytes > most:
        raise popart_exception(
            f"Tensors that follow from the model alone may have {most} bytes, more than an IPU has "
            f"for its whole program. Received: a tensor with which they have {num_bytes}"
        )


def axis_within(axis: int, rank: int) -> int:
    """Returns an axis counted from the first; a negative `axis` counts from the last."""
    if not -rank <= axis < rank:
        raise popart_exception(
            f"An axis of a tensor of rank {rank} must be from {-rank} to {rank - 1}. "
            f"Received: {axis}"
        )
    return axis % rank


def product_of(sizes: Sequence[Any]) -> Any:
    """Multiplies sizes, which may be tensors; the product of none is 1."""
    return math.prod(sizes)


def flattened(x: Any, axis: int) -> Any:
    """Returns a tensor as a matrix, whose columns are the axes from `axis` on."""
    sizes = sizes_of(x)
    # ONNX's Flatten also takes the rank itself, which leaves one column.
    axis = axis if axis == len(sizes) else axis_within(axis, len(sizes))
    return tf.reshape(x, [product_of(sizes[:axis]), product_of(sizes[axis:])])
