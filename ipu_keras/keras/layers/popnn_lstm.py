"""Popnn's LSTM as a Keras layer."""

from typing import Any

import keras
import tensorflow as tf

from ipu_keras.internals.tensorflow.contexts import may_record
from ipu_keras.keras.layers.popnn_rnn import PopnnRNN
from ipu_keras.ops.rnn.operations import popnn_lstm


@keras.saving.register_keras_serializable(package="ipu_keras")
class PopnnLSTM(PopnnRNN):
    """An LSTM over whole sequences, as one operation.

    S. Hochreiter and J. Schmidhuber, "Long short-term memory", 1997, with the forget gate of F.
    Gers et al., 2000. The weights are those of `keras.layers.LSTM`, so that `get_weights` of one
    are for `set_weights` of the other, and so are the results; `hard_sigmoid` alone is another
    function, `x / 5 + 1 / 2` between 0 and 1, as it was in Keras 2.
    `rnn_ops.lstm_weights_from_keras` makes them those of `rnn_ops.PopnnLSTM`, and
    `lstm_weights_to_keras` does the opposite.

    Args:
        units: Number of values in the output and in the cell.
        activation: `"tanh"`, `"relu"`, `"softmax"`, `"sigmoid"`, `"hard_sigmoid"` or `None`,
            which is the identity. Defaults to `"tanh"`.
        recurrent_activation: Activation of the gates: as `activation`, but not `"relu"`.
            Defaults to `"sigmoid"`.
        use_bias: Whether there is a bias. Defaults to `True`.
        kernel_initializer: Initializer of the inputs' weights. Defaults to `"glorot_uniform"`.
        recurrent_initializer: Initializer of the state's weights. Defaults to `"orthogonal"`.
        bias_initializer: Initializer of the bias, without `unit_forget_bias`. Defaults to
            `"zeros"`.
        unit_forget_bias: Whether the bias is zeros at first, and ones for the forget gate,
            whatever `bias_initializer` is. Defaults to `True`.
        kernel_regularizer: Not supported, as are the following until `bias_constraint`.
        recurrent_regularizer: Not supported; leave it out.
        bias_regularizer: Not supported; leave it out.
        activity_regularizer: Not supported; leave it out.
        kernel_constraint: Not supported; leave it out.
        recurrent_constraint: Not supported; leave it out.
        bias_constraint: Not supported; leave it out.
        dropout: Share of the inputs' features that are dropped in training; a sample loses the
            same ones at all steps. Defaults to 0.
        dropout_seed: Two integers, with which each step drops the same. Defaults to `None`.
        recurrent_dropout: Not supported; leave it out.
        implementation: Not supported; leave it out.
        return_sequences: Whether all outputs are returned, or the last one. Defaults to `False`.
        return_state: Whether the last output and the last cell are returned too. Defaults to
            `False`.
        go_backwards: Not supported; leave it out.
        stateful: Whether the next batch continues from the state after this one. Defaults to
            `False`.
        unroll: Not supported; leave it out.
        partials_dtype: Type of the sums in products, tf.float16 or tf.float32. An IPU has those
            of float32 numbers in float32 whatever this is.
        seed: An integer for those of the kernels' initializers that are given by name. Defaults
            to `None`.
        time_major: Whether time is the first axis of inputs, masks and outputs. Defaults to
            `False`.
        available_memory_proportion_fwd: Share of a tile's memory, above 0 and at most 1, for
            temporary data of the layer's products, which changes what the cost model says of
            them. Goes before that of the `IPUConfig`.
        available_memory_proportion_bwd: The same for the gradient.
        **kwargs: Further arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, time, features)`, or with `time_major` `(time, batch, features)`.
        training: Whether features are dropped, if `dropout` is set.
        initial_state: The output and the cell before the first step, `[h, c]`, or an
            `rnn_ops.LSTMStateTuple`; each `(batch, units)`. Defaults to zeros.
        mask: `(batch, time)`, or `(time, batch)`. Steps where it is false are left out.

    Raises:
        UnsupportedArgumentError: A `NotImplementedError` and a `ValueError`, if an argument is
            given that is not supported.
        ValueError: If another argument is none of those that are named here.

    Example:

    >>> outputs, h, c = PopnnLSTM(4, return_sequences=True, return_state=True)(tf.ones((2, 5, 3)))
    >>> outputs.shape, h.shape, c.shape
    (TensorShape([2, 5, 4]), TensorShape([2, 4]), TensorShape([2, 4]))
    """

    _kind = "LSTM"

    def __init__(
        self,
        units,
        activation="tanh",
        recurrent_activation="sigmoid",
        use_bias=True,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        unit_forget_bias=True,
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        dropout=0.0,
        dropout_seed=None,
        recurrent_dropout=0.0,
        implementation=1,
        return_sequences=False,
        return_state=False,
        go_backwards=False,
        stateful=False,
        unroll=False,
        partials_dtype=tf.float32,
        seed=None,
        time_major=False,
        available_memory_proportion_fwd=None,
        available_memory_proportion_bwd=None,
        **kwargs,
    ):
        # Taken before any other name is bound: these are the arguments of this constructor.
        arguments = locals()
        super().__init__(units, num_gates=4, num_states=2, arguments=arguments, kwargs=kwargs)
        self.unit_forget_bias = unit_forget_bias

    def _bias_initializer(self):
        if not self.unit_forget_bias:
            return self.bias_initializer
        # Keras's order of the gates: input, forget, cell, output.
        return lambda shape, dtype: keras.ops.repeat(
            keras.ops.array([0.0, 1.0, 0.0, 0.0], dtype), self.units
        )

    def __call__(self, inputs, *args, initial_state=None, **kwargs):
        # The file of a model holds tuples without names, so the order of `h` and `c` is settled
        # here.
        if initial_state is not None:
            kwargs["initial_state"] = self._listed(initial_state)
        return super().__call__(inputs, *args, **kwargs)

    def _listed(self, initial_state) -> list[Any]:
        if hasattr(initial_state, "h") and hasattr(initial_state, "c"):
            return [initial_state.h, initial_state.c]
        return super()._listed(initial_state)

    def call(self, inputs, training=None, initial_state=None, mask=None):
        return self._over_sequence(inputs, mask, training, initial_state)

    def _run(self, sequence, states, mask):
        return popnn_lstm(
            sequence,
            *states,
            *self._weights_of(sequence),
            training=may_record(),
            **self._operation_options(mask),
        )

    def state_shape(self, batch_size):
        """Returns the shapes of the output and of the cell, `[batch_size, units]` each.

        Args:
            batch_size: Number of samples in a batch.
        """
        return [batch_size, self.units], [batch_size, self.units]

    def get_config(self):
        return {**super().get_config(), "unit_forget_bias": self.unit_forget_bias}


LSTM = PopnnLSTM
