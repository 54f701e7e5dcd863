"""Changes TensorFlow's functions behind all of its convolutions, and Keras's."""

from collections.abc import Callable
from typing import Any

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.operations import nn_operations

_CONVOLUTIONS = ("conv", "conv2d", "conv3d", "depthwise_conv2d_native")


def surround_convolutions(
    current_scope: Callable[[], str], in_scope: Callable[[str, Callable, tuple, dict], Any]
) -> None:
    """Lets another function call convolutions.

    Args:
        current_scope: Asked at each call; an empty scope leaves the convolution to TensorFlow.
        in_scope: Takes the scope, TensorFlow's function and the arguments of the call; returns
            the result.
    """

    def wrapper(original: Callable) -> Callable:
        def convolution(*args, **kwargs):
            scope = current_scope()
            if not scope:
                return original(*args, **kwargs)
            return in_scope(scope, original, args, kwargs)

        return convolution

    for name in _CONVOLUTIONS:
        install(nn_operations(), name, wrapper)
