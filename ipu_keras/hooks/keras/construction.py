"""Tells of what Keras makes: models and their clones, layers, and nodes of symbolic calls."""

from collections.abc import Callable
from typing import Any

import keras

from ipu_keras.hooks.installation import install
from ipu_keras.internals.keras.models import node_class, old_model_class
from ipu_keras.internals.keras.saving import (
    cloning_module,
    public_names,
    registered_names,
    tf_keras_models,
)


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


def tell_of_clones(cloned: Callable[[Any, Any], None]) -> None:
    """Has `cloned` called with each model that is cloned, and with its clone.

    A clone is made from a model's config or calls alone, and Keras has no hook for what else
    the model has. So `clone_model` is wrapped, in each of the modules that offer it.
    """

    def wrapper(original: Callable) -> Callable:
        def clone_model(model, *args, **kwargs):
            clone = original(model, *args, **kwargs)
            cloned(model, clone)
            return clone

        return clone_model

    install(cloning_module(), "clone_model", wrapper, also=[keras.models, tf_keras_models()])


def save_as(extended: type, cls: type) -> None:
    """Has Keras save instances of `extended` under the name of `cls`, which loading then finds.

    Keras looks the name up by the class itself, in one table for its own classes and in another
    for those that users have registered.
    """
    for names in (public_names(), registered_names()):
        if cls in names:
            names[extended] = names[cls]


def ask_before_old_models(ask: Callable[[], None]) -> None:
    """Has a function called before each model of `tensorflow.python.keras` is made.

    Args:
        ask: Raises if there must be none.
    """

    def wrapper(original: Callable) -> Callable:
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            ask()
            return original(cls, *args, **kwargs)

        return __new__

    install(old_model_class(), "__new__", wrapper)
