"""Keras's LSTM layers on the IPU.

Keras asks its backend for an LSTM over a whole sequence, which only cuDNN has, and loops over
the steps itself if there is none.
"""

from typing import Any

import keras
import tensorflow as tf

from ipu_keras.hooks.keras.layer_calls import offer_lstm
from ipu_keras.internals.tensorflow.contexts import may_record
from ipu_keras.ipu_strategy import current_ipu_strategy
from ipu_keras.ops.recurrent import lstm as lstm_over_sequence
from ipu_keras.ops.recurrent import lstm_inference


def attach_lstm() -> None:
    """Lets Keras's backend offer an LSTM to models in a strategy's scope.

    It computes what Keras's own loop does, in fewer kernels, and leaves the gradients of the
    weights to single products over the whole sequence.
    """
    offer_lstm(_lstm_on_ipu)


def _lstm_on_ipu(inputs: tf.Tensor, initial_h: Any, initial_c: Any, **options: Any) -> Any:
    strategy = current_ipu_strategy()
    if strategy is None or not strategy.enable_keras_extensions or not _is_plain(inputs, **options):
        return None
    return _lstm(inputs, initial_h, initial_c, **options)


def _is_plain(inputs: Any, activation=None, recurrent_activation=None, **options: Any) -> bool:
    # As for cuDNN, only the default activations without unrolling; the other ones keep Keras's
    # loop.
    return (
        activation is keras.activations.tanh
        and recurrent_activation is keras.activations.sigmoid
        and not options.get("time_major")
        and not options.get("unroll")
        and inputs.shape.is_fully_defined()
        and inputs.shape[1] > 0
    )


def _lstm(
    inputs,
    initial_h,
    initial_c,
    *,
    kernel,
    recurrent_kernel,
    bias,
    return_sequences,
    go_backwards,
    **_: Any,
) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    """Returns the last output, all outputs or the last with a time axis, and the last state."""
    kernel, recurrent_kernel = map(keras.ops.convert_to_tensor, (kernel, recurrent_kernel))
    if bias is None:
        bias = tf.zeros(kernel.shape[1:], kernel.dtype)
    sequence = tf.transpose(inputs, [1, 0, 2])
    if go_backwards:
        sequence = tf.reverse(sequence, axis=[0])
    arguments = (
        sequence,
        initial_h,
        initial_c,
        kernel,
        recurrent_kernel,
        keras.ops.convert_to_tensor(bias),
    )
    # Only a pass that may be differentiated has to keep the values of its gates.
    if may_record():
        outputs, last_c = lstm_over_sequence(*arguments)
        last = outputs[-1]
    else:
        outputs, last_c = lstm_inference(*arguments, return_sequences=return_sequences)
        last = outputs[-1] if return_sequences else outputs
    returned = tf.transpose(outputs, [1, 0, 2]) if return_sequences else last[:, tf.newaxis]
    return last, returned, [last, last_c]
