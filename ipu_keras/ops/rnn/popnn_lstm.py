"""LSTMs of Popnn that own their variables."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from ipu_keras.ops.rnn.operations import popnn_lstm
from ipu_keras.ops.rnn.popnn_layer import PopnnLayer, length_mask


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM, as `tf.compat.v1.nn.rnn_cell` has it in TensorFlow with Keras 2.

    Args:
        c: Tensor of the cell, `(batch, num_units)`.
        h: Tensor of the output, `(batch, num_units)`.
    """

    c: Any
    h: Any


class _LSTMLayer(PopnnLayer):
    _num_gates = 4

    def __init__(
        self,
        num_units: int,
        dtype: Any = tf.float32,
        partials_dtype: Any = tf.float32,
        seed: int | None = None,
        weights_initializer: Callable | None = None,
        bias_initializer: Callable | None = None,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
        name: str | None = None,
        available_memory_proportion_fwd: float | None = None,
        available_memory_proportion_bwd: float | None = None,
    ):
        super().__init__(
            num_units,
            dtype,
            partials_dtype,
            seed,
            weights_initializer,
            bias_initializer,
            activation,
            recurrent_activation,
            name,
            available_memory_proportion_fwd,
            available_memory_proportion_bwd,
        )

    def state_shape(self, batch_size: int) -> tuple[list[int], list[int]]:
        """Returns the shapes of the state's parts, `[batch_size, num_units]` each.

        Args:
            batch_size: Number of samples in a batch.
        """
        return [batch_size, self.num_units], [batch_size, self.num_units]

    def _states(self, initial_state: Any, inputs: tf.Tensor) -> list[tf.Tensor]:
        """Returns the output and the cell before the first step."""
        if initial_state is None:
            initial_state = LSTMStateTuple(None, None)
        elif not (hasattr(initial_state, "h") and hasattr(initial_state, "c")):
            raise ValueError(
                "`initial_state` must be an LSTMStateTuple(c=..., h=...), as `rnn_ops` has it. "
                f"Received: initial_state={initial_state!r}"
            )
        return [
            self._state(f"initial_state.{name}", getattr(initial_state, name), inputs)
            for name in ("h", "c")
        ]


class PopnnLSTM(_LSTMLayer):
    """An LSTM over time-major sequences, as one operation.

    S. Hochreiter and J. Schmidhuber, "Long short-term memory", 1997, with the forget gate of F.
    Gers et al., 2000. The variables are `kernel`, `(features + num_units, 4 * num_units)`, of
    the inputs and of the state below each other, and `biases`, `(4, num_units)`; gates are in
    the order input, forget, cell, output. `lstm_weights_from_keras` makes them from those of a
    Keras layer.

    Args:
        num_units: Number of values in the output and in the cell.
        dtype: Type of inputs, variables and results, tf.float16 or tf.float32.
        partials_dtype: Type of the sums in products, tf.float16 or tf.float32. An IPU has those
            of float32 numbers in float32 whatever this is.
        seed: An integer for the default of `weights_initializer`.
        weights_initializer: Initializer of `kernel`. Defaults to Glorot's uniform one.
        bias_initializer: Initializer of `biases`. Defaults to zeros.
        activation: `"tanh"`, `"relu"`, `"softmax"`, `"sigmoid"` or `"hard_sigmoid"`, which is `x
            / 5 + 1 / 2` between 0 and 1.
        recurrent_activation: Activation of the gates: as `activation`, but not `"relu"`.
        name: Name of the variable scope, if none is given to the call. Defaults to `popnn_lstm`.
        available_memory_proportion_fwd: Share of a tile's memory, above 0 and at most 1, for
            temporary data of the layer's products, which changes what the cost model says of
            them. Goes before that of the `IPUConfig`.
        available_memory_proportion_bwd: The same for the gradient.

    Raises:
        ValueError: An argument is none of those that are named here.

    Example:

    >>> lstm = PopnnLSTM(4)
    >>> outputs, state = lstm(tf.ones([5, 2, 3]))
    >>> outputs.shape, state.c.shape
    (TensorShape([5, 2, 4]), TensorShape([2, 4]))
    """

    def call(
        self, inputs: tf.Tensor, initial_state: Any = None, training: bool = True
    ) -> tuple[tf.Tensor, LSTMStateTuple]:
        """Runs the LSTM over the sequences.

        Args:
            inputs: Tensor of the shape `(time, batch, features)`.
            initial_state: An `LSTMStateTuple` of tensors `(batch, num_units)`. Defaults to
                zeros.
            training: Whether what the gradient needs is kept.

        Returns:
            The outputs `(time, batch, num_units)`, and the `LSTMStateTuple` after the last step.

        Raises:
            ValueError: `initial_state` has another type or shape.
        """
        outputs, h, c = self._run(
            popnn_lstm, inputs, *self._states(initial_state, inputs), training=training
        )
        return outputs, LSTMStateTuple(c, h)


class PopnnDynamicLSTM(_LSTMLayer):
    """An LSTM over time-major sequences that may end before the last step, as one operation.

    Where a sequence has ended, its outputs are zeros, and its state stays what it was.

    Args:
        num_units: Number of values in the output. All arguments are those of `PopnnLSTM`.

    Example:

    >>> lstm = PopnnDynamicLSTM(4)
    >>> outputs, state = lstm(tf.ones([5, 2, 3]), seq_len=tf.constant([5, 2]))
    >>> bool(tf.reduce_any(outputs[2:, 1] != 0))
    False
    """

    def call(
        self,
        inputs: tf.Tensor,
        seq_len: tf.Tensor,
        initial_state: Any = None,
        training: bool = True,
    ) -> tuple[tf.Tensor, LSTMStateTuple]:
        """Runs the LSTM over the sequences.

        Args:
            inputs: Tensor of the shape `(time, batch, features)`.
            seq_len: The number of steps of each sample, integers of shape `(batch,)`.
            initial_state: An `LSTMStateTuple` of tensors `(batch, num_units)`. Defaults to
                zeros.
            training: Whether what the gradient needs is kept.

        Returns:
            The outputs `(time, batch, num_units)`, and the `LSTMStateTuple` after the last step
            of each sample.

        Raises:
            ValueError: `initial_state` or `seq_len` has another type or shape.
        """
        outputs, h, c = self._run(
            popnn_lstm,
            inputs,
            *self._states(initial_state, inputs),
            kind="PopnnDynamicLSTM",
            training=training,
            mask=length_mask(seq_len, inputs),
            zero_masked=True,
        )
        return outputs, LSTMStateTuple(c, h)
