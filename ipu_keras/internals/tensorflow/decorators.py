"""Decorators that TensorFlow keeps for its own functions."""

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
    """Has AutoGraph call a function as it is, but still rewrite those that it calls.

    `tf.autograph.experimental.do_not_convert` would leave those alone as well.
    """
    return _ARTIFACT.get()(function)


def deprecated(instructions: str) -> Callable[[Callable], Any]:
    """Has a function log once what replaces it, as TensorFlow's own deprecated functions do."""
    return _DEPRECATED.get()(None, instructions)


def as_autograph_does(function: Callable) -> Callable:
    """Converts a user's function if AutoGraph is converting the code that calls this."""
    autograph = tf.__internal__.autograph
    return autograph.tf_convert(function, autograph.control_status_ctx())
