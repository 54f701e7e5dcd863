"""Weights of Keras's LSTM and GRU as those of `ipu_keras.ops.rnn_ops`, and back.

Both have their gates in the same order: input, forget, cell, output in an LSTM; update, reset,
candidate in a GRU. `rnn_ops` keeps the kernels of inputs and of the state in one variable
`kernel`, and has a row of `biases` for each gate.
"""

import numpy as np
from numpy.typing import ArrayLike


def lstm_weights_from_keras(
    kernel: ArrayLike, recurrent_kernel: ArrayLike, bias: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the weights of a `PopnnLSTM` of `rnn_ops` that computes what Keras's LSTM does.

    Args:
        kernel: `(features, 4 * units)`, of the inputs.
        recurrent_kernel: `(units, 4 * units)`.
        bias: `(4 * units,)`, or `None` for a layer without bias, which gives zeros.

    Returns:
        `kernel`, `(features + units, 4 * units)`, and `biases`, `(4, units)`.

    Example:

    >>> kernel, biases = lstm_weights_from_keras(np.ones((2, 12)), np.ones((3, 12)), np.ones(12))
    >>> kernel.shape, biases.shape
    ((5, 12), (4, 3))
    """
    return _from_keras(kernel, recurrent_kernel, bias, 4)


def lstm_weights_to_keras(
    kernel: ArrayLike, biases: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns weights for `set_weights` of Keras's LSTM, or of this package's Keras layer.

    Args:
        kernel: `(features + units, 4 * units)`.
        biases: `(4, units)`, a row for each gate.

    Returns:
        The kernel `(features, 4 * units)`, the recurrent kernel `(units, 4 * units)`
        and the bias `(4 * units,)`.

    Example:

    >>> [weight.shape for weight in lstm_weights_to_keras(np.ones((5, 12)), np.ones((4, 3)))]
    [(2, 12), (3, 12), (12,)]
    """
    return *_split(kernel, num_gates=4), np.asarray(biases).reshape(-1)


def gru_weights_from_keras(
    kernel: ArrayLike,
    recurrent_kernel: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    reset_after: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the weights of a `PopnnGRU` of `rnn_ops` that computes what Keras's GRU does.

    Args:
        kernel: `(features, 3 * units)`.
        recurrent_kernel: `(units, 3 * units)`.
        bias: `(2, 3 * units)`, of the inputs and of the state, with `reset_after`;
            `(3 * units,)` without; or `None` for a layer without bias, which gives zeros.
        reset_after: Whether both layers reset after the product.

    Returns:
        `kernel`, `(features + units, 3 * units)`, and `biases`, `(3, 2, units)` with
        `reset_after` or `(3, units)`.

    Example:

    >>> kernel, biases = gru_weights_from_keras(np.ones((2, 9)), np.ones((3, 9)), np.ones((2, 9)))
    >>> kernel.shape, biases.shape
    ((5, 9), (3, 2, 3))
    """
    joined, biases = _from_keras(kernel, recurrent_kernel, bias if not reset_after else None, 3)
    if not reset_after:
        return joined, biases
    if bias is None:
        return joined, np.stack([biases, biases], axis=1)
    return joined, np.reshape(bias, (2, 3, -1)).swapaxes(0, 1)


def gru_weights_to_keras(
    kernel: ArrayLike, biases: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns weights for `set_weights` of Keras's GRU, or of this package's Keras layer.

    Args:
        kernel: `(features + units, 3 * units)`.
        biases: `(3, 2, units)` with `reset_after`, or `(3, units)`.

    Returns:
        The kernel `(features, 3 * units)`, the recurrent kernel `(units, 3 * units)`
        and the bias `(2, 3 * units)` or `(3 * units,)`.

    Example:

    >>> [weight.shape for weight in gru_weights_to_keras(np.ones((5, 9)), np.ones((3, 2, 3)))]
    [(2, 9), (3, 9), (2, 9)]
    """
    kernels, biases = _split(kernel, num_gates=3), np.asarray(biases)
    if biases.ndim == 2:
        return *kernels, biases.reshape(-1)
    return *kernels, biases.swapaxes(0, 1).reshape(2, -1)


def _from_keras(
    kernel: ArrayLike, recurrent_kernel: ArrayLike, bias: ArrayLike | None, num_gates: int
) -> tuple[np.ndarray, np.ndarray]:
    joined = np.concatenate([np.asarray(kernel), np.asarray(recurrent_kernel)])
    if bias is None:
        bias = np.zeros(joined.shape[1], joined.dtype)
    return joined, np.reshape(bias, (num_gates, -1))


def _split(kernel: ArrayLike, *, num_gates: int) -> tuple[np.ndarray, np.ndarray]:
    joined = np.asarray(kernel)
    features = joined.shape[0] - joined.shape[1] // num_gates
    return joined[:features], joined[features:]
