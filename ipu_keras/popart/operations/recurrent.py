"""The recurrent layers RNN, GRU and LSTM in both directions, as loops over time."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.operation import Operation, operation

_Activation = Callable[[tf.Tensor], tf.Tensor]

# By lower-case name: the function, and ONNX's defaults of its further arguments, which are those of
# the operations with the same names.
_ACTIVATIONS: dict[str, tuple[Callable[..., tf.Tensor], tuple[tuple[str, float], ...]]] = {
    "relu": (tf.nn.relu, ()),
    "tanh": (tf.tanh, ()),
    "sigmoid": (tf.sigmoid, ()),
    "softsign": (tf.nn.softsign, ()),
    "softplus": (tf.nn.softplus, ()),
    "affine": (lambda x, alpha, beta: alpha * x + beta, (("alpha", 1.0), ("beta", 0.0))),
    "leakyrelu": (tf.nn.leaky_relu, (("alpha", 0.01),)),
    "thresholdedrelu": (
        lambda x, alpha: tf.where(x >= alpha, x, tf.zeros_like(x)),
        (("alpha", 1.0),),
    ),
    "scaledtanh": (
        lambda x, alpha, beta: alpha * tf.tanh(beta * x),
        (("alpha", 1.0), ("beta", 1.0)),
    ),
    "hardsigmoid": (
        lambda x, alpha, beta: tf.clip_by_value(alpha * x + beta, 0.0, 1.0),
        (("alpha", 0.2), ("beta", 0.5)),
    ),
    "elu": (
        lambda x, alpha: tf.where(x >= 0, x, alpha * tf.math.expm1(tf.minimum(x, 0))),
        (("alpha", 1.0),),
    ),
}


@dataclass(frozen=True)
class _Sequences:
    """The inputs and attributes that all recurrent layers have.

    Args:
        x: The sequences, in the shape `(time, batch, features)`.
        w: Weights of the input, in the shape `(directions, gates * hidden, features)`.
        r: Weights of the state, in the shape `(directions, gates * hidden, hidden)`.
        b: Biases of the input, then of the state: `(directions, 2 * gates * hidden)`.
        lengths: The length of each sequence, `(batch,)`; `None` if all have all steps.
    """

    x: tf.Tensor
    w: tf.Tensor
    r: tf.Tensor
    b: tf.Tensor
    lengths: tf.Tensor | None
    direction: str
    activations: Sequence[Sequence[_Activation]]

    @property
    def num_directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def is_reversed(self, direction: int) -> bool:
        """Whether a direction begins with the last step."""
        return self.direction == "reverse" or direction == 1

    def initial(self, given: tf.Tensor | None, direction: int) -> tf.Tensor:
        """Returns the initial state of a direction, zeros if none is given."""
        if given is not None:
            return given[direction]
        batch = self.x.shape[1]
        size = tf.shape(self.x)[1] if batch is None else batch
        return tf.zeros([size, self.r.shape[-1]], self.x.dtype)


@operation("RNN", since=7)
def rnn(
    x,
    w,
    r,
    b=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations,
    clip=None,
    direction,
    hidden_size=None,
):
    # The default in ONNX's schema has two names, even if there is one direction.
    count = 2 if direction == "bidirectional" else 1
    names = activations[:count] if activations == ["Tanh", "Tanh"] else activations
    chosen = _chosen(names, ["Tanh"], direction, activation_alpha, activation_beta, clip)
    sequences = _sequences(x, w, r, b, sequence_lens, direction, chosen, 1, hidden_size)

    def step(state, gates, direction):
        (f,) = sequences.activations[direction]
        recurrent = tf.matmul(state[0], sequences.r[direction], transpose_b=True)
        return (f(gates + recurrent),)

    return _computed(sequences, step, [initial_h], _sum_of_biases)


@operation("GRU", since=7)
def gru(
    x,
    w,
    r,
    b=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction,
    hidden_size=None,
    linear_before_reset,
):
    defaults = ["Sigmoid", "Tanh"]
    chosen = _chosen(activations, defaults, direction, activation_alpha, activation_beta, clip)
    sequences = _sequences(x, w, r, b, sequence_lens, direction, chosen, 3, hidden_size)
    size = sequences.r.shape[-1]

    def step(state, gates, direction):
        f, g = sequences.activations[direction]
        (hidden,) = state
        weights = sequences.r[direction]
        bias = sequences.b[direction, 3 * size :]
        # ONNX's order of gates is update, reset, hidden. By default the reset gate comes before the
        # recurrent product, as in the original paper; cuDNN's GRU is `linear_before_reset`.
        x_update, x_reset, x_hidden = tf.split(gates, 3, axis=-1)
        if linear_before_reset:
            products = tf.matmul(hidden, weights, transpose_b=True) + bias
            h_update, h_reset, h_hidden = tf.split(products, 3, axis=-1)
            update, reset = f(x_update + h_update), f(x_reset + h_reset)
            new = g(x_hidden + reset * h_hidden)
        else:
            both = tf.matmul(hidden, weights[: 2 * size], transpose_b=True) + bias[: 2 * size]
            h_update, h_reset = tf.split(both, 2, axis=-1)
            update, reset = f(x_update + h_update), f(x_reset + h_reset)
            products = tf.matmul(reset * hidden, weights[2 * size :], transpose_b=True)
            new = g(x_hidden + products + bias[2 * size :])
        return ((1 - update) * new + update * hidden,)

    return _computed(sequences, step, [initial_h], _bias_of_inputs)


@operation("LSTM", since=7)
def lstm(
    x,
    w,
    r,
    b=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    p=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction,
    hidden_size=None,
    input_forget,
):
    defaults = ["Sigmoid", "Tanh", "Tanh"]
    chosen = _chosen(activations, defaults, direction, activation_alpha, activation_beta, clip)
    sequences = _sequences(x, w, r, b, sequence_lens, direction, chosen, 4, hidden_size)

    def step(state, gates, direction):
        f, g, h = sequences.activations[direction]
        hidden, cell = state
        gates += tf.matmul(hidden, sequences.r[direction], transpose_b=True)
        # ONNX's order of gates is input, output, forget, cell, unlike Keras's and Poplar's; that of
        # peepholes is input, output, forget.
        of_input, of_output, of_forget, of_cell = tf.split(gates, 4, axis=-1)
        if p is not None:
            peep_input, peep_output, peep_forget = tf.split(p[direction], 3)
            of_input += peep_input * cell
            of_forget += peep_forget * cell
        entering = f(of_input)
        staying = 1 - entering if input_forget else f(of_forget)
        cell = staying * cell + entering * g(of_cell)
        if p is not None:
            # This peephole alone sees the new cell.
            of_output += peep_output * cell
        return f(of_output) * h(cell), cell

    return _computed(sequences, step, [initial_h, initial_c], _sum_of_biases)


def _with_layout(layer: Operation) -> Operation:
    """Declares version 14 of a layer, in which the batch may be the first axis (`layout=1`)."""

    def laid_out(x, w, r, b=None, sequence_lens=None, *states, layout, **attributes):
        if not layout:
            return layer(x, w, r, b, sequence_lens, *states, **attributes)
        # Peepholes, the last of the inputs, have two axes and no batch.
        inner = [each if each is None or each.shape.rank < 3 else _swapped(each) for each in states]
        every, *last = layer(_swapped(x), w, r, b, sequence_lens, *inner, **attributes)
        return tf.transpose(every, [2, 0, 1, 3]), *map(_swapped, last)

    return _version(layer, 14, "layout", laid_out)


def _first_version(layer: Operation, since: int) -> Operation:
    """Declares the first version of a layer, with an attribute `output_sequence`.

    It says whether all states are wanted, and is not needed: as in all versions, a node names the
    outputs that it wants.
    """

    def without_choice(*inputs, output_sequence, **attributes):
        return layer(*inputs, **attributes)

    return _version(layer, since, "output_sequence", without_choice)


def _version(
    layer: Operation, since: int, attribute: str, function: Callable[..., Any]
) -> Operation:
    """Declares another version of a layer, which has one more attribute."""
    signature = inspect.signature(layer.function)
    added = inspect.Parameter(attribute, inspect.Parameter.KEYWORD_ONLY)
    of_both = signature.replace(parameters=[*signature.parameters.values(), added])
    function.__signature__ = of_both  # type: ignore[attr-defined]
    return operation(layer.kind, since=since)(function)


def _swapped(x: tf.Tensor) -> tf.Tensor:
    return tf.transpose(x, [1, 0, 2])


rnn_14, gru_14, lstm_14 = map(_with_layout, (rnn, gru, lstm))
rnn_1, gru_3, lstm_1 = _first_version(rnn, 1), _first_version(gru, 3), _first_version(lstm, 1)


def _sequences(x, w, r, b, lengths, direction, activations, num_gates, hidden_size):
    hidden = r.shape[-1]
    if hidden_size is not None and hidden_size != hidden:
        raise popart_exception(
            f"`hidden_size` must be that of the recurrent weights. Received: "
            f"hidden_size={hidden_size}, weights for {hidden}"
        )
    directions = len(activations)
    expected = [directions, num_gates * hidden]
    if w.shape != [*expected, x.shape[-1]] or r.shape != [*expected, hidden]:
        raise popart_exception(
            f"Weights for {x.shape[-1]} features and a state of {hidden} in direction "
            f"{direction!r} must have the shapes {[*expected, x.shape[-1]]} and "
            f"{[*expected, hidden]}. Received: {w.shape.as_list()}, {r.shape.as_list()}"
        )
    if b is None:
        b = tf.zeros([directions, 2 * num_gates * hidden], x.dtype)
    return _Sequences(x, w, r, b, lengths, direction, activations)


def _sum_of_biases(bias: tf.Tensor) -> tf.Tensor:
    return tf.add(*tf.split(bias, 2))


def _bias_of_inputs(bias: tf.Tensor) -> tf.Tensor:
    return tf.split(bias, 2)[0]


def _computed(
    sequences: _Sequences,
    step: Callable[..., tuple[tf.Tensor, ...]],
    initial: Sequence[tf.Tensor | None],
    bias_of: Callable[[tf.Tensor], tf.Tensor],
) -> tuple[tf.Tensor, ...]:
    """Returns all states `(time, directions, batch, hidden)`, then the last ones of each kind."""
    histories, finals = [], []
    for direction in range(sequences.num_directions):
        start = tuple(sequences.initial(one, direction) for one in initial)
        hidden, last = _one_direction(sequences, step, start, direction, bias_of)
        histories.append(hidden)
        finals.append(last)
    return tf.stack(histories, 1), *(tf.stack(each) for each in zip(*finals, strict=True))


def _one_direction(sequences, step, start, direction, bias_of):
    # One product computes the input's share of all steps before the loop.
    products = tf.tensordot(sequences.x, tf.transpose(sequences.w[direction]), 1)
    gates = products + bias_of(sequences.b[direction])
    reverse = sequences.is_reversed(direction)
    elements = [gates]
    if sequences.lengths is not None:
        steps = tf.range(tf.shape(gates)[0], dtype=sequences.lengths.dtype)
        elements.append((steps[:, None] < sequences.lengths)[..., None])

    def advanced(state, element):
        new = step(state, element[0], direction)
        if len(element) == 1:
            return new
        # After its end a sequence keeps its state; in reverse it starts at its own last element.
        is_within = element[1]
        return tuple(tf.where(is_within, *each) for each in zip(new, state, strict=True))

    histories = tf.scan(advanced, elements, start, reverse=reverse)
    final = tuple(history[0 if reverse else -1] for history in histories)
    hidden = histories[0]
    if len(elements) == 2:
        hidden = tf.where(elements[1], hidden, tf.zeros_like(hidden))
    return hidden, final


def _chosen(
    names: Sequence[str] | None,
    defaults: Sequence[str],
    direction: str,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
) -> list[list[_Activation]]:
    """Returns the activations of each direction.

    ONNX lists `alphas` and `betas` only for those functions that take them, in their order.
    """
    if direction not in ("forward", "reverse", "bidirectional"):
        raise popart_exception(
            f"`direction` must be 'forward', 'reverse' or 'bidirectional'. Received: {direction!r}"
        )
    count = 2 if direction == "bidirectional" else 1
    names = list(names) if names else list(defaults) * count
    if len(names) != len(defaults) * count:
        raise popart_exception(
            f"`activations` must name {len(defaults) * count} functions for direction "
            f"{direction!r}. Received: {names}"
        )
    given = {"alpha": iter(alphas or ()), "beta": iter(betas or ())}
    functions = [_activation(name, given, clip) for name in names]
    size = len(defaults)
    return [functions[start : start + size] for start in range(0, len(functions), size)]


def _activation(name: str, given: dict, clip: float | None) -> _Activation:
    found = _ACTIVATIONS.get(name.lower())
    if found is None:
        raise popart_exception(
            "`activations` must be of Relu, Tanh, Sigmoid, Affine, LeakyRelu, ThresholdedRelu, "
            f"ScaledTanh, HardSigmoid, Elu, Softsign, Softplus. Received: {name!r}"
        )
    function, defaults = found
    numbers = {key: next(given[key], default) for key, default in defaults}
    activation = functools.partial(function, **numbers)
    if clip is None or clip <= 0:
        return activation
    return lambda x: activation(tf.clip_by_value(x, -clip, clip))
