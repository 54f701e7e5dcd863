"""Recurrent layers over whole sequences.

The part of a step that does not depend on the step before, and everything of
the gradient but the state's own, is computed for all steps at once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def lstm(
    inputs: tf.Tensor,
    initial_h: tf.Tensor,
    initial_c: tf.Tensor,
    kernel: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    bias: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """An LSTM with tanh and sigmoid; gates in the order input, forget, cell, output.

    S. Hochreiter and J. Schmidhuber, "Long short-term memory", 1997, with the
    forget gate of F. Gers et al., 2000.

    Args:
        inputs: `(time, batch, features)`, with at least one step.
        initial_h: `(batch, units)`, the output before the first step.
        initial_c: `(batch, units)`, the cell before the first step.
        kernel: `(features, 4 * units)`.
        recurrent_kernel: `(units, 4 * units)`.
        bias: `(4 * units,)`.

    Returns:
        The outputs `(time, batch, units)` and the last cell `(batch, units)`.

    Example:

    >>> x, state = tf.ones((3, 1, 2)), tf.zeros((1, 1))
    >>> outputs, cell = lstm(x, state, state, tf.ones((2, 4)), tf.ones((1, 4)), tf.zeros(4))
    >>> outputs.shape, cell.shape
    (TensorShape([3, 1, 1]), TensorShape([1, 1]))
    """

    @tf.custom_gradient
    def run(inputs, initial_h, initial_c, kernel, recurrent_kernel, bias):
        projected = _per_step_matmul(inputs, kernel) + bias
        gates, cells, outputs = _forward(projected, initial_h, initial_c, recurrent_kernel)

        def gradient(d_outputs, d_last_cell):
            cells_before = _shifted(cells, initial_c)
            d_gates, d_h, d_c = _backward(
                d_outputs, d_last_cell, gates, cells, cells_before, recurrent_kernel
            )
            return (
                _per_step_matmul(d_gates, kernel, transpose_b=True),
                d_h,
                d_c,
                _matmul_over_steps(inputs, d_gates),
                _matmul_over_steps(_shifted(outputs, initial_h), d_gates),
                tf.reduce_sum(d_gates, axis=[0, 1]),
            )

        return (outputs, cells[-1]), gradient

    return run(inputs, initial_h, initial_c, kernel, recurrent_kernel, bias)


def lstm_inference(
    inputs: tf.Tensor,
    initial_h: tf.Tensor,
    initial_c: tf.Tensor,
    kernel: tf.Tensor,
    recurrent_kernel: tf.Tensor,
    bias: tf.Tensor,
    *,
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
        return_sequences: Whether all outputs are returned, or the last one.

    Returns:
        The outputs `(time, batch, units)` or `(batch, units)`, and the last
        cell `(batch, units)`.
    """
    projected = _per_step_matmul(inputs, kernel) + bias
    cell = _cell(projected, recurrent_kernel)
    steps = projected.shape[0]

    def step(time, h, c, *outputs):
        _, h, c = cell(time, h, c)
        return time + 1, h, c, *[array.write(time, h) for array in outputs]

    arrays = _arrays(steps, initial_h) if return_sequences else []
    _, h, c, *outputs = _loop(step, steps, initial_h, initial_c, *arrays)
    return (outputs[0].stack() if return_sequences else h), c


def _cell(projected: tf.Tensor, recurrent_kernel: tf.Tensor) -> Callable:
    """What a step does: from its time and the state to activated gates and the next state."""
    units = recurrent_kernel.shape[0]
    # sigmoid(x) is tanh(x / 2) / 2 + 1 / 2: XLA makes one kernel of all gates. What
    # it loses is below the precision of a number near 1, which gates multiply.
    scale = np.repeat([0.5, 0.5, 1.0, 0.5], units).astype(projected.dtype.as_numpy_dtype)
    offset = 1 - scale

    def cell(time, h, c):
        logits = projected[time] + tf.matmul(h, recurrent_kernel)
        gates = tf.tanh(logits * scale) * scale + offset
        i, f, g, o = tf.split(gates, 4, axis=-1)
        c = f * c + i * g
        return gates, o * tf.tanh(c), c

    return cell


def _forward(projected, h, c, recurrent_kernel):
    """The activated gates, cells and outputs of all steps, each `(time, batch, ...)`."""
    steps, units = projected.shape[0], h.shape[-1]
    cell = _cell(projected, recurrent_kernel)

    def step(time, h, c, gates, cells):
        activated, h, c = cell(time, h, c)
        return time + 1, h, c, gates.write(time, activated), cells.write(time, c)

    *_, gates, cells = _loop(step, steps, h, c, *_arrays(steps, projected[0], c))
    gates, cells = gates.stack(), cells.stack()
    # Cheaper again for all steps than written in each.
    return gates, cells, gates[:, :, -units:] * tf.tanh(cells)


def _backward(d_outputs, d_c, gates, cells, cells_before, recurrent_kernel):
    """The gradients of all gates' logits `(time, batch, 4 * units)`, and of the first state.

    Only products with the state's gradients are left to the loop.
    """
    steps = gates.shape[0]
    i, f, g, o = tf.split(gates, 4, axis=-1)
    tanh_c = tf.tanh(cells)
    d_c_by_d_h = o * (1.0 - tanh_c * tanh_c)
    # Of the logits by d_c, and the output gate's by d_h.
    factors = tf.concat(
        [
            g * i * (1.0 - i),
            cells_before * f * (1.0 - f),
            i * (1.0 - g * g),
            tanh_c * o * (1.0 - o),
        ],
        axis=-1,
    )

    def step(count, d_h, d_c, d_gates):
        time = steps - 1 - count
        d_h += d_outputs[time]
        d_c += d_h * d_c_by_d_h[time]
        d_logits = tf.concat([d_c, d_c, d_c, d_h], axis=-1) * factors[time]
        d_h = tf.matmul(d_logits, recurrent_kernel, transpose_b=True)
        return count + 1, d_h, d_c * f[time], d_gates.write(time, d_logits)

    _, d_h, d_c, d_gates = _loop(step, steps, tf.zeros_like(d_c), d_c, *_arrays(steps, gates[0]))
    return d_gates.stack(), d_h, d_c


def _loop(step, steps: int, *carried: Any) -> Any:
    return tf.while_loop(
        lambda time, *_: time < steps, step, (tf.constant(0), *carried), maximum_iterations=steps
    )


def _arrays(steps: int, *examples: tf.Tensor) -> list[tf.TensorArray]:
    return [tf.TensorArray(e.dtype, steps, element_shape=e.shape) for e in examples]


def _shifted(sequence: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """What each step found of a sequence that it continued."""
    return tf.concat([first[tf.newaxis], sequence[:-1]], axis=0)


def _per_step_matmul(sequence: tf.Tensor, matrix: tf.Tensor, **options: bool) -> tf.Tensor:
    """`(time, batch, n)` times a matrix, as one product."""
    time, batch, features = sequence.shape
    product = tf.matmul(tf.reshape(sequence, [time * batch, features]), matrix, **options)
    return tf.reshape(product, [time, batch, product.shape[-1]])


def _matmul_over_steps(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The sum over all steps of `a`, transposed, times `b`."""
    a, b = (tf.reshape(t, [-1, t.shape[-1]]) for t in (a, b))
    return tf.matmul(a, b, transpose_a=True)
