"""Gradients, and what differences say that they are."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def jacobians(
    function: Callable[..., Any], inputs: Sequence[Any], delta: float
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """As `tf.test.compute_gradient`, which runs the function once for each result and each input.

    Here one tape has it, and gives the gradients by all inputs at once.

    Args:
        function: Takes the inputs; returns a real tensor.
        inputs: Real tensors or arrays.
        delta: What differences add to a number, and take from it.

    Returns:
        For each input a matrix `(results, numbers of the input)` by the tape, and one by
        central differences.
    """
    tensors = [tf.convert_to_tensor(each) for each in inputs]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(tensors)
        result = function(*tensors)
    rows = []
    for row in np.eye(int(tf.size(result)), dtype=result.dtype.as_numpy_dtype):
        by_input = tape.gradient(
            result,
            tensors,
            output_gradients=tf.constant(row.reshape(result.shape)),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        rows.append([np.ravel(tf.convert_to_tensor(each)) for each in by_input])
    by_tape = [np.stack(of_input) for of_input in zip(*rows, strict=True)]
    return by_tape, [_differences(function, tensors, k, delta) for k in range(len(tensors))]


def _differences(function, tensors, changed: int, delta: float) -> np.ndarray:
    array = np.array(tensors[changed])  # of a tensor without axes `numpy` makes no array

    def result_of(index: int, change: float) -> np.ndarray:
        other = array.copy()
        other.flat[index] += change
        given = [*tensors[:changed], tf.constant(other), *tensors[changed + 1 :]]
        return np.ravel(function(*given))

    columns = [result_of(k, delta) - result_of(k, -delta) for k in range(array.size)]
    return np.stack(columns, axis=1) / array.dtype.type(2 * delta)
