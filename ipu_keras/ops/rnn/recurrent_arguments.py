"""Checks of the arguments that all recurrent layers of Popnn take."""

from typing import Any

import tensorflow as tf

from ipu_keras.ops.argument_checks import real_in, received
from ipu_keras.settings.arguments import noted

ACTIVATION_NAMES = ("tanh", "relu", "softmax", "sigmoid", "hard_sigmoid")
# Gates are shares, so their activation has to be bounded: no relu.
RECURRENT_ACTIVATION_NAMES = ("tanh", "softmax", "sigmoid", "hard_sigmoid")


def check_activation(argument: str, name: Any, accepted: tuple[str, ...]) -> str:
    """Returns the name of an activation if Popnn has it, or raises a `ValueError`."""
    if not isinstance(name, str) or name not in accepted:
        raise noted(
            ValueError(
                f"IPU custom RNN layer does not support '{name}' as an activation. Acceptable "
                f"value are {', '.join(map(repr, accepted))}."
            ),
            f"Received: {argument}={name!r}. For others, use `keras.layers.LSTM` or "
            "`keras.layers.GRU`, which compute each step on its own",
        )
    return name


def check_floating_dtype(name: str, dtype: Any) -> tf.DType:
    """Returns a dtype if Popnn has recurrent layers of it, or raises a `ValueError`."""
    try:
        found = tf.as_dtype(dtype)
    except TypeError:
        found = None
    if found not in (tf.float16, tf.float32):
        raise ValueError(f"`{name}` must be tf.float16 or tf.float32. Received: {name}={dtype!r}")
    return found


def check_memory_proportions(**proportions: float | None) -> None:
    """Refuses shares of a tile's memory that are not above 0 and at most 1."""
    for name, value in proportions.items():
        share = real_in(value)
        if value is not None and (share is None or not 0 < share <= 1):
            raise ValueError(
                f"`{name}` must be above 0 and at most 1. Received: {received(name, value)}"
            )
