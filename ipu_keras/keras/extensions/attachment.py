"""Changes the class of Keras models that an `IPUStrategy`'s scope makes to one with the
extension."""

from typing import Any

import keras

from ipu_keras.hooks.keras.construction import ask_before_old_models, save_as, tell_of_models
from ipu_keras.internals.keras.models import Functional
from ipu_keras.ipu_strategy import current_ipu_strategy
from ipu_keras.keras.extensions.functional_extension import FunctionalExtension
from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.keras.extensions.sequential_extension import SequentialExtension


def attach_extensions() -> None:
    """Makes `keras.Model` look for a strategy whenever an instance is made; further calls do
    nothing."""
    tell_of_models(_extend)
    ask_before_old_models(_refuse_old_models)


def _refuse_old_models() -> None:
    if current_ipu_strategy() is not None:
        raise RuntimeError(
            "Models of `tensorflow.python.keras`, the old Keras that TensorFlow keeps for itself, "
            "do not run on IPUs. Use those of `keras` or of `tf.keras`: `import keras` in place "
            "of `from tensorflow.python import keras`. Received: one made in the scope of an "
            "IPUStrategy"
        )


def _extend(model: keras.Model) -> None:
    if _extends_models() and not isinstance(model, ModelExtension):
        model.__class__ = extended_class(type(model))
        _ = model._ipu  # made now, to take over what the model remembers as a layer


def extended_class(cls: type[keras.Model]) -> type[ModelExtension]:
    """Returns the subclass of `cls` and of the extension that fits it, the same at every call.

    The class has the name and the module of `cls` and is saved as `cls`, so that stock Keras
    loads the model. Outside a strategy's scope it makes models of `cls`.
    """
    # No table of our own: Python knows the subclasses of a class, and forgets them with it.
    for made in cls.__subclasses__():
        if _extends(made, cls):
            return made

    def __new__(extended, *args, **kwargs):
        if not _extends_models():
            # Keras makes copies with the class of a model. What this returns is no instance of
            # `extended`, so Python does not call `__init__` a second time.
            return cls(*args, **kwargs)
        # A subclass of `keras.Model` becomes a Functional one when it is first given inputs and
        # outputs: Keras changes its bases, and calls `__new__` to have that done.
        extension = _extension_of(cls)
        if not issubclass(extended, extension):
            extended.__bases__ = (cls, extension)
        return super(extended, extended).__new__(extended, *args, **kwargs)

    body: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__new__": __new__,
    }
    extended = type(cls.__name__, (cls, _extension_of(cls)), body)
    save_as(extended, cls)
    return extended


def _extends(made: type, cls: type) -> bool:
    """Whether a subclass was made here, and not by a user who subclassed an extended class."""
    same_name = (made.__module__, made.__qualname__) == (cls.__module__, cls.__qualname__)
    return same_name and issubclass(made, ModelExtension) and not issubclass(cls, ModelExtension)


def _extends_models() -> bool:
    strategy = current_ipu_strategy()
    return strategy is not None and strategy.enable_keras_extensions


def _extension_of(cls: type[keras.Model]) -> type[ModelExtension]:
    if issubclass(cls, keras.Sequential):
        return SequentialExtension
    if issubclass(cls, Functional):
        return FunctionalExtension
    return ModelExtension
