"""An LSTM over whole sequences."""

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
    """An LSTM whose gates are in the order input, forget, cell, output.

    S. Hochreiter and J. Schmidhuber, "Long short-term memory", 1997, with the
    forget gate of F. Gers et al., 2000.

    Args:
        inputs: `(time, batch, features)`.
        initial_h: `(batch, units)`, the output before the first step.
        initial_c: `(batch, units)`, the cell before the first step.
        kernel: `(features, 4 * units)`.
        recurrent_kernel: `(units, 4 * units)`.
        bias: `(4 * units,)`.
        activation: Of the cell: a key of `ACTIVATIONS`.
        recurrent_activation: Of the other gates.
        mask: `(time, batch)`. Where it is false, the output and the cell stay what they were.
        partials_dtype: Of the sums in products, if wider than the tensors.

    Returns:
        The outputs `(time, batch, units)` and the last cell `(batch, units)`.

    Example:

    >>> x, state = tf.ones((3, 1, 2)), tf.zeros((1, 1))
    >>> outputs, cell = lstm(x, state, state, tf.ones((2, 4)), tf.ones((1, 4)), tf.zeros(4))
    >>> outputs.shape, cell.shape
    (TensorShape([3, 1, 1]), TensorShape([1, 1]))
    """
    functions = _Functions(ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation])
    mask = step_mask(mask)
    tensors = (inputs, initial_h, initial_c, kernel, recurrent_kernel, bias)
    if static_sizes(inputs)[0] == 0 or not functions.have_derivatives:
        return _inference(*tensors, functions, mask, partials_dtype, return_sequences=True)

    def run(inputs, initial_h, initial_c, kernel, recurrent_kernel, bias):
        wide, wide_recurrent = (widened(m, partials_dtype) for m in (kernel, recurrent_kernel))
        projected = per_step_product(inputs, wide) + bias
        cell = _cell(projected, wide_recurrent, functions, mask)
        last, gates, cells, outputs = _forward(
            projected, initial_h, initial_c, cell, functions, mask
        )

        def gradient(d_outputs, d_last_cell):
            factors = functions.factors(gates, cells, shifted(cells, initial_c))
            d_gates, d_h, d_c = _backward(d_outputs, d_last_cell, factors, wide_recurrent, mask)
            return (
                per_step_product(d_gates, wide, transpose_b=True),
                d_h,
                d_c,
                product_over_steps(inputs, d_gates, partials_dtype),
                product_over_steps(shifted(outputs, initial_h), d_gates, partials_dtype),
                sum_over_steps(d_gates, partials_dtype),
            )

        return (outputs, last), gradient

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
    """As `lstm`, without what its gradient would need.

    Args:
        inputs: As for `lstm`.
        initial_h: As for `lstm`.
        initial_c: As for `lstm`.
        kernel: As for `lstm`.
        recurrent_kernel: As for `lstm`.
        bias: As for `lstm`.
        activation: As for `lstm`.
        recurrent_activation: As for `lstm`.
        mask: As for `lstm`.
        partials_dtype: As for `lstm`.
        return_sequences: Whether all outputs are returned, or the last one.

    Returns:
        The outputs `(time, batch, units)` or `(batch, units)`, and the last
        cell `(batch, units)`.
    """
    return _inference(
        *(inputs, initial_h, initial_c, kernel, recurrent_kernel, bias),
        _Functions(ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation]),
        step_mask(mask),
        partials_dtype,
        return_sequences=return_sequences,
    )


def _inference(inputs, h, c, kernel, recurrent, bias, functions, mask, partials, return_sequences):
    """The last output if not all of them, and the last cell."""
    projected = per_step_product(inputs, widened(kernel, partials)) + bias
    cell = _cell(projected, widened(recurrent, partials), functions, mask)
    steps = num_steps(projected)
    if static_sizes(projected)[0] == 0:
        # XLA has no arrays of nothing.
        return (projected[..., : static_sizes(h)[-1]] if return_sequences else h), c

    def step(time, h, c, *outputs):
        _, h, c = cell(time, h, c)
        return time + 1, h, c, *[array.write(time, h) for array in outputs]

    written = arrays(steps, h) if return_sequences else []
    _, h, c, *outputs = loop(step, steps, h, c, *written)
    return (outputs[0].stack() if return_sequences else h), c


@dataclass(frozen=True)
class _Functions:
    """What makes gates of logits, and outputs of cells."""

    activation: Activation
    recurrent_activation: Activation

    @property
    def have_derivatives(self) -> bool:
        return None not in (self.activation.slope, self.recurrent_activation.slope)

    def of_gates(self, units: int, dtype: tf.DType) -> Callable[[tf.Tensor], tf.Tensor]:
        """What makes the gates of a step's logits."""
        if (self.activation.name, self.recurrent_activation.name) != ("tanh", "sigmoid"):
            return self._one_by_one
        # sigmoid(x) is tanh(x / 2) / 2 + 1 / 2: XLA makes one kernel of all gates. What
        # it loses is below the precision of a number near 1, which gates multiply.
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
        """By which gradients of the state make those of logits and of the state before.

        Returns:
            Of the logits by the cell's, and the output gate's by the output's; of the cell by
            the output's; of the cell before by the cell's.
        """
        of_cell = self.activation.derivative
        of_gate = self.recurrent_activation.derivative
        i, f, g, o = tf.split(gates, 4, axis=-1)
        activated = self.activation.function(cells)
        logits = [g * of_gate(i), cells_before * of_gate(f), i * of_cell(g), activated * of_gate(o)]
        return tf.concat(logits, axis=-1), o * of_cell(activated), f


def _cell(projected, recurrent_kernel, functions, mask) -> Callable:
    """What a step does: from its time and the state to activated gates and the next state."""
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
    """The last cell, and activated gates, cells and outputs of all steps."""
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
    # Cheaper again for all steps than written in each.
    return last, gates, cells, gates[:, :, -units:] * functions.activation.function(cells)


def _backward(d_outputs, d_c, factors, recurrent_kernel, mask):
    """The gradients of all gates' logits `(time, batch, 4 * units)`, and of the first state.

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
