"""Weights of layers, made by what users gave for it."""

from typing import Any

import keras

from ipu_keras.ops.argument_checks import converted


def add_weight(layer: keras.layers.Layer, argument: str, initializer: Any, **options: Any) -> Any:
    """As `layer.add_weight`, where errors name the argument.

    An initializer may be an array of another shape, or a function that fails.

    Args:
        layer: Whose weight it is.
        argument: What users call the initializer.
        initializer: Of the weight.
        **options: The other arguments of `layer.add_weight`.

    Raises:
        TypeError: The initializer raised one.
        ValueError: It raised another error.

    Example:

    >>> layer = keras.layers.Layer()
    >>> add_weight(layer, "kernel_initializer", "ones", shape=(2,), name="kernel").numpy()
    array([1., 1.], dtype=float32)
    """

    def make(initializer):
        return layer.add_weight(initializer=initializer, **options)

    return converted(argument, make, initializer)
