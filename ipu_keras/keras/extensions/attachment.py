"""Gives Keras models that are made inside an `IPUStrategy`'s scope their extension."""

import functools
from typing import Any

import keras
from keras.src import api_export
from keras.src.saving import object_registration

from ipu_keras.ipu_strategy import current_ipu_strategy
from ipu_keras.keras.extensions.functional_extension import FunctionalExtension
from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.keras.extensions.sequential_extension import SequentialExtension


def attach_extensions() -> None:
    """Lets `keras.Model` look for a strategy whenever an instance is made.

    Keras offers no hook there, so `Model.__new__`, which every model passes, is
    wrapped once. Outside a scope it does what it did.
    """
    original = keras.Model.__new__
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def __new__(cls, *args, **kwargs):
        instance = original(cls, *args, **kwargs)
        strategy = current_ipu_strategy()
        extend = strategy is not None and strategy.enable_keras_extensions
        if extend and not isinstance(instance, ModelExtension):
            instance.__class__ = extended_class(type(instance))
        return instance

    keras.Model.__new__ = __new__


@functools.cache
def extended_class(cls: type) -> type:
    """The class of the models of `cls` on an IPU.

    It has the name and the module of `cls` and is saved as it, so that stock
    Keras loads the model.

    Args:
        cls: A subclass of `keras.Model`.

    Returns:
        A subclass of the extension that fits and of `cls`.
    """
    body: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
    }
    extended = type(cls.__name__, (_extension_of(cls), cls), body)
    _save_as(extended, cls)
    return extended


def _extension_of(cls: type) -> type[ModelExtension]:
    if issubclass(cls, keras.Sequential):
        return SequentialExtension
    if issubclass(cls, keras.src.models.Functional):
        return FunctionalExtension
    return ModelExtension


def _save_as(extended: type, cls: type) -> None:
    """Keras looks the name of a class up by the class itself, in one of two tables."""
    public_name = api_export.get_name_from_symbol(cls)
    if public_name is not None:
        api_export.REGISTERED_OBJS_TO_NAMES[extended] = public_name
    if cls in object_registration.GLOBAL_CUSTOM_NAMES:
        name = object_registration.GLOBAL_CUSTOM_NAMES[cls]
        object_registration.GLOBAL_CUSTOM_NAMES[extended] = name
