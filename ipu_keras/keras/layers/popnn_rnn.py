"""The base class of Popnn's LSTM and GRU as Keras layers: arguments, states, masks and dropout."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.keras.layers.weights import add_weight
from ipu_keras.ops.argument_checks import (
    check_flag,
    check_integer,
    converted,
    positive_integer,
    real_in,
    received,
)
from ipu_keras.ops.rnn.recurrent_arguments import (
    ACTIVATION_NAMES,
    RECURRENT_ACTIVATION_NAMES,
    check_activation,
    check_floating_dtype,
    check_memory_proportions,
)
from ipu_keras.settings.arguments import noted

# Arguments that Keras's layers have and Popnn has not, with the values that ask for nothing.
_UNSUPPORTED: Mapping[str, Any] = {
    "kernel_regularizer": None,
    "recurrent_regularizer": None,
    "bias_regularizer": None,
    "activity_regularizer": None,
    "kernel_constraint": None,
    "recurrent_constraint": None,
    "bias_constraint": None,
    "recurrent_dropout": 0.0,
    "implementation": 1,
    "go_backwards": False,
    "unroll": False,
}


class UnsupportedArgumentError(NotImplementedError, ValueError):
    """An argument that Keras's layer has, and this one accepts only to refuse it.

    Upstream's documents name one of the two types for one layer and the other for another.
    """


@dataclass
class _LayerStates:
    """Variables of a stateful layer.

    Keras does not look into a dataclass, so that they are none of the layer's weights, as in
    Keras's own recurrent layers.
    """

    variables: list[keras.Variable]


class PopnnRNN(keras.layers.Layer):
    """A recurrent layer whose steps are one operation; derived classes say which.

    `arguments` are those of the derived class's constructor by name, `kwargs` those for Keras.
    """

    # The layer's name in upstream's messages, and their sentence about an unsupported argument.
    _kind = ""
    _refusal = "IPU custom {of_keras} layer does not support {argument}."

    def __init__(
        self,
        units: int,
        *,
        num_gates: int,
        num_states: int,
        arguments: Mapping[str, Any],
        kwargs: Mapping[str, Any],
    ):
        super().__init__(**kwargs)
        self._refuse_unsupported(arguments)
        dropout = real_in(arguments["dropout"])
        if dropout is None or not 0 <= dropout <= 1:
            raise ValueError(
                "`dropout` must be from 0 to 1. "
                f"Received: {received('dropout', arguments['dropout'])}"
            )
        proportions = {
            name: arguments[name]
            for name in ("available_memory_proportion_fwd", "available_memory_proportion_bwd")
        }
        check_memory_proportions(**proportions)
        self._num_gates, self._num_states = num_gates, num_states
        self.units = positive_integer("units", units)
        self.activation = _activation("activation", arguments, ACTIVATION_NAMES)
        self.recurrent_activation = _activation(
            "recurrent_activation", arguments, RECURRENT_ACTIVATION_NAMES
        )
        for name in ("use_bias", "return_sequences", "return_state", "stateful", "time_major"):
            setattr(self, name, check_flag(name, arguments[name]))
        seed = arguments["seed"]
        self.seed = None if seed is None else check_integer("seed", seed)
        self.kernel_initializer = _initializer("kernel_initializer", arguments, self.seed)
        self.recurrent_initializer = _initializer("recurrent_initializer", arguments, self.seed)
        self.bias_initializer = _initializer("bias_initializer", arguments, None)
        self.dropout = dropout
        self.dropout_seed = _seed_pair(arguments["dropout_seed"])
        if dropout and self.dropout_seed is None:
            self.seed_generator = keras.random.SeedGenerator()
        self.partials_dtype = check_floating_dtype("partials_dtype", arguments["partials_dtype"])
        self.available_memory_proportion_fwd = proportions["available_memory_proportion_fwd"]
        self.available_memory_proportion_bwd = proportions["available_memory_proportion_bwd"]
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self._states: _LayerStates | None = None

    def _refuse_unsupported(self, arguments: Mapping[str, Any]) -> None:
        for name, default in _UNSUPPORTED.items():
            if not _is(arguments[name], default):
                refusal = self._refusal.format(
                    layer=type(self).__name__,
                    of_keras=self._kind,
                    method="__init__",
                    argument=name,
                )
                raise noted(
                    UnsupportedArgumentError(refusal),
                    f"`{name}` is there for code written for keras.layers.{self._kind}: leave "
                    f"it out, or use that layer. Received: {name}={arguments[name]!r}",
                )

    @property
    def states(self) -> list[keras.Variable] | None:
        """The variables of a built stateful layer, in the order of the state; else `None`."""
        return None if self._states is None else self._states.variables

    def build(self, input_shape):
        """Creates the weights, and the state of a stateful layer, whose batch size must be
        known.

        Args:
            input_shape: Shape of the inputs, with three dimensions of which the last is known.
        """
        shape = tuple(input_shape)
        if len(shape) != 3 or shape[2] is None:
            raise ValueError(
                "`input_shape` must have three dimensions, of which the last, the features, is "
                f"known. Received: input_shape={input_shape}"
            )
        width = self._num_gates * self.units
        self.kernel = add_weight(
            self,
            "kernel_initializer",
            self.kernel_initializer,
            shape=(shape[2], width),
            name="kernel",
        )
        self.recurrent_kernel = add_weight(
            self,
            "recurrent_initializer",
            self.recurrent_initializer,
            shape=(self.units, width),
            name="recurrent_kernel",
        )
        self.bias = None
        if self.use_bias:
            self.bias = add_weight(
                self,
                "bias_initializer",
                self._bias_initializer(),
                shape=self._bias_shape(),
                name="bias",
            )
        if self.stateful:
            self._create_states(shape[1 if self.time_major else 0])

    def _bias_shape(self) -> tuple[int, ...]:
        return (self._num_gates * self.units,)

    def _bias_initializer(self) -> Callable:
        return self.bias_initializer

    def _create_states(self, batch_size: int | None) -> None:
        if batch_size is None:
            raise ValueError(
                "A stateful layer needs a batch size that is known: give the model's Input a "
                f"`batch_size`, or a `batch_shape`. Received: stateful=True of {self.name!r}"
            )
        if self._states is None:
            self._states = _LayerStates(
                [
                    keras.Variable(
                        tf.zeros((batch_size, self.units)),
                        trainable=False,
                        dtype=self.variable_dtype,
                        name="state",
                    )
                    for _ in range(self._num_states)
                ]
            )

    def reset_state(self):
        """Sets the state of a stateful layer to zeros."""
        for variable in self.states or ():
            variable.assign(keras.ops.zeros_like(variable))

    def reset_states(self):
        """Sets the state to zeros, under the name that Keras 2 had."""
        self.reset_state()

    def _over_sequence(self, inputs, mask, training, initial_state):
        """Returns what `call` returns, for inputs of either order of axes."""
        given = initial_state is not None or self.stateful
        states = self._initial_states(inputs, initial_state)
        # Popnn's operations take time first.
        sequence = inputs if self.time_major else tf.transpose(inputs, [1, 0, 2])
        if training and self.dropout:
            sequence *= self._dropout_mask(sequence)
        if mask is not None:
            mask = tf.cast(mask if self.time_major else tf.transpose(mask), tf.bool)
        outputs, *last = self._run(sequence, states, mask)
        if mask is not None and given:
            outputs = self._without_outputs_before_the_first(outputs, mask)
        if self.stateful:
            for variable, state in zip(self.states or (), last, strict=True):
                variable.assign(keras.ops.cast(state, variable.dtype))
        if self.return_sequences and not self.time_major:
            outputs = tf.transpose(outputs, [1, 0, 2])
        return (outputs, *last) if self.return_state else outputs

    def _run(self, sequence, states, mask):
        """Returns the outputs, all or the last one, and the parts of the last state."""
        raise NotImplementedError

    def _operation_options(self, mask) -> dict[str, Any]:
        return {
            "activation": self.activation,
            "recurrent_activation": self.recurrent_activation,
            "mask": mask,
            "partials_dtype": self.partials_dtype,
            "return_sequences": self.return_sequences,
            "memory_proportions": (
                self.available_memory_proportion_fwd,
                self.available_memory_proportion_bwd,
            ),
        }

    def _weights_of(self, sequence):
        """Returns kernels and bias, the bias zeros if there is none."""
        weights = (self.kernel, self.recurrent_kernel, *([] if self.bias is None else [self.bias]))
        tensors = [tf.convert_to_tensor(weight.value) for weight in weights]
        if self.bias is None:
            tensors.append(tf.zeros(self._bias_shape(), sequence.dtype))
        return tensors

    def _initial_states(self, inputs, initial_state) -> list[tf.Tensor]:
        batch_axis = 1 if self.time_major else 0
        batch_size = static_sizes(inputs)[batch_axis]
        if initial_state is None and self.stateful:
            initial_state = list(self.states or ())
            expected = static_sizes(initial_state[0])[0]
            if batch_size is not None and batch_size != expected:
                raise ValueError(
                    f"A stateful layer has a state for each of {expected} samples, which is "
                    f"what it was built for. Received: inputs of batch size {batch_size}"
                )
        if initial_state is None:
            zeros = tf.zeros((tf.shape(inputs)[batch_axis], self.units), inputs.dtype)
            return [zeros] * self._num_states
        states = self._listed(initial_state)
        if len(states) != self._num_states:
            raise ValueError(
                f"`initial_state` must be {self._num_states} of shape (batch, units). "
                f"Received: {len(states)}"
            )
        for state in states:
            if not tf.TensorShape(state.shape).is_compatible_with([batch_size, self.units]):
                raise ValueError(
                    "`initial_state` must have the shape (batch, units), here "
                    f"({batch_size}, {self.units}). Received: initial_state of shape {state.shape}"
                )
        return [keras.ops.cast(state, inputs.dtype) for state in states]

    def _listed(self, initial_state) -> list:
        return [*initial_state] if isinstance(initial_state, list | tuple) else [initial_state]

    def _dropout_mask(self, sequence):
        """Returns one mask for all steps of a sample, as Keras has it."""
        ones = tf.ones_like(sequence[0])
        if self.dropout == 1:
            return tf.zeros_like(ones)
        if self.dropout_seed is None:
            return keras.random.dropout(ones, self.dropout, seed=self.seed_generator)
        # The algorithm is named, as the default one differs between devices.
        return tf.nn.experimental.stateless_dropout(
            ones, rate=self.dropout, seed=self.dropout_seed, rng_alg="philox"
        )

    def _without_outputs_before_the_first(self, outputs, mask):
        """Sets outputs before the first step to zero, as Keras does, not to the initial state."""
        if self.return_sequences:
            seen = tf.cumsum(tf.cast(mask, tf.int32), axis=0) > 0
        else:
            seen = tf.reduce_any(mask, axis=0)
        return tf.where(seen[..., tf.newaxis], outputs, tf.zeros([], outputs.dtype))

    def compute_output_shape(self, input_shape):
        batch = input_shape[1 if self.time_major else 0]
        outputs = (batch, self.units)
        if self.return_sequences:
            outputs = (*input_shape[:2], self.units)
        if self.return_state:
            return (outputs, *[(batch, self.units)] * self._num_states)
        return outputs

    def compute_mask(self, inputs, previous_mask):
        mask = previous_mask if self.return_sequences else None
        return [mask, *[None] * self._num_states] if self.return_state else mask

    def get_config(self):
        config = {
            "units": self.units,
            "activation": self.activation,
            "recurrent_activation": self.recurrent_activation,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "dropout": self.dropout,
            "dropout_seed": self.dropout_seed,
            "return_sequences": self.return_sequences,
            "return_state": self.return_state,
            "stateful": self.stateful,
            "seed": self.seed,
            "partials_dtype": self.partials_dtype.name,
            "time_major": self.time_major,
            "available_memory_proportion_fwd": self.available_memory_proportion_fwd,
            "available_memory_proportion_bwd": self.available_memory_proportion_bwd,
        }
        return {**super().get_config(), **config}


def _is(given: Any, default: Any) -> bool:
    """Whether a value is a default; some values, such as arrays, cannot be compared."""
    return given is default or (isinstance(given, bool | int | float) and given == default)


def _activation(name: str, arguments: Mapping[str, Any], accepted: tuple[str, ...]) -> str:
    """Returns the name of an activation given by name or as a function of Keras."""
    given = arguments[name]
    if given is None or given is keras.activations.linear:
        return "linear"
    known = converted(name, keras.activations.serialize, given) if callable(given) else given
    return check_activation(name, known, (*accepted, "linear"))


def _initializer(name: str, arguments: Mapping[str, Any], seed: int | None) -> Callable:
    """Returns an initializer, with the seed if it was given by name alone."""
    given = arguments[name]
    initializer = converted(name, keras.initializers.get, given)
    if seed is None or not isinstance(given, str) or not hasattr(initializer, "seed"):
        return initializer
    return type(initializer).from_config({**initializer.get_config(), "seed": seed})


def _seed_pair(given: Any) -> list[int] | None:
    if given is None:
        return None
    parts = converted("dropout_seed", keras.ops.convert_to_numpy, given).reshape(-1)
    pair = [check_integer("dropout_seed", part) for part in parts]
    if len(pair) != 2:
        raise ValueError(f"`dropout_seed` must be two integers. Received: dropout_seed={given!r}")
    return pair
