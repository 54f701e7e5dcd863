"""Operations that make tensors from attributes, or from known shapes and bounds."""

import math

import numpy as np
import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.element_types import type_of
from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.sizes import check_bytes, sizes_of


@operation("Constant")
def constant(*, value):
    return value


@operation("Constant", since=11)
def constant_11(*, value=None, sparse_value=None):
    if (value is None) == (sparse_value is None):
        raise popart_exception(
            "Exactly one of the attributes `value` and `sparse_value` must be given. Received: "
            f"{'none' if value is None else 'both'}"
        )
    return sparse_value if value is None else value


@operation("Constant", since=12)
def constant_12(
    *,
    value=None,
    sparse_value=None,
    value_float=None,
    value_floats=None,
    value_int=None,
    value_ints=None,
    value_string=None,
    value_strings=None,
):
    given = [
        np.asarray(one, dtype)
        for one, dtype in (
            (value, None),
            (sparse_value, None),
            (value_float, np.float32),
            (value_floats, np.float32),
            (value_int, np.int64),
            (value_ints, np.int64),
            (value_string, object),
            (value_strings, object),
        )
        if one is not None
    ]
    if len(given) != 1:
        raise popart_exception(
            "Exactly one of the attributes `value`, `sparse_value` and `value_...` must be given. "
            f"Received: {len(given)} of them"
        )
    return given[0]


@operation("ConstantOfShape", since=9, static=["shape"])
def constant_of_shape(shape, *, value=None):
    # A few bytes of a model could ask for any amount of memory here.
    value = np.zeros([], np.float32) if value is None else value
    check_bytes(math.prod(shape.tolist()) * value.itemsize)
    return np.full(shape, value.item(), value.dtype)


@operation("EyeLike", since=9)
def eye_like(x, *, dtype=None, k):
    if x.shape.rank != 2:
        raise popart_exception(f"The input must be a matrix. Received one of shape {x.shape}")
    rows, columns = (tf.range(size, dtype=tf.int64) for size in sizes_of(x))
    is_one = columns - rows[:, tf.newaxis] == k
    return tf.cast(is_one, x.dtype if dtype is None else type_of(dtype))


@operation("Range", since=27, static=["start", "limit", "delta"])
def range_27(start, limit, delta, *, stash_type):
    # `stash_type` is the precision of intermediate sums, which have 64 bits here whatever it says.
    return range_(start, limit, delta)


@operation("Range", since=11, static=["start", "limit", "delta"])
def range_(start, limit, delta):
    first, step = start.item(), delta.item()
    if step == 0:
        raise popart_exception(
            "The input `delta` must not be 0. Received: start, limit and delta are "
            f"{first}, {limit.item()} and {step}"
        )
    number = max(math.ceil((limit.item() - first) / step), 0)
    check_bytes(number * start.itemsize)
    return (first + step * np.arange(number)).astype(start.dtype)
