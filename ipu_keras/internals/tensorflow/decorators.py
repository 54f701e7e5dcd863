"""Marks that TensorFlow has for its own functions."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.internals.forms import Function, PrivateName

_ARTIFACT = PrivateName(
    "tensorflow.python.autograph.impl.api", "autograph_artifact", Function("entity")
)
_DEPRECATED = PrivateName(
    "tensorflow.python.util.deprecation", "deprecated", Function("date", "instructions")
)


def left_by_autograph(function: Callable) -> Any:
    """A function that AutoGraph calls as it is, and rewrites those that it calls.

    `tf.autograph.experimental.do_not_convert` leaves those alone as well.
    """
    return _ARTIFACT.get()(function)


def deprecated(instructions: str) -> Callable[[Callable], Any]:
    """Has a function log once that another replaces it, as TensorFlow's own deprecated ones do.

    Args:
        instructions: Which other.
    """
    return _DEPRECATED.get()(None, instructions)


def as_autograph_does(function: Callable) -> Callable:
    """A function of a user's as AutoGraph calls it where it is converting those around it."""
    autograph = tf.__internal__.autograph
    return autograph.tf_convert(function, autograph.control_status_ctx())
