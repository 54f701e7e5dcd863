"""Changes TensorFlow's functions behind all of its convolutions, and Keras's."""

from collections.abc import Callable
from typing import Any

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.operations import nn_operations

_CONVOLUTIONS = ("conv", "conv2d", "conv3d", "depthwise_conv2d_native")


def surround_convolutions(
    current_scope: Callable[[], str], in_scope: Callable[[str, Callable, tuple, dict], Any]
) -> None:
    """Lets another function call convolutions, in the scope that is current at each call.

    An empty scope leaves the convolution to TensorFlow.
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
