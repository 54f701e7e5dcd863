"""A GRU over whole sequences, and one whose update gate attends to the steps."""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ops.recurrent.activations import ACTIVATIONS, Activation
from ipu_keras.ops.recurrent.steps import (
    arrays,
    loop,
    num_steps,
    partial_sums_in,
    per_step_product,
    product,
    product_over_steps,
    select,
    shifted,
    step_mask,
    sum_over_steps,
    widened,
)
from ipu_keras.tracing.poplar_operation import differentiable


def gru(
    inputs: tf.Tensor,
    initial_h: tf.Tensor,
    kernel: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    bias: tf.Tensor,
    attention: tf.Tensor | None = None,
    *,
    reset_after: bool = True,
    activation: str = "tanh",
    recurrent_activation: str = "sigmoid",
    mask: tf.Tensor | None = None,
    partials_dtype: tf.DType | None = None,
) -> tf.Tensor:
    """Runs a GRU whose gates are in the order update, reset, candidate.

    K. Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014: an open
    update gate keeps the state. With `attention`, the update gate is multiplied by one minus the
    score, so that steps without attention leave the state (AUGRU; after G. Zhou et al., "Deep
    interest evolution network for click-through rate prediction", 2019).

    Args:
        inputs: Sequences of the shape `(time, batch, features)`.
        bias: `(3 * units,)`; with `reset_after`, `(2, 3 * units)`, for inputs and for the state.
        attention: `(time, batch)`, the score of each step.
        reset_after: Whether the reset gate is applied after the candidate's product with the
            state, as in the first version of the paper, or before it.
        mask: `(time, batch)`. Where it is false, the state stays what it was.
        partials_dtype: Type of the partial sums of products of halves, tf.float16 or tf.float32;
            `None` leaves it to the configuration.

    Returns:
        The states after each step, `(time, batch, units)`.

    Example:

    >>> x, state, bias = tf.ones((3, 1, 2)), tf.zeros((1, 1)), tf.zeros((2, 3))
    >>> gru(x, state, tf.ones((2, 3)), tf.ones((1, 3)), bias).shape
    TensorShape([3, 1, 1])
    """
    functions = _GruFunctions(
        ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation], reset_after
    )
    mask = step_mask(mask)
    tensors = (inputs, initial_h, kernel, recurrent_kernel, bias)
    # The gradient below needs derivatives that depend on one number each. Softmax has none:
    # TensorFlow differentiates the loop instead.
    if static_sizes(inputs)[0] == 0 or not functions.have_derivatives:
        with partial_sums_in(partials_dtype):
            return _inference(*tensors, attention, functions, mask, partials_dtype, True)
    scored = () if attention is None else (attention,)

    def run(inputs, initial_h, kernel, recurrent_kernel, bias, attention=None):
        weights = _Weights.of(kernel, recurrent_kernel, bias, reset_after, partials_dtype)
        scores = None if attention is None else attention[..., tf.newaxis]
        projected = per_step_product(inputs, weights.kernel) + weights.bias
        cell = _cell(projected, weights, functions, scores, mask)
        gates, products, states = _forward(projected, initial_h, cell)

        def gradient(d_states):
            # Widened again: what was widened before would be kept for the gradient.
            weights = _Weights.of(kernel, recurrent_kernel, bias, reset_after, partials_dtype)
            before = shifted(states, initial_h)
            factors = functions.factors(gates, products, before, scores, mask)
            with partial_sums_in(partials_dtype):
                d_h, d_h_each, d_logits = _backward(d_states, factors, weights)
                reset = tf.split(gates, 3, axis=-1)[1]
                d_kernel = product_over_steps(inputs, d_logits, partials_dtype)
                d_recurrent, d_bias = _weight_gradients(
                    d_logits, before, reset, reset_after, partials_dtype
                )
                gradients = (
                    per_step_product(d_logits, weights.kernel, transpose_b=True),
                    d_h,
                    d_kernel,
                    d_recurrent,
                    d_bias,
                )
            if attention is None:
                return gradients
            return *gradients, tf.reduce_sum(d_h_each * factors.attention, axis=-1)

        return states, gradient

    with partial_sums_in(partials_dtype):
        return differentiable(run, *tensors, *scored)


def gru_inference(
    inputs: tf.Tensor,
    initial_h: tf.Tensor,
    kernel: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    bias: tf.Tensor,
    attention: tf.Tensor | None = None,
    *,
    reset_after: bool = True,
    activation: str = "tanh",
    recurrent_activation: str = "sigmoid",
    mask: tf.Tensor | None = None,
    partials_dtype: tf.DType | None = None,
    return_sequences: bool = True,
) -> tf.Tensor:
    """Does what `gru` does, without keeping what its gradient needs.

    Without `return_sequences`, only the last state `(batch, units)` is returned.
    """
    with partial_sums_in(partials_dtype):
        return _inference(
            *(inputs, initial_h, kernel, recurrent_kernel, bias, attention),
            _GruFunctions(ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation], reset_after),
            step_mask(mask),
            partials_dtype,
            return_sequences,
        )


def _inference(
    inputs, h, kernel, recurrent, bias, attention, functions, mask, partials, return_sequences
):
    weights = _Weights.of(kernel, recurrent, bias, functions.reset_after, partials)
    scores = None if attention is None else attention[..., tf.newaxis]
    projected = per_step_product(inputs, weights.kernel) + weights.bias
    cell = _cell(projected, weights, functions, scores, mask)
    steps = num_steps(projected)
    if static_sizes(projected)[0] == 0:
        # XLA has no arrays without elements.
        return projected[..., : static_sizes(h)[-1]] if return_sequences else h

    def step(time, h, *states):
        *_, h = cell(time, h)
        return time + 1, h, *[array.write(time, h) for array in states]

    _, h, *states = loop(step, steps, h, *(arrays(steps, h) if return_sequences else []))
    return states[0].stack() if return_sequences else h


@dataclass(frozen=True)
class _Weights:
    """Weights as steps use them, widened to the type of the sums.

    Args:
        bias: All that is added before the loop, for inputs and state.
        gates: Recurrent kernel of the update and the reset gate.
        candidate: Recurrent kernel of the candidate.
        candidate_bias: Bias of the candidate's product with the state, if the reset gate is
            applied after it.
        recurrent: Recurrent kernel of `gates` and `candidate` together.
    """

    kernel: tf.Tensor
    bias: tf.Tensor
    gates: tf.Tensor
    candidate: tf.Tensor
    candidate_bias: tf.Tensor | None
    recurrent: tf.Tensor

    @classmethod
    def of(cls, kernel, recurrent_kernel, bias, reset_after, partials_dtype) -> "_Weights":
        units = static_sizes(recurrent_kernel)[0]
        candidate_bias = None
        if reset_after:
            of_state = bias[1]
            candidate_bias = of_state[2 * units :]
            # The reset gate multiplies the candidate's part, which therefore stays in the loop.
            bias = bias[0] + tf.concat([of_state[: 2 * units], tf.zeros_like(candidate_bias)], 0)
        recurrent = widened(recurrent_kernel, partials_dtype)
        return cls(
            widened(kernel, partials_dtype),
            bias,
            recurrent[:, : 2 * units],
            recurrent[:, 2 * units :],
            candidate_bias,
            recurrent,
        )


@dataclass(frozen=True)
class _Factors:
    """Factors that turn the gradient of a step's state into others, each `(time, batch, units)`.

    Args:
        update: For the logits of the update gate.
        reset: For the logits of the reset gate; if the gate is applied before the product, a
            factor of the gradient of what it was applied to.
        candidate: For the logits of the candidate.
        gate: The reset gate itself.
        kept: For the state before the step.
        attention: For the score, to be summed over the units.
    """

    update: tf.Tensor
    reset: tf.Tensor
    candidate: tf.Tensor
    gate: tf.Tensor
    kept: tf.Tensor
    attention: tf.Tensor


@dataclass(frozen=True)
class _GruFunctions:
    """The activations, and whether the reset gate comes after the product."""

    activation: Activation
    recurrent_activation: Activation
    reset_after: bool

    @property
    def have_derivatives(self) -> bool:
        return None not in (self.activation.slope, self.recurrent_activation.slope)

    def factors(self, gates, products, before, scores, mask) -> _Factors:
        of_gate, of_candidate = self.recurrent_activation.derivative, self.activation.derivative
        z, r, candidate = tf.split(gates, 3, axis=-1)
        change = before - candidate
        attended = 1.0 if scores is None else 1.0 - scores
        kept = z * attended
        by_candidate = (1.0 - kept) * of_candidate(candidate)
        by_reset = of_gate(r) * (products * by_candidate if self.reset_after else before)
        return _Factors(
            # Masked steps pass the gradient of the state on as it is, and none to anything else.
            update=select(mask, change * of_gate(z) * attended, 0),
            reset=select(mask, by_reset, 0),
            candidate=select(mask, by_candidate, 0),
            gate=select(mask, r, 0),
            kept=select(mask, kept, 1),
            attention=select(mask, -change * z, 0),
        )


def _cell(projected, weights, functions, scores, mask) -> Callable:
    """Returns a function from a step's time and state to gates, a product and the next state.

    The product is the one of the state for the candidate.
    """
    units = static_sizes(weights.candidate)[0]

    def products_of(x, h):
        # One product with all of the recurrent kernel: the candidate's part needs no gate first.
        if functions.reset_after:
            of_state = product(h, weights.recurrent)
            gates = functions.recurrent_activation.of_gates(
                x[:, : 2 * units] + of_state[:, : 2 * units], 2
            )
            of_candidate = of_state[:, 2 * units :] + weights.candidate_bias
            return gates, of_candidate, gates[:, units:] * of_candidate
        gates = functions.recurrent_activation.of_gates(
            x[:, : 2 * units] + product(h, weights.gates), 2
        )
        of_candidate = product(gates[:, units:] * h, weights.candidate)
        return gates, of_candidate, of_candidate

    def cell(time, h):
        x = projected[time]
        gates, of_candidate, added = products_of(x, h)
        candidate = functions.activation.function(x[:, 2 * units :] + added)
        kept = gates[:, :units]
        if scores is not None:
            kept *= 1.0 - scores[time]
        next_h = kept * h + (1.0 - kept) * candidate
        here = None if mask is None else mask[time]
        gates = tf.concat([gates, candidate], axis=-1)
        return gates, of_candidate, select(here, next_h, h)

    return cell


def _forward(projected, h, cell):
    """Returns the gates, the products for candidates, and the states of all steps."""
    steps = num_steps(projected)

    def step(time, h, *written):
        values = cell(time, h)
        pairs = zip(written, values, strict=True)
        return time + 1, values[-1], *[array.write(time, value) for array, value in pairs]

    _, _, *written = loop(step, steps, h, *arrays(steps, projected[0], h, h))
    return [array.stack() for array in written]


def _backward(d_states, factors, weights):
    """Returns the gradients of the first state, of each step's state, and of all logits."""
    if weights.candidate_bias is None:
        return _backward_reset_before(d_states, factors, weights)
    return _backward_reset_after(d_states, factors, weights)


def _backward_reset_after(d_states, factors, weights):
    steps = num_steps(d_states)
    by_state = [factors.update, factors.reset, factors.candidate * factors.gate]
    of_products = tf.concat(by_state, axis=-1)

    def step(count, d_h, each):
        time = steps - 1 - count
        d_h += d_states[time]
        d_products = tf.concat([d_h, d_h, d_h], axis=-1) * of_products[time]
        passed = product(d_products, weights.recurrent, transpose_b=True)
        return count + 1, d_h * factors.kept[time] + passed, each.write(time, d_h)

    initial = tf.zeros_like(factors.kept[0])
    _, d_h, each = loop(step, steps, initial, *arrays(steps, initial))
    each = each.stack()
    d_logits = [each * f for f in (factors.update, factors.reset, factors.candidate)]
    return d_h, each, tf.concat(d_logits, axis=-1)


def _backward_reset_before(d_states, factors, weights):
    steps = num_steps(d_states)

    def step(count, d_h, each, d_resets):
        time = steps - 1 - count
        d_h += d_states[time]
        d_candidate = d_h * factors.candidate[time]
        d_reset_state = product(d_candidate, weights.candidate, transpose_b=True)
        d_reset = d_reset_state * factors.reset[time]
        d_gates = tf.concat([d_h * factors.update[time], d_reset], axis=-1)
        passed = product(d_gates, weights.gates, transpose_b=True)
        passed += d_reset_state * factors.gate[time] + d_h * factors.kept[time]
        return count + 1, passed, each.write(time, d_h), d_resets.write(time, d_reset)

    initial = tf.zeros_like(factors.kept[0])
    _, d_h, each, d_resets = loop(step, steps, initial, *arrays(steps, initial, initial))
    each = each.stack()
    d_logits = [each * factors.update, d_resets.stack(), each * factors.candidate]
    return d_h, each, tf.concat(d_logits, axis=-1)


def _weight_gradients(d_logits, before, reset, reset_after, partials_dtype):
    *d_gates, d_candidate = tf.split(d_logits, 3, axis=-1)
    if reset_after:
        d_products = tf.concat([*d_gates, d_candidate * reset], axis=-1)
        d_bias = [sum_over_steps(d, partials_dtype) for d in (d_logits, d_products)]
        return product_over_steps(before, d_products, partials_dtype), tf.stack(d_bias)
    d_recurrent = [
        product_over_steps(before, tf.concat(d_gates, axis=-1), partials_dtype),
        product_over_steps(reset * before, d_candidate, partials_dtype),
    ]
    return tf.concat(d_recurrent, axis=-1), sum_over_steps(d_logits, partials_dtype)
