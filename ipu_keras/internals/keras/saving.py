"""Where Keras looks names of classes up when it saves, and where it has what clones models."""

from typing import Any

from ipu_keras.internals.forms import Function, Module, PrivateName, Value

_PUBLIC_NAMES = PrivateName("keras.src.api_export", "REGISTERED_OBJS_TO_NAMES", Value(dict))
_REGISTERED_NAMES = PrivateName(
    "keras.src.saving.object_registration", "GLOBAL_CUSTOM_NAMES", Value(dict)
)
_CLONING = PrivateName("keras.src.models", "cloning", Module(clone_model=Function("model")))
_TF_MODELS = PrivateName("keras._tf_keras.keras", "models", Module(clone_model=Function("model")))


def public_names() -> dict[Any, str]:
    """The names of what Keras exports, by what is exported."""
    return _PUBLIC_NAMES.get()


def registered_names() -> dict[Any, str]:
    """The names of what users have registered, by what was registered."""
    return _REGISTERED_NAMES.get()


def cloning_module() -> Any:
    """The module in which `clone_model` calls itself."""
    return _CLONING.get()


def tf_keras_models() -> Any:
    """The module that `tf.keras.models` is."""
    return _TF_MODELS.get()
