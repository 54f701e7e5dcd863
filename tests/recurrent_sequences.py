"""Recurrent layers step by step, as the papers have them, and random arguments for them."""

import numpy as np
from scipy.special import expit


def softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


FUNCTIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "softmax": softmax,
    "sigmoid": expit,
    "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "linear": lambda x: x,
}


def lstm_by_numpy(
    inputs,
    h,
    c,
    kernel,
    recurrent_kernel,
    bias,
    *,
    activation="tanh",
    recurrent_activation="sigmoid",
    mask=None,
):
    """In the precision of what it is given."""
    of_cell, of_gate = FUNCTIONS[activation], FUNCTIONS[recurrent_activation]
    mask = np.ones(inputs.shape[:2], bool) if mask is None else mask
    outputs = np.empty_like(h, shape=(len(inputs), *h.shape))
    for time, x in enumerate(inputs):
        i, f, g, o = np.split(x @ kernel + bias + h @ recurrent_kernel, 4, axis=-1)
        here = mask[time][:, np.newaxis]
        c = np.where(here, of_gate(f) * c + of_gate(i) * of_cell(g), c)
        h = np.where(here, of_gate(o) * of_cell(c), h)
        outputs[time] = h
    return outputs, c


def gru_by_numpy(
    inputs,
    h,
    kernel,
    recurrent_kernel,
    bias,
    attention=None,
    *,
    reset_after=True,
    activation="tanh",
    recurrent_activation="sigmoid",
    mask=None,
):
    """In the precision of what it is given."""
    of_candidate, of_gate = FUNCTIONS[activation], FUNCTIONS[recurrent_activation]
    mask = np.ones(inputs.shape[:2], bool) if mask is None else mask
    attention = np.zeros(inputs.shape[:2], h.dtype) if attention is None else attention
    of_inputs, of_state = bias if reset_after else (bias, np.zeros_like(bias))
    to_z, to_r, to_candidate = np.split(recurrent_kernel, 3, axis=-1)
    add_z, add_r, add_candidate = np.split(of_state, 3)
    early = np.concatenate([add_z, add_r, np.zeros_like(add_candidate)])
    outputs = np.empty_like(h, shape=(len(inputs), *h.shape))
    for time, x in enumerate(inputs):
        x_z, x_r, x_candidate = np.split(x @ kernel + (of_inputs + early), 3, axis=-1)
        z, r = of_gate(x_z + h @ to_z), of_gate(x_r + h @ to_r)
        after = r * (h @ to_candidate + add_candidate)
        recalled = after if reset_after else (r * h) @ to_candidate
        z = z * (1 - attention[time][:, np.newaxis])
        candidate = of_candidate(x_candidate + recalled)
        h = np.where(mask[time][:, np.newaxis], z * h + (1 - z) * candidate, h)
        outputs[time] = h
    return outputs


def lstm_arguments(time, batch=3, features=2, units=4, dtype=np.float64):
    return _arguments(
        dtype,
        (time, batch, features),
        (batch, units),
        (batch, units),
        (features, 4 * units),
        (units, 4 * units),
        (4 * units,),
    )


def gru_arguments(
    time, *, reset_after, attention=False, batch=3, features=2, units=4, dtype=np.float64
):
    arguments = _arguments(
        dtype,
        (time, batch, features),
        (batch, units),
        (features, 3 * units),
        (units, 3 * units),
        (2, 3 * units) if reset_after else (3 * units,),
    )
    if attention:
        scores = np.random.default_rng(2).uniform(size=(time, batch))
        arguments.append(scores.astype(dtype))
    return arguments


def step_mask(time, batch=3):
    """Steps of one sample, of another from the second on, and others in between."""
    mask = np.random.default_rng(3).uniform(size=(time, batch)) < 0.6
    mask[:, 0] = True
    mask[0, 1] = False
    return mask


def _arguments(dtype, *shapes):
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]
