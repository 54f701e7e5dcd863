"""Weights of layers, with errors that name the argument which made them."""

from typing import Any

import keras

from ipu_keras.ops.argument_checks import converted


def add_weight(layer: keras.layers.Layer, argument: str, initializer: Any, **options: Any) -> Any:
    """Calls `layer.add_weight`, and names the argument in errors of the initializer.

    An initializer may be an array of another shape, or a function that fails. `argument` is the
    name by which users pass it, and `options` are the other arguments of `layer.add_weight`.

    Example:

    >>> layer = keras.layers.Layer()
    >>> add_weight(layer, "kernel_initializer", "ones", shape=(2,), name="kernel").numpy()
    array([1., 1.], dtype=float32)
    """

    def make(initializer):
        return layer.add_weight(initializer=initializer, **options)

    return converted(argument, make, initializer)
