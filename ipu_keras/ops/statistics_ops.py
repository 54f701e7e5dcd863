"""Histograms, which documents have as `ipu.statistics_ops` and `ipu.ops.statistics_ops`."""

from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import check_flag, check_tensor, positive_integer
from ipu_keras.tracing.poplar_operation import poplar_operation

_DTYPES = (tf.float16, tf.float32)


def fixed_width_bins(inputs: Any, n_bins: int) -> tf.Tensor:
    """Returns the levels that divide the range of a tensor's values into bins of one width.

    Args:
        inputs: A vector of float16 or float32.
        n_bins: Number of bins, at least 1.

    Returns:
        The `n_bins - 1` levels between the bins, rising, in a vector of the type of `inputs`.
        The lowest bin is open below, and the highest above, as `histogram` has them.

    Raises:
        TypeError: `inputs` is not a tensor.
        ValueError: `inputs` is not such a vector, or `n_bins` is not a positive integer.

    Example:

    >>> print(fixed_width_bins([0.0, 1.0, 4.0], 4).numpy())
    [1. 2. 3.]
    """
    inputs = _vector("inputs", inputs)
    n_bins = positive_integer("n_bins", n_bins)
    with tf.name_scope("fixed_width_bins"):
        wide = tf.cast(inputs, tf.float32)
        low, high = tf.reduce_min(wide), tf.reduce_max(wide)
        levels = low + (high - low) * tf.range(1, n_bins, dtype=tf.float32) / n_bins
        return tf.cast(levels, inputs.dtype)


def histogram(inputs: Any, levels: Any, absolute_of_input: bool = False) -> tf.Tensor:
    """Counts the values of a tensor between levels.

    Args:
        inputs: A vector of float16 or float32.
        levels: A rising vector of the same type.
        absolute_of_input: Whether magnitudes are counted instead of values.

    Returns:
        Counts, a float32 vector with one element more than `levels`: of values less than the
        first level, of those from a level to the next, which belongs to the next, and of
        those that are not less than the last one. They are exact up to 2**24.

    Raises:
        TypeError: An argument is not a tensor, or `absolute_of_input` not a boolean.
        ValueError: A tensor is not a vector, or of another type, or they are of two types.

    Example:

    >>> print(histogram([-3.0, 0.0, 1.0, 1.5], [0.0, 1.0]).numpy())
    [1. 1. 2.]
    """
    inputs, levels = _vector("inputs", inputs), _vector("levels", levels)
    if inputs.dtype != levels.dtype:
        raise ValueError(
            "`levels` must be of the type of `inputs`; cast one of them. "
            f"Received: levels of {levels.dtype.name}, inputs of {inputs.dtype.name}"
        )
    absolute_of_input = check_flag("absolute_of_input", absolute_of_input)
    with poplar_operation("Histogram"):
        # The cast is exact, and a search among float16 numbers is slower. A float32 result counts
        # exactly up to 2**24, float16 only up to 2048.
        values, sorted_levels = tf.cast(inputs, tf.float32), tf.cast(levels, tf.float32)
        values = tf.abs(values) if absolute_of_input else values
        bins = tf.searchsorted(sorted_levels, values, side="right")
        return tf.math.unsorted_segment_sum(tf.ones_like(values), bins, tf.size(sorted_levels) + 1)


def histogram_update(
    hist: Any, inputs: Any, levels: Any, absolute_of_input: bool = False
) -> tf.Tensor:
    """Adds the values of a tensor to a histogram.

    Args:
        hist: What `histogram` returned for the same levels.
        inputs: A vector of float16 or float32.
        levels: A rising vector of the same type.
        absolute_of_input: Whether magnitudes are counted instead of values.

    Returns:
        The histogram of all values, of the shape and type of `hist`.

    Raises:
        TypeError: An argument is not a tensor, or `absolute_of_input` not a boolean.
        ValueError: `histogram` would refuse a tensor, or `hist` is not one of these levels.

    Example:

    >>> print(histogram_update([1.0, 1.0, 2.0], [7.0, 0.5], [0.0, 1.0]).numpy())
    [1. 2. 3.]
    """
    hist, levels = check_tensor("hist", hist), _vector("levels", levels)
    if not (hist.dtype.is_floating or hist.dtype.is_integer):
        raise TypeError(f"`hist` must be numbers. Received: hist of {hist.dtype.name}")
    if hist.shape != (static_sizes(levels)[0] + 1,):
        raise ValueError(
            "`hist` must have one element more than `levels`. "
            f"Received: hist of shape {hist.shape}, levels of shape {levels.shape}"
        )
    with poplar_operation("Histogram"):
        return hist + tf.cast(histogram(inputs, levels, absolute_of_input), hist.dtype)


def _vector(argument: str, tensor: Any) -> tf.Tensor:
    tensor = check_tensor(argument, tensor)
    if tensor.dtype not in _DTYPES:
        raise ValueError(
            f"`{argument}` must be of float16 or float32; cast it first. "
            f"Received: a tensor of {tensor.dtype.name}"
        )
    if tensor.shape.rank != 1:
        raise ValueError(
            f"`{argument}` must be a vector; reshape it first. "
            f"Received: {argument} of shape {tensor.shape}"
        )
    return tensor
