"""GRUs of Popnn that own their variables."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import check_flag
from ipu_keras.ops.rnn.operations import popnn_gru
from ipu_keras.ops.rnn.popnn_layer import PopnnLayer, length_mask, swap_batch_and_time


class _GRULayer(PopnnLayer):
    _num_gates = 3

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
        reset_after: bool = False,
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
        self.reset_after = check_flag("reset_after", reset_after)

    @property
    def canonical_bias_shape(self) -> list[int]:
        """Shape of the variable `biases`."""
        return [3, 2, self.num_units] if self.reset_after else [3, self.num_units]

    def state_shape(self, batch_size: int) -> list[int]:
        """Returns the shape of the state, `[batch_size, num_units]`.

        Args:
            batch_size: Number of samples in a batch.
        """
        return [batch_size, self.num_units]

    def _operation_bias(self, biases: tf.Tensor) -> tf.Tensor:
        if not self.reset_after:
            return super()._operation_bias(biases)
        # Popnn's variable has the gates first, the operation has inputs and state first.
        return tf.reshape(tf.transpose(biases, [1, 0, 2]), [2, 3 * self.num_units])

    def _run_dynamic(self, inputs, seq_len, initial_state, training, time_major, **options):
        """Runs the layer over sequences that may end before the last step."""
        if not time_major:
            inputs = swap_batch_and_time(inputs)
        outputs, state = self._run(
            popnn_gru,
            inputs,
            self._state("initial_state", initial_state, inputs),
            reset_after=self.reset_after,
            training=training,
            mask=length_mask(seq_len, inputs),
            zero_masked=True,
            **options,
        )
        return (outputs if time_major else swap_batch_and_time(outputs)), state


class PopnnGRU(_GRULayer):
    """A GRU over time-major sequences, as one operation.

    K. Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014. The
    variables are `kernel`, `(features + num_units, 3 * num_units)`, of the inputs and of the
    state below each other, and `biases`, `(3, num_units)`, or with `reset_after` `(3, 2,
    num_units)`, of inputs and of the state; gates are in the order update, reset, candidate.
    `gru_weights_from_keras` makes them from those of a Keras layer.

    Args:
        num_units: Number of values in the state.
        dtype: Type of inputs, variables and results, tf.float16 or tf.float32.
        partials_dtype: Type of the sums in products, tf.float16 or tf.float32. An IPU has those
            of float32 numbers in float32 whatever this is.
        seed: An integer for the default of `weights_initializer`.
        weights_initializer: Initializer of `kernel`. Defaults to Glorot's uniform one.
        bias_initializer: Initializer of `biases`. Defaults to zeros.
        activation: `"tanh"`, `"relu"`, `"softmax"`, `"sigmoid"` or `"hard_sigmoid"`, which is `x
            / 5 + 1 / 2` between 0 and 1.
        recurrent_activation: Activation of the gates: as `activation`, but not `"relu"`.
        name: Name of the variable scope, if none is given to the call. Defaults to `popnn_gru`.
        reset_after: Whether the reset gate is applied after the product with the state, as
            Keras's default is, or before it.
        available_memory_proportion_fwd: Share of a tile's memory, above 0 and at most 1, for
            temporary data of the layer's products, which changes what the cost model says of
            them. Goes before that of the `IPUConfig`.
        available_memory_proportion_bwd: The same for the gradient.

    Raises:
        ValueError: An argument is none of those that are named here.

    Example:

    >>> gru = PopnnGRU(4)
    >>> outputs, state = gru(tf.ones([5, 2, 3]))
    >>> outputs.shape, state.shape
    (TensorShape([5, 2, 4]), TensorShape([2, 4]))
    """

    def call(
        self, inputs: tf.Tensor, initial_state: Any = None, training: bool = True
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs the GRU over the sequences.

        Args:
            inputs: Tensor of the shape `(time, batch, features)`.
            initial_state: `(batch, num_units)`. Defaults to zeros.
            training: Whether what the gradient needs is kept.

        Returns:
            The outputs `(time, batch, num_units)`, and the last of them `(batch, num_units)`.

        Raises:
            ValueError: `initial_state` has another type or shape.
        """
        return self._run(
            popnn_gru,
            inputs,
            self._state("initial_state", initial_state, inputs),
            reset_after=self.reset_after,
            training=training,
        )


class PopnnDynamicGRU(_GRULayer):
    """A GRU over sequences that may end before the last step, as one operation.

    Where a sequence has ended, its outputs are zeros, and its state stays what it was.

    Args:
        num_units: Number of values in the state. All arguments are those of `PopnnGRU`.

    Example:

    >>> gru = PopnnDynamicGRU(4)
    >>> outputs, state = gru(tf.ones([5, 2, 3]), seq_len=tf.constant([5, 2]))
    >>> bool(tf.reduce_any(outputs[2:, 1] != 0)), bool(tf.reduce_all(state[1] == outputs[1, 1]))
    (False, True)
    """

    def call(
        self,
        inputs: tf.Tensor,
        seq_len: tf.Tensor,
        initial_state: Any = None,
        training: bool = True,
        time_major: bool = True,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs the GRU over the sequences.

        Args:
            inputs: `(time, batch, features)`, or `(batch, time, features)`.
            seq_len: The number of steps of each sample, integers of shape `(batch,)`.
            initial_state: `(batch, num_units)`. Defaults to zeros.
            training: Whether what the gradient needs is kept.
            time_major: Whether time is the first axis of inputs and outputs.

        Returns:
            The outputs `(time, batch, num_units)` or `(batch, time, num_units)`, and the state
            after the last step of each sample, `(batch, num_units)`.

        Raises:
            ValueError: `initial_state` or `seq_len` has another type or shape.
        """
        return self._run_dynamic(
            inputs, seq_len, initial_state, training, time_major, kind="PopnnDynamicGRU"
        )


class PopnnAUGRU(_GRULayer):
    """A GRU whose update gate attends to the steps, as one operation.

    The update gate, which keeps the state, is multiplied by one minus the score of attention of
    the step, as in the code that the authors published with G. Zhou et al., "Deep interest
    evolution network for click-through rate prediction", 2019. Where a sequence has ended, its
    outputs are zeros, and its state stays what it was.

    Args:
        num_units: Number of values in the state. All arguments are those of `PopnnGRU`.

    Example:

    >>> augru = PopnnAUGRU(4)
    >>> scores = tf.ones([2, 5]) / 5
    >>> outputs, state = augru(tf.ones([5, 2, 3]), tf.constant([5, 2]), scores)
    >>> outputs.shape, state.shape
    (TensorShape([5, 2, 4]), TensorShape([2, 4]))
    """

    def call(
        self,
        inputs: tf.Tensor,
        seq_len: tf.Tensor,
        attention_score: tf.Tensor,
        initial_state: Any = None,
        training: bool = True,
        time_major: bool = True,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs the GRU over the sequences.

        Args:
            inputs: `(time, batch, features)`, or `(batch, time, features)`.
            seq_len: The number of steps of each sample, integers of shape `(batch,)`.
            attention_score: Score of each step, `(batch, time)` whatever `time_major` is.
            initial_state: `(batch, num_units)`. Defaults to zeros.
            training: Whether what the gradient needs is kept.
            time_major: Whether time is the first axis of inputs and outputs.

        Returns:
            The outputs `(time, batch, num_units)` or `(batch, time, num_units)`, and the state
            after the last step of each sample, `(batch, num_units)`.

        Raises:
            ValueError: `initial_state`, `seq_len` or `attention_score` has another type or
                shape.
        """
        scores = self._converted("attention_score", attention_score)
        first, second = static_sizes(inputs)[:2]
        expected = [second, first] if time_major else [first, second]
        if not scores.shape.is_compatible_with(expected):
            raise ValueError(
                f"`attention_score` must have the shape (batch, time), here {tuple(expected)}. "
                f"Received: attention_score of shape {scores.shape}"
            )
        return self._run_dynamic(
            inputs,
            seq_len,
            initial_state,
            training,
            time_major,
            kind="PopnnAUGRU",
            attention=tf.transpose(scores),
        )
