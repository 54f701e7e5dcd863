"""The base class of Popnn's recurrent layers: their variables, and how they are called."""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.argument_checks import (
    check_integer,
    check_tensor,
    converted,
    positive_integer,
)
from ipu_keras.ops.recurrent.steps import num_steps
from ipu_keras.ops.rnn.recurrent_arguments import (
    ACTIVATION_NAMES,
    RECURRENT_ACTIVATION_NAMES,
    check_activation,
    check_floating_dtype,
    check_memory_proportions,
)


class PopnnLayer(tf.Module):
    """Owns a `kernel`, of the inputs and of the state below each other, and `biases`.

    The arguments are those that `rnn_ops.PopnnLSTM` documents.
    """

    _num_gates: int

    def __init__(
        self,
        num_units: int,
        dtype: Any,
        partials_dtype: Any,
        seed: int | None,
        weights_initializer: Callable | None,
        bias_initializer: Callable | None,
        activation: str,
        recurrent_activation: str,
        name: str | None,
        available_memory_proportion_fwd: float | None,
        available_memory_proportion_bwd: float | None,
    ):
        # The name is not passed on: as a module's it could not have a slash or a full stop.
        super().__init__()
        self.num_units = positive_integer("num_units", num_units)
        check_memory_proportions(
            available_memory_proportion_fwd=available_memory_proportion_fwd,
            available_memory_proportion_bwd=available_memory_proportion_bwd,
        )
        self._memory_proportions = (
            available_memory_proportion_fwd,
            available_memory_proportion_bwd,
        )
        self.dtype = check_floating_dtype("dtype", dtype)
        self.partials_dtype = check_floating_dtype("partials_dtype", partials_dtype)
        self.activation = check_activation("activation", activation, ACTIVATION_NAMES)
        self.recurrent_activation = check_activation(
            "recurrent_activation", recurrent_activation, RECURRENT_ACTIVATION_NAMES
        )
        self.built = False
        self._seed = None if seed is None else check_integer("seed", seed)
        self._weights_initializer = weights_initializer
        self._bias_initializer = bias_initializer
        self._given_name = name
        self._scope: Any = None

    @property
    def name(self) -> str:
        """Name of the variable scope, if none is given to the call."""
        return self._given_name or super().name

    @property
    def canonical_bias_shape(self) -> list[int]:
        """Shape of the variable `biases`."""
        return [self._num_gates, self.num_units]

    def build(self, input_shape: Any) -> None:
        """Creates the variables, `kernel` and `biases`; the first call does it if nobody has.

        Args:
            input_shape: Shape of the inputs, with three dimensions of which the last is known.
        """
        shape = tf.TensorShape(input_shape)
        if shape.rank != 3 or shape[2] is None:
            raise ValueError(
                "`input_shape` must have three dimensions, of which the last is known: "
                f"`(time, batch, features)`. Received: input_shape={input_shape}"
            )
        bias_shape = self.canonical_bias_shape
        kernel_shape = [shape[2] + self.num_units, self._num_gates * self.num_units]
        weights = self._weights_initializer or _glorot_uniform(self._seed)
        # Outside of a function that is traced, which cannot own variables.
        with (
            tf.init_scope(),
            tf.compat.v1.variable_scope(self._scope, default_name=self.name, use_resource=True),
        ):
            self.kernel = tf.compat.v1.get_variable("kernel", kernel_shape, self.dtype, weights)
            self.biases = tf.compat.v1.get_variable(
                "biases",
                bias_shape,
                self.dtype,
                self._bias_initializer or tf.compat.v1.zeros_initializer(),
            )
        self.built = True

    def __call__(self, inputs: tf.Tensor, *args: Any, scope: Any = None, **kwargs: Any) -> Any:
        """Runs the layer, and builds it if that has not been done.

        Args:
            inputs: Sequences as `call` takes them.
            *args: Further arguments of `call` by position.
            scope: The variable scope to build in, or its name.
            **kwargs: Further arguments of `call` by name.
        """
        inputs = self._converted("inputs", inputs)
        if not self.built:
            self._scope = scope
            self.build(inputs.shape)
        with tf.name_scope(self.name):
            return self.call(inputs, *args, **kwargs)

    def call(self, inputs: tf.Tensor, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _run(self, operation: Callable, inputs: tf.Tensor, *states: tf.Tensor, **options: Any):
        """Calls an operation of Popnn with the variables and the options of the layer."""
        kernel = tf.convert_to_tensor(self.kernel)
        features = static_sizes(kernel)[0] - self.num_units
        # The gradient of a split is one concatenation, that of two slices a sum of padded ones.
        of_inputs, of_state = tf.split(kernel, [features, self.num_units], axis=0)
        return operation(
            inputs,
            *states,
            of_inputs,
            of_state,
            self._operation_bias(tf.convert_to_tensor(self.biases)),
            activation=self.activation,
            recurrent_activation=self.recurrent_activation,
            partials_dtype=self.partials_dtype,
            memory_proportions=self._memory_proportions,
            **options,
        )

    def _operation_bias(self, biases: tf.Tensor) -> tf.Tensor:
        return tf.reshape(biases, [-1])

    def _state(self, name: str, value: Any, inputs: tf.Tensor) -> tf.Tensor:
        """Returns a state as a tensor, zeros if there is none; `inputs` are time-major."""
        if value is None:
            return tf.zeros([tf.shape(inputs)[1], self.num_units], self.dtype)
        value = self._converted(name, value)
        batch = static_sizes(inputs)[1]
        if not value.shape.is_compatible_with([batch, self.num_units]):
            raise ValueError(
                f"`{name}` must have the shape (batch, num_units), here "
                f"({batch}, {self.num_units}). Received: {name} of shape {value.shape}"
            )
        return value

    def _converted(self, name: str, value: Any) -> tf.Tensor:
        if hasattr(value, "dtype") and tf.as_dtype(value.dtype) != self.dtype:
            raise ValueError(
                f"`{name}` must be of the layer's dtype, {self.dtype.name}: cast it, or give the "
                f"layer another `dtype`. Received: {name} of dtype {tf.as_dtype(value.dtype).name}"
            )
        return converted(name, tf.convert_to_tensor, value, self.dtype)


def _glorot_uniform(seed: int | None) -> Callable:
    """Returns Glorot's uniform initializer; with a seed, it draws the same whenever it is
    called.

    X. Glorot and Y. Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010.
    """
    if seed is None:
        return tf.compat.v1.glorot_uniform_initializer()

    def initializer(shape, dtype):
        limit = math.sqrt(6 / sum(shape))
        return tf.random.stateless_uniform(shape, [seed, 0], -limit, limit, dtype)

    return initializer


def length_mask(seq_len: Any, inputs: tf.Tensor) -> tf.Tensor:
    """Returns which steps are within sequences of these lengths, as bool `(time, batch)`."""
    lengths = check_tensor("seq_len", seq_len)
    batch = static_sizes(inputs)[1]
    if not lengths.dtype.is_integer or not lengths.shape.is_compatible_with([batch]):
        raise ValueError(
            f"`seq_len` must be integers of shape (batch,), here ({batch},). Received: "
            f"seq_len of dtype {lengths.dtype.name} and shape {lengths.shape}"
        )
    return tf.transpose(tf.sequence_mask(lengths, num_steps(inputs)))


def swap_batch_and_time(sequence: tf.Tensor) -> tf.Tensor:
    """Returns `(time, batch, n)` as `(batch, time, n)`, and the other way round."""
    return tf.transpose(sequence, [1, 0, 2])
