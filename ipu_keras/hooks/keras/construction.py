"""Tells of the models, layers and nodes of symbolic calls that Keras makes."""

from collections.abc import Callable
from typing import Any

import keras

from ipu_keras.hooks.installation import install
from ipu_keras.internals.keras.models import node_class


def tell_of_models(made: Callable[[keras.Model], None]) -> None:
    """Has `made` called with each new model, whose class it may change, before `__init__` runs.

    Keras offers no hook there, so `Model.__new__`, which every model passes, is wrapped.
    """
    install(keras.Model, "__new__", lambda original: _telling(original, made))


def tell_of_calls_and_layers(made: Callable[[Any], None]) -> None:
    """Has `made` called with each new layer, before its `__init__`, and each new node, after it.

    A node is a symbolic call. Keras offers no hook for either, so `Layer.__new__`, which every
    layer passes, and `Node.__init__` are wrapped.
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
