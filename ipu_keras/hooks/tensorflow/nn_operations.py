"""Changes TensorFlow's functions of neural networks, which Keras's layers call too."""

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


def replace_training_batch_norm(is_replaced: Callable[[], bool], replacement: Callable) -> None:
    """Lets another function normalize batches in training, while `is_replaced` says so."""

    def wrapper(original: Callable) -> Callable:
        def fused_batch_norm_v3(x, *args, is_training=True, **kwargs):
            if is_training and is_replaced():
                return replacement(x, *args, **kwargs)
            return original(x, *args, is_training=is_training, **kwargs)

        return fused_batch_norm_v3

    install(nn_operations(), "fused_batch_norm_v3", wrapper)
