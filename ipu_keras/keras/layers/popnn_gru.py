"""Popnn's GRU as a Keras layer."""

import keras
import tensorflow as tf

from ipu_keras.internals.tensorflow.contexts import may_record
from ipu_keras.keras.layers.popnn_rnn import PopnnRNN
from ipu_keras.ops.argument_checks import check_flag
from ipu_keras.ops.rnn.operations import popnn_gru


@keras.saving.register_keras_serializable(package="ipu_keras")
class PopnnGRU(PopnnRNN):
    """A GRU over whole sequences, as one operation.

    K. Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014. The weights
    are those of `keras.layers.GRU`, so that `get_weights` of one are for `set_weights` of the
    other, and so are the results; `hard_sigmoid` alone is another function, `x / 5 + 1 / 2`
    between 0 and 1, as it was in Keras 2. `rnn_ops.gru_weights_from_keras` makes them those of
    `rnn_ops.PopnnGRU`, and `gru_weights_to_keras` does the opposite.

    Args:
        units: Number of values in the state.
        activation: `"tanh"`, `"relu"`, `"softmax"`, `"sigmoid"`, `"hard_sigmoid"` or `None`,
            which is the identity. Defaults to `"tanh"`.
        recurrent_activation: Activation of the gates: as `activation`, but not `"relu"`.
            Defaults to `"sigmoid"`.
        use_bias: Whether there is a bias. Defaults to `True`.
        kernel_initializer: Initializer of the inputs' weights. Defaults to `"glorot_uniform"`.
        recurrent_initializer: Initializer of the state's weights. Defaults to `"orthogonal"`.
        bias_initializer: Initializer of the bias. Defaults to `"zeros"`.
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
        return_state: Whether the last state is returned too. Defaults to `False`.
        go_backwards: Not supported; leave it out.
        stateful: Whether the next batch continues from the state after this one. Defaults to
            `False`.
        unroll: Not supported; leave it out.
        reset_after: Whether the reset gate is applied after the candidate's product with the
            state, or before it. Defaults to `True`.
        seed: An integer for those of the kernels' initializers that are given by name. Defaults
            to `None`.
        partials_dtype: Type of the sums in products, tf.float16 or tf.float32. An IPU has those
            of float32 numbers in float32 whatever this is.
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
        initial_state: The state before the first step, `(batch, units)`. Defaults to zeros.
        mask: `(batch, time)`, or `(time, batch)`. Steps where it is false are left out.

    Raises:
        UnsupportedArgumentError: A `NotImplementedError` and a `ValueError`, if an argument is
            given that is not supported.
        ValueError: If another argument is none of those that are named here.

    Example:

    >>> outputs, state = PopnnGRU(4, return_sequences=True, return_state=True)(tf.ones((2, 5, 3)))
    >>> outputs.shape, state.shape
    (TensorShape([2, 5, 4]), TensorShape([2, 4]))
    """

    _kind = "GRU"

    def __init__(
        self,
        units,
        activation="tanh",
        recurrent_activation="sigmoid",
        use_bias=True,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
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
        reset_after=True,
        seed=None,
        partials_dtype=tf.float32,
        time_major=False,
        available_memory_proportion_fwd=None,
        available_memory_proportion_bwd=None,
        **kwargs,
    ):
        # Taken before any other name is bound: these are the arguments of this constructor.
        arguments = locals()
        super().__init__(units, num_gates=3, num_states=1, arguments=arguments, kwargs=kwargs)
        self.reset_after = check_flag("reset_after", reset_after)

    def _bias_shape(self):
        # As in Keras: with `reset_after` the product of the state has a bias of its own, which
        # the reset gate multiplies too.
        return (2, 3 * self.units) if self.reset_after else (3 * self.units,)

    def call(self, inputs, training=None, initial_state=None, mask=None):
        return self._over_sequence(inputs, mask, training, initial_state)

    def _run(self, sequence, states, mask):
        return popnn_gru(
            sequence,
            *states,
            *self._weights_of(sequence),
            reset_after=self.reset_after,
            training=may_record(),
            **self._operation_options(mask),
        )

    def state_shape(self, batch_size):
        """Returns the shape of the state, `[batch_size, units]`.

        Args:
            batch_size: Number of samples in a batch.
        """
        return [batch_size, self.units]

    def get_config(self):
        return {**super().get_config(), "reset_after": self.reset_after}


GRU = PopnnGRU
