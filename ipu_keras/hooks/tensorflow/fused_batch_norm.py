"""Changes TensorFlow's fused batch normalization."""

from collections.abc import Callable

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.operations import nn_operations


def replace_training_batch_norm(is_replaced: Callable[[], bool], replacement: Callable) -> None:
    """Lets another function normalize batches in training, while `is_replaced` says so."""

    def wrapper(original: Callable) -> Callable:
        def fused_batch_norm_v3(x, *args, is_training=True, **kwargs):
            if is_training and is_replaced():
                return replacement(x, *args, **kwargs)
            return original(x, *args, is_training=is_training, **kwargs)

        return fused_batch_norm_v3

    install(nn_operations(), "fused_batch_norm_v3", wrapper)
