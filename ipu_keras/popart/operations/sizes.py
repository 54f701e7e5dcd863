"""Sizes of axes: numbers where they are known while tracing, tensors where they are not."""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception


def sizes_of(x: Any) -> list[Any]:
    """The size of each axis.

    Args:
        x: A tensor of known rank.
    """
    known = x.shape.as_list()
    if None not in known:
        return known
    sizes = tf.unstack(tf.shape(x, out_type=tf.int64))
    return [size if number is None else number for number, size in zip(known, sizes, strict=True)]


# Of what is computed while tracing: an IPU has less memory for all of its program.
MOST_BYTES = 2**30


def check_bytes(num_bytes: int, most: int = MOST_BYTES) -> None:
    """Refuses to compute what takes much memory, and comes of a few bytes of a model.

    Args:
        num_bytes: That it takes.
        most: That it may.

    Raises:
        popart_exception: It takes more.
    """
    if num_bytes > most:
        raise popart_exception(
            f"Tensors that follow from the model alone may have {most} bytes, more than an IPU has "
            f"for its whole program. Received: a tensor with which they have {num_bytes}"
        )


def axis_within(axis: int, rank: int) -> int:
    """An axis counted from the first.

    Args:
        axis: Counted from the first, or below 0 from the last.
        rank: Number of axes.

    Raises:
        popart_exception: There are fewer axes.
    """
    if not -rank <= axis < rank:
        raise popart_exception(
            f"An axis of a tensor of rank {rank} must be from {-rank} to {rank - 1}. "
            f"Received: {axis}"
        )
    return axis % rank


def product_of(sizes: Sequence[Any]) -> Any:
    """How many elements axes of these sizes have together; 1 without any.

    Args:
        sizes: As of `sizes_of`.
    """
    return math.prod(sizes)


def flattened(x: Any, axis: int) -> Any:
    """A tensor as a matrix: its axes before one, and those from that one on.

    Args:
        x: It.
        axis: From minus its rank to its rank.

    Raises:
        popart_exception: There are fewer axes.
    """
    sizes = sizes_of(x)
    # It may be behind the last.
    axis = axis if axis == len(sizes) else axis_within(axis, len(sizes))
    return tf.reshape(x, [product_of(sizes[:axis]), product_of(sizes[axis:])])
