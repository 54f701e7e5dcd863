"""Matrix products in several parts, which documents have as `ipu.math_ops`."""

import functools
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import (
    check_choice,
    check_flag,
    check_tensor,
    positive_integer,
)

_DTYPES = (tf.float16, tf.float32, tf.int32)


def serialized_matmul(
    a: Any,
    b: Any,
    serialization_factor: int,
    serialization_dimension: str,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Multiplies matrices in several smaller products, one after the other.

    Each needs less memory for its partial results than the whole, and an IPU has to copy more.
    The gradients are computed in as many parts.

    Of `a`, `(..., m, k)`, and `b`, `(..., k, n)`, after they are transposed if asked for, the
    dimension to cut is one of these:

    - `"a_columns"`: `m`. Each part is some rows of the result.
    - `"a_rows_b_columns"`: `k`. The parts are summed up.
    - `"b_rows"`: `n`. Each part is some columns of the result.

    Args:
        a: A tensor of float16, float32 or int32, of rank 2 or more.
        b: A tensor of the same type. Its outer dimensions are those of `a`; or there are none,
            and each matrix of `a` is multiplied with it.
        serialization_factor: Number of parts, which divides the dimension.
        serialization_dimension: Which dimension is cut.
        transpose_a: Whether `a` is given as `(..., k, m)`.
        transpose_b: Whether `b` is given as `(..., n, k)`.
        name: Name scope of the operations.

    Returns:
        The products, `(..., m, n)`.

    Raises:
        TypeError: A tensor is of another type.
        ValueError: There is no such dimension, the factor does not divide it, or a tensor is
            not a matrix, or they cannot be multiplied.

    Example:

    >>> a, b = tf.ones((2, 6)), tf.ones((6, 4))
    >>> print(serialized_matmul(a, b, 3, "a_rows_b_columns").numpy())
    [[6. 6. 6. 6.]
     [6. 6. 6. 6.]]
    """
    a, b = _matrices("a", a), _matrices("b", b)
    if a.dtype != b.dtype:
        raise TypeError(
            "`a` and `b` must be of one type; cast one of them. "
            f"Received: a of {a.dtype.name}, b of {b.dtype.name}"
        )
    transpose_a = check_flag("transpose_a", transpose_a)
    transpose_b = check_flag("transpose_b", transpose_b)
    _check_fit(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    axis_m, axis_k_of_a = (-1, -2) if transpose_a else (-2, -1)
    axis_k_of_b, axis_n = (-1, -2) if transpose_b else (-2, -1)
    # By dimension: the axes along which `a` and `b` are cut, and the axis of the result along
    # which parts are put together; `None` for no such axis.
    cuts = {
        "a_columns": (axis_m, None, -2),
        "a_rows_b_columns": (axis_k_of_a, axis_k_of_b, None),
        "b_rows": (None, axis_n, -1),
    }
    check_choice("serialization_dimension", serialization_dimension, cuts)
    factor = positive_integer("serialization_factor", serialization_factor)
    cut_a, cut_b, joined = cuts[serialization_dimension]
    with tf.name_scope(name or "serialized_matmul"):
        products = [
            tf.matmul(part_a, part_b, transpose_a=transpose_a, transpose_b=transpose_b)
            for part_a, part_b in zip(
                _parts("a", a, factor, cut_a),
                _parts("b", b, factor, cut_b),
                strict=True,
            )
        ]
        if joined is None:
            # Summed one by one, as an IPU adds each product to the sum before it computes the
            # next: that is what saves memory.
            return functools.reduce(tf.add, products)
        return tf.concat(products, axis=joined)


def _matrices(argument: str, tensor: Any) -> tf.Tensor:
    tensor = check_tensor(argument, tensor, _DTYPES)
    if tensor.shape.rank is None or tensor.shape.rank < 2:
        raise ValueError(
            f"`{argument}` must have rank 2 or more. Received: {argument} of shape {tensor.shape}"
        )
    return tensor


def _check_fit(a: tf.Tensor, b: tf.Tensor, *, transpose_a: bool, transpose_b: bool) -> None:
    columns = static_sizes(a)[-2 if transpose_a else -1]
    rows = static_sizes(b)[-1 if transpose_b else -2]
    try:
        tf.broadcast_static_shape(a.shape[:-2], b.shape[:-2])
        fits = None in (columns, rows) or columns == rows
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            "`a` must have as many columns as `b` has rows, and outer dimensions that broadcast. "
            f"Received: a of shape {a.shape}, b of shape {b.shape}, transpose_a={transpose_a}, "
            f"transpose_b={transpose_b}"
        )


def _parts(argument: str, tensor: tf.Tensor, factor: int, axis: int | None) -> list[tf.Tensor]:
    """Returns the parts of a tensor along an axis; without an axis, the whole for each part."""
    if axis is None:
        return [tensor] * factor
    size = static_sizes(tensor)[axis]
    if size is not None and size % factor:
        raise ValueError(
            "`serialization_factor` must divide the dimension that is cut. "
            f"Received: serialization_factor={factor}, {argument} of shape {tensor.shape}, whose "
            f"axis {axis} has size {size}"
        )
    return tf.split(tensor, factor, axis)
