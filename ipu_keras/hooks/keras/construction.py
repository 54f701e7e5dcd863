"""How Keras makes models, layers, and the nodes of symbolic calls."""

from collections.abc import Callable
from typing import Any

import keras

from ipu_keras.hooks.installation import install
from ipu_keras.internals.keras.models import node_class


def tell_of_models(made: Callable[[keras.Model], None]) -> None:
    """Has a function told of each model that is made, before the model is initialised.

    Keras offers no hook there, so `Model.__new__`, which every model passes, is wrapped.

    Args:
        made: Called with the model, whose class it may change.
    """
    install(keras.Model, "__new__", lambda original: _telling(original, made))


def tell_of_calls_and_layers(made: Callable[[Any], None]) -> None:
    """Has a function told of each layer that is made, and of each node, which is a symbolic call.

    Keras offers no hook there, so `Layer.__new__`, which every layer passes, and the
    initialiser of `Node`, of which each symbolic call makes one, are wrapped.

    Args:
        made: Called with the layer, which is not initialised yet, or with the node, which is.
    """

    def wrapper(original: Callable) -> Callable:
        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            made(self)

        return __init__

    install(keras.Layer, "__new__", lambda original: _telling(original, made))
    install(node_class(), "__init__", wrapper)


def _telling(original: Callable, made: Callable[[Any], None]) -> Callable:
    def __new__(cls, *args, **kwargs):
        instance = original(cls, *args, **kwargs)
        made(instance)
        return instance

    return __new__
