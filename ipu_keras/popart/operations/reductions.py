"""Sums, means, extremes and norms over axes, and where the extremes are."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.popart.operations.operation import operation
from ipu_keras.popart.operations.sizes import axis_within


def _reduced(compute: Callable[..., Any], x: Any, axes: Sequence[int] | None, keepdims: int) -> Any:
    """A reduction; over all axes, if none is named or the list of them is empty."""
    return compute(x, axis=list(axes) if axes else None, keepdims=bool(keepdims))


def _reduced_exactly(
    compute: Callable[..., Any], x: Any, axes: Sequence[int] | None, keepdims: int
) -> Any:
    """A reduction whose way leads through fractions: of integers, what is before the point."""
    exact = tf.cast(x, tf.float64) if x.dtype.is_integer else x
    return tf.cast(_reduced(compute, exact, axes, keepdims), x.dtype)


@operation("ReduceSum", axis="axes")
def reduce_sum(x, *, axes=None, keepdims):
    return _reduced(tf.reduce_sum, x, axes, keepdims)


@operation("ReduceMean", axis="axes")
def reduce_mean(x, *, axes=None, keepdims):
    return _reduced(tf.reduce_mean, x, axes, keepdims)


@operation("ReduceProd", axis="axes")
def reduce_prod(x, *, axes=None, keepdims):
    return _reduced(tf.reduce_prod, x, axes, keepdims)


@operation("ReduceMax", axis="axes")
def reduce_max(x, *, axes=None, keepdims):
    return _reduced(tf.reduce_max, x, axes, keepdims)


@operation("ReduceMin", axis="axes")
def reduce_min(x, *, axes=None, keepdims):
    return _reduced(tf.reduce_min, x, axes, keepdims)


@operation("ReduceL1", axis="axes")
def reduce_l1(x, *, axes=None, keepdims):
    magnitudes = x if x.dtype.is_unsigned else tf.abs(x)
    return _reduced(tf.reduce_sum, magnitudes, axes, keepdims)


@operation("ReduceL2", axis="axes")
def reduce_l2(x, *, axes=None, keepdims):
    def norm(x, axis, keepdims):
        # With 16 bits squares overflow from 256 on. XLA has no kernel for TensorFlow's own norm.
        wide = tf.cast(x, tf.float32) if x.dtype.size < 4 else x
        return tf.cast(tf.sqrt(tf.reduce_sum(wide * wide, axis, keepdims)), x.dtype)

    return _reduced_exactly(norm, x, axes, keepdims)


@operation("ReduceSumSquare", axis="axes")
def reduce_sum_square(x, *, axes=None, keepdims):
    return _reduced(tf.reduce_sum, x * x, axes, keepdims)


@operation("ReduceLogSum", axis="axes")
def reduce_log_sum(x, *, axes=None, keepdims):
    def log_sum(x, axis, keepdims):
        return tf.math.log(tf.reduce_sum(x, axis, keepdims))

    return _reduced_exactly(log_sum, x, axes, keepdims)


@operation("ReduceLogSumExp", axis="axes")
def reduce_log_sum_exp(x, *, axes=None, keepdims):
    return _reduced_exactly(tf.reduce_logsumexp, x, axes, keepdims)


@operation("ArgMax", axis="axis")
def arg_max(x, *, axis, keepdims):
    return _position(tf.argmax, x, axis, keepdims)


@operation("ArgMin", axis="axis")
def arg_min(x, *, axis, keepdims):
    return _position(tf.argmin, x, axis, keepdims)


def _position(find: Callable[..., Any], x: Any, axis: int, keepdims: int) -> Any:
    found = find(x, axis=axis, output_type=tf.int64)
    return tf.expand_dims(found, axis) if keepdims else found


@operation("TopK", since=11, static=["k"])
def top_k(x, k, *, axis, largest, sorted_):
    # They are in order whether this is asked for or not, which is one of the orders allowed.
    ordered = _moved(x, axis, -1)
    if not largest:
        ordered = _reversed_order(ordered)
    values, positions = tf.math.top_k(ordered, int(k.item()))
    # TensorFlow has a gradient only where the positions have 32 bits.
    positions = tf.cast(positions, tf.int64)
    if not largest:
        values = _reversed_order(values)
    return _moved(values, -1, axis), _moved(positions, -1, axis)


@operation("TopK", since=10, static=["k"])
def top_k_10(x, k, *, axis):
    return top_k(x, k, axis=axis, largest=1, sorted_=1)


@operation("TopK")
def top_k_1(x, *, axis, k):
    return top_k(x, np.asarray(k), axis=axis, largest=1, sorted_=1)


def _moved(x: Any, source: int, destination: int) -> Any:
    rank = x.shape.rank
    source, destination = axis_within(source, rank), axis_within(destination, rank)
    if source == destination:
        return x
    order = [axis for axis in range(rank) if axis != source]
    order.insert(destination, source)
    return tf.transpose(x, order)


def _reversed_order(x: Any) -> Any:
    """Numbers of which the smallest is the largest; of integers none is without its opposite."""
    return tf.bitwise.invert(x) if x.dtype.is_integer else -x


@operation("CumSum", since=11, static=["axis"])
def cum_sum(x, axis, *, exclusive, reverse):
    return tf.cumsum(x, int(axis.item()), exclusive=bool(exclusive), reverse=bool(reverse))
