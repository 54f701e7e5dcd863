"""Recurrent layers as the operations of Popnn that they are on an IPU."""

from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.recurrent import gru, gru_inference, lstm, lstm_inference
from ipu_keras.tracing.poplar_operation import poplar_operation


def popnn_lstm(
    *tensors: tf.Tensor,
    kind: str = "PopnnLSTM",
    training: bool = True,
    return_sequences: bool = True,
    zero_masked: bool = False,
    memory_proportions: tuple[float | None, float | None] = (None, None),
    **options: Any,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Runs an LSTM as one operation of Popnn, named `kind` in reports.

    The tensors are those of `lstm`, from `inputs` to `bias`.

    Args:
        training: Whether to keep what the gradient needs. Without it there is a gradient all the
            same, which takes longer.
        return_sequences: Whether all outputs are asked for, or the last one.
        zero_masked: Whether outputs that the `mask` excludes are zeros, rather than what they
            were before. Needs all outputs.

    Returns:
        The outputs `(time, batch, units)` or the last one, and the last output and the last cell
        that were not masked, each `(batch, units)`.
    """
    with poplar_operation(kind, memory_proportions=memory_proportions):
        if training:
            outputs, c = lstm(*tensors, **options)
        else:
            outputs, c = lstm_inference(*tensors, return_sequences=return_sequences, **options)
        h = _last(outputs, tensors[1]) if training or return_sequences else outputs
        if zero_masked:
            outputs = _zeroed(outputs, options["mask"])
        return (outputs if return_sequences else h), h, c


def popnn_gru(
    *tensors: tf.Tensor | None,
    kind: str = "PopnnGRU",
    training: bool = True,
    return_sequences: bool = True,
    zero_masked: bool = False,
    memory_proportions: tuple[float | None, float | None] = (None, None),
    **options: Any,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Runs a GRU as one operation of Popnn, named `kind` in reports.

    The tensors are those of `gru`, from `inputs` to `bias`, and `attention` if there is any; the
    other arguments are those of `popnn_lstm`.

    Returns:
        The states `(time, batch, units)` or the last one, and the last one `(batch, units)`.
    """
    with poplar_operation(kind, memory_proportions=memory_proportions):
        if training:
            outputs = gru(*tensors, **options)
        else:
            outputs = gru_inference(*tensors, return_sequences=return_sequences, **options)
        h = _last(outputs, tensors[1]) if training or return_sequences else outputs
        if zero_masked:
            outputs = _zeroed(outputs, options["mask"])
        return (outputs if return_sequences else h), h


def _last(outputs: tf.Tensor, initial: tf.Tensor) -> tf.Tensor:
    """Returns the last step's output, or the initial state if there are no steps."""
    if static_sizes(outputs)[0] is None:
        return tf.concat([initial[tf.newaxis], outputs], axis=0)[-1]
    return outputs[-1] if static_sizes(outputs)[0] else initial


def _zeroed(outputs: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    return tf.where(mask[..., tf.newaxis], outputs, tf.zeros([], outputs.dtype))
