"""An LSTM over whole sequences, with a gradient that has few products per step."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
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


def lstm(
    inputs: tf.Tensor,
    initial_h: tf.Tensor,
    initial_c: tf.Tensor,
    kernel: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    bias: tf.Tensor,
    *,
    activation: str = "tanh",
    recurrent_activation: str = "sigmoid",
    mask: tf.Tensor | None = None,
    partials_dtype: tf.DType | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Runs an LSTM whose gates are in the order input, forget, cell, output.

    S. Hochreiter and J. Schmidhuber, "Long short-term memory", 1997, with the forget gate of F.
    Gers et al., 2000.

    Args:
        inputs: Sequences of the shape `(time, batch, features)`.
        mask: `(time, batch)`. Where it is false, the output and the cell stay what they were.
        partials_dtype: Type of the partial sums of products of halves, tf.float16 or tf.float32;
            `None` leaves it to the configuration.

    Returns:
        The outputs `(time, batch, units)` and the last cell `(batch, units)`.

    Example:

    >>> x, state = tf.ones((3, 1, 2)), tf.zeros((1, 1))
    >>> outputs, cell = lstm(x, state, state, tf.ones((2, 4)), tf.ones((1, 4)), tf.zeros(4))
    >>> outputs.shape, cell.shape
    (TensorShape([3, 1, 1]), TensorShape([1, 1]))
    """
    functions = _LstmFunctions(ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation])
    mask = step_mask(mask)
    tensors = (inputs, initial_h, initial_c, kernel, recurrent_kernel, bias)
    # The gradient below needs derivatives that depend on one number each. Softmax has none:
    # TensorFlow differentiates the loop instead.
    if static_sizes(inputs)[0] == 0 or not functions.have_derivatives:
        with partial_sums_in(partials_dtype):
            return _inference(*tensors, functions, mask, partials_dtype, return_sequences=True)

    def run(inputs, initial_h, initial_c, kernel, recurrent_kernel, bias):
        wide, wide_recurrent = (widened(m, partials_dtype) for m in (kernel, recurrent_kernel))
        projected = per_step_product(inputs, wide) + bias
        cell = _cell(projected, wide_recurrent, functions, mask)
        last, gates, cells, outputs = _forward(
            projected, initial_h, initial_c, cell, functions, mask
        )

        def gradient(d_outputs, d_last_cell):
            # Widened again: what was widened before would be kept for the gradient.
            wide, wide_recurrent = (widened(m, partials_dtype) for m in (kernel, recurrent_kernel))
            factors = functions.factors(gates, cells, shifted(cells, initial_c))
            with partial_sums_in(partials_dtype):
                d_gates, d_h, d_c = _backward(d_outputs, d_last_cell, factors, wide_recurrent, mask)
            with partial_sums_in(partials_dtype):
                return (
                    per_step_product(d_gates, wide, transpose_b=True),
                    d_h,
                    d_c,
                    product_over_steps(inputs, d_gates, partials_dtype),
                    product_over_steps(shifted(outputs, initial_h), d_gates, partials_dtype),
                    sum_over_steps(d_gates, partials_dtype),
                )

        return (outputs, last), gradient

    with partial_sums_in(partials_dtype):
        return differentiable(run, *tensors)


def lstm_inference(
    inputs: tf.Tensor,
    initial_h: tf.Tensor,
    initial_c: tf.Tensor,
    kernel: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    bias: tf.Tensor,
    *,
    activation: str = "tanh",
    recurrent_activation: str = "sigmoid",
    mask: tf.Tensor | None = None,
    partials_dtype: tf.DType | None = None,
    return_sequences: bool = True,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Does what `lstm` does, without keeping what its gradient needs.

    Without `return_sequences`, only the last output `(batch, units)` is returned, beside the
    cell.
    """
    with partial_sums_in(partials_dtype):
        return _inference(
            *(inputs, initial_h, initial_c, kernel, recurrent_kernel, bias),
            _LstmFunctions(ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation]),
            step_mask(mask),
            partials_dtype,
            return_sequences=return_sequences,
        )


def _inference(inputs, h, c, kernel, recurrent, bias, functions, mask, partials, return_sequences):
    """Returns all outputs or the last one, and the last cell."""
    projected = per_step_product(inputs, widened(kernel, partials)) + bias
    cell = _cell(projected, widened(recurrent, partials), functions, mask)
    steps = num_steps(projected)
    if static_sizes(projected)[0] == 0:
        # XLA has no arrays without elements.
        return (projected[..., : static_sizes(h)[-1]] if return_sequences else h), c

    def step(time, h, c, *outputs):
        _, h, c = cell(time, h, c)
        return time + 1, h, c, *[array.write(time, h) for array in outputs]

    written = arrays(steps, h) if return_sequences else []
    _, h, c, *outputs = loop(step, steps, h, c, *written)
    return (outputs[0].stack() if return_sequences else h), c


@dataclass(frozen=True)
class _LstmFunctions:
    activation: Activation
    recurrent_activation: Activation

    @property
    def have_derivatives(self) -> bool:
        return None not in (self.activation.slope, self.recurrent_activation.slope)

    def of_gates(self, units: int, dtype: tf.DType) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns a function from a step's logits to its gates."""
        names = self.activation.name, self.recurrent_activation.name
        # The difference of two halves near 1 / 2 would have no digits left.
        if names != ("tanh", "sigmoid") or dtype.size < tf.float32.size:
            return self._one_by_one
        # sigmoid(x) is tanh(x / 2) / 2 + 1 / 2, so that XLA makes one kernel of all gates. The
        # error is below the precision of a number near 1, and gates are factors beside 1.
        scale = np.repeat([0.5, 0.5, 1.0, 0.5], units).astype(dtype.as_numpy_dtype)
        offset = 1 - scale
        return lambda logits: tf.tanh(logits * scale) * scale + offset

    def _one_by_one(self, logits):
        i, f, g, o = tf.split(logits, 4, axis=-1)
        recurrent = self.recurrent_activation.function
        return tf.concat(
            [recurrent(i), recurrent(f), self.activation.function(g), recurrent(o)], axis=-1
        )

    def factors(self, gates, cells, cells_before):
        """Returns three factors of gradients.

        They turn the cell's into that of the logits (for the output gate, the output's), the
        output's into the cell's, and the cell's into that of the cell before.
        """
        of_cell = self.activation.derivative
        of_gate = self.recurrent_activation.derivative
        i, f, g, o = tf.split(gates, 4, axis=-1)
        activated = self.activation.function(cells)
        logits = [g * of_gate(i), cells_before * of_gate(f), i * of_cell(g), activated * of_gate(o)]
        return tf.concat(logits, axis=-1), o * of_cell(activated), f


def _cell(projected, recurrent_kernel, functions, mask) -> Callable:
    """Returns a function from a step's time and state to activated gates and the next state."""
    activate = functions.of_gates(static_sizes(recurrent_kernel)[0], projected.dtype)

    def cell(time, h, c):
        gates = activate(projected[time] + product(h, recurrent_kernel))
        i, f, g, o = tf.split(gates, 4, axis=-1)
        next_c = f * c + i * g
        next_h = o * functions.activation.function(next_c)
        here = None if mask is None else mask[time]
        return gates, select(here, next_h, h), select(here, next_c, c)

    return cell


def _forward(projected, h, c, cell, functions, mask):
    """Returns the last cell, and activated gates, cells and outputs of all steps."""
    steps, units = num_steps(projected), static_sizes(h)[-1]
    written = arrays(steps, projected[0], c, *([] if mask is None else [h]))

    def step(time, h, c, *written):
        gates, h, c = cell(time, h, c)
        values = zip(written, (gates, c, h), strict=False)
        return time + 1, h, c, *[array.write(time, value) for array, value in values]

    _, _, last, *written = loop(step, steps, h, c, *written)
    gates, cells, *outputs = [array.stack() for array in written]
    if outputs:
        return last, gates, cells, *outputs
    # To compute the outputs again for all steps at once is cheaper than to write each. With a
    # mask they are written, as masked steps repeat an earlier output.
    return last, gates, cells, gates[:, :, -units:] * functions.activation.function(cells)


def _backward(d_outputs, d_c, factors, recurrent_kernel, mask):
    """Returns the gradients of all gates' logits `(time, batch, 4 * units)`, and of the first
    state.

    Only products with the state's gradients are left to the loop.
    """
    steps = num_steps(d_outputs)
    of_logits, of_c_by_h, of_c = factors
    of_logits, of_c_by_h = select(mask, of_logits, 0), select(mask, of_c_by_h, 0)
    of_c = select(mask, of_c, 1)
    kept = None if mask is None else tf.cast(~mask, d_c.dtype)

    def step(count, d_h, d_c, d_gates):
        time = steps - 1 - count
        d_h += d_outputs[time]
        d_c += d_h * of_c_by_h[time]
        d_logits = tf.concat([d_c, d_c, d_c, d_h], axis=-1) * of_logits[time]
        passed = product(d_logits, recurrent_kernel, transpose_b=True)
        d_h = passed if kept is None else passed + d_h * kept[time]
        return count + 1, d_h, d_c * of_c[time], d_gates.write(time, d_logits)

    written = arrays(steps, of_logits[0])
    _, d_h, d_c, d_gates = loop(step, steps, tf.zeros_like(d_c), d_c, *written)
    return d_gates.stack(), d_h, d_c
