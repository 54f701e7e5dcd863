"""Reductions over axes, positions of extremes, and cumulative sums and products."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.popart.operations.operation import Operation, operation
from ipu_keras.popart.operations.sizes import axis_within

# Takes the tensor, its axes (`None` for all) and whether they are kept, by TensorFlow's names.
_Reduce = Callable[..., Any]


def _by_attribute(kind: str, reduce: _Reduce) -> Operation:
    """Declares a reduction whose axes are an attribute; without any it reduces all axes."""

    @operation(kind, axis="axes")
    def reduced(x, *, axes=None, keepdims):
        return reduce(x, axis=list(axes) if axes else None, keepdims=bool(keepdims))

    return reduced


def _by_input(kind: str, since: int, reduce: _Reduce) -> Operation:
    """Declares a reduction whose axes are an input, as ONNX has it since version 13 or 18.

    Without axes it reduces all of them, or none with `noop_with_empty_axes`.
    """

    @operation(kind, since=since, static=["axes"], axis="axes")
    def reduced(x, axes=None, *, keepdims, noop_with_empty_axes):
        if axes is None or not axes.size:
            return reduce(x, axis=[] if noop_with_empty_axes else None, keepdims=bool(keepdims))
        return reduce(x, axis=axes.ravel().tolist(), keepdims=bool(keepdims))

    return reduced


def _exact(compute: _Reduce) -> _Reduce:
    """Wraps a reduction that computes with fractions: integers are reduced in float64, then cut."""

    def reduce(x: Any, axis: Sequence[int] | None, keepdims: bool) -> Any:
        exact = tf.cast(x, tf.float64) if x.dtype.is_integer else x
        return tf.cast(compute(exact, axis, keepdims), x.dtype)

    return reduce


def _norm(x: Any, axis: Sequence[int] | None, keepdims: bool) -> Any:
    # Squares of float16 overflow from 256 on. XLA has no translation of TensorFlow's own norm.
    wide = tf.cast(x, tf.float32) if x.dtype.size < 4 else x
    return tf.cast(tf.sqrt(tf.reduce_sum(wide * wide, axis, keepdims)), x.dtype)


def _sum_of_magnitudes(x: Any, axis: Sequence[int] | None, keepdims: bool) -> Any:
    return tf.reduce_sum(x if x.dtype.is_unsigned else tf.abs(x), axis, keepdims)


def _sum_of_squares(x: Any, axis: Sequence[int] | None, keepdims: bool) -> Any:
    return tf.reduce_sum(x * x, axis, keepdims)


def _logarithm_of_sum(x: Any, axis: Sequence[int] | None, keepdims: bool) -> Any:
    return tf.math.log(tf.reduce_sum(x, axis, keepdims))


def _largest(x: Any, axis: Sequence[int] | None, keepdims: bool) -> Any:
    # ONNX takes booleans here since version 20, for which TensorFlow has other operations.
    reduce = tf.reduce_any if x.dtype.is_bool else tf.reduce_max
    return reduce(x, axis, keepdims)


def _smallest(x: Any, axis: Sequence[int] | None, keepdims: bool) -> Any:
    reduce = tf.reduce_all if x.dtype.is_bool else tf.reduce_min
    return reduce(x, axis, keepdims)


reduce_sum = _by_attribute("ReduceSum", tf.reduce_sum)
reduce_mean = _by_attribute("ReduceMean", tf.reduce_mean)
reduce_prod = _by_attribute("ReduceProd", tf.reduce_prod)
reduce_max = _by_attribute("ReduceMax", tf.reduce_max)
reduce_min = _by_attribute("ReduceMin", tf.reduce_min)
reduce_l1 = _by_attribute("ReduceL1", _sum_of_magnitudes)
reduce_l2 = _by_attribute("ReduceL2", _exact(_norm))
reduce_sum_square = _by_attribute("ReduceSumSquare", _sum_of_squares)
reduce_log_sum = _by_attribute("ReduceLogSum", _exact(_logarithm_of_sum))
reduce_log_sum_exp = _by_attribute("ReduceLogSumExp", _exact(tf.reduce_logsumexp))

reduce_sum_13 = _by_input("ReduceSum", 13, tf.reduce_sum)
reduce_mean_18 = _by_input("ReduceMean", 18, tf.reduce_mean)
reduce_prod_18 = _by_input("ReduceProd", 18, tf.reduce_prod)
reduce_max_18 = _by_input("ReduceMax", 18, _largest)
reduce_min_18 = _by_input("ReduceMin", 18, _smallest)
reduce_l1_18 = _by_input("ReduceL1", 18, _sum_of_magnitudes)
reduce_l2_18 = _by_input("ReduceL2", 18, _exact(_norm))
reduce_sum_square_18 = _by_input("ReduceSumSquare", 18, _sum_of_squares)
reduce_log_sum_18 = _by_input("ReduceLogSum", 18, _exact(_logarithm_of_sum))
reduce_log_sum_exp_18 = _by_input("ReduceLogSumExp", 18, _exact(tf.reduce_logsumexp))


@operation("ArgMax", axis="axis")
def arg_max(x, *, axis, keepdims):
    return _position(tf.argmax, x, axis, keepdims)


@operation("ArgMin", axis="axis")
def arg_min(x, *, axis, keepdims):
    return _position(tf.argmin, x, axis, keepdims)


@operation("ArgMax", since=12, axis="axis")
def arg_max_12(x, *, axis, keepdims, select_last_index):
    find = _last(tf.argmax) if select_last_index else tf.argmax
    return _position(find, x, axis, keepdims)


@operation("ArgMin", since=12, axis="axis")
def arg_min_12(x, *, axis, keepdims, select_last_index):
    find = _last(tf.argmin) if select_last_index else tf.argmin
    return _position(find, x, axis, keepdims)


def _last(find: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function find the last of equal extremes, where TensorFlow finds the first."""

    def found(x: Any, axis: int, output_type: tf.DType) -> Any:
        size = tf.cast(tf.shape(x)[axis], output_type)
        return size - 1 - find(tf.reverse(x, [axis]), axis=axis, output_type=output_type)

    return found


def _position(find: Callable[..., Any], x: Any, axis: int, keepdims: int) -> Any:
    found = find(x, axis=axis, output_type=tf.int64)
    return tf.expand_dims(found, axis) if keepdims else found


@operation("TopK", since=11, static=["k"])
def top_k(x, k, *, axis, largest, sorted_):
    # Without `sorted` ONNX allows any order, and so the sorted one.
    ordered = _moved(x, axis, -1)
    if not largest:
        ordered = _reversed_order(ordered)
    values, positions = tf.math.top_k(ordered, int(k.item()))
    # TensorFlow's gradient needs positions of 32 bits, so they are cast behind it.
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
    """Reverses the order of numbers.

    Integers are inverted bit by bit: the least of them has no negative, nor has any unsigned one.
    """
    return tf.bitwise.invert(x) if x.dtype.is_integer else -x


@operation("CumSum", since=11, static=["axis"])
def cum_sum(x, axis, *, exclusive, reverse):
    return tf.cumsum(x, int(axis.item()), exclusive=bool(exclusive), reverse=bool(reverse))


@operation("CumProd", since=26, static=["axis"])
def cum_prod(x, axis, *, exclusive, reverse):
    exact = tf.cast(x, tf.float64) if x.dtype.is_integer else x
    product = tf.math.cumprod(
        exact, int(axis.item()), exclusive=bool(exclusive), reverse=bool(reverse)
    )
    return tf.cast(product, x.dtype)
