"""Where Keras looks up names of classes to save them, and the modules that clone models."""

from typing import Any

from ipu_keras.internals.forms import Class, Function, InstanceOf, Module, PrivateName

_PUBLIC_NAMES = PrivateName("keras.src.api_export", "REGISTERED_OBJS_TO_NAMES", InstanceOf(dict))
_REGISTERED_NAMES = PrivateName(
    "keras.src.saving.object_registration", "GLOBAL_CUSTOM_NAMES", InstanceOf(dict)
)
_CLONING = PrivateName("keras.src.models", "cloning", Module(clone_model=Function("model")))
_TF_MODELS = PrivateName("keras._tf_keras.keras", "models", Module(clone_model=Function("model")))
_SAVING = PrivateName(
    "keras.src.saving",
    "saving_api",
    Module(
        save_model=Function("model", "filepath", "overwrite"),
        save_weights=Function("model", "filepath", "overwrite"),
    ),
)
_STATES = PrivateName(
    "keras.src.saving", "saving_lib", Module(get_attr_skipset=Function("obj_type"))
)
_FILES = PrivateName("keras.src.utils", "file_utils", Module(makedirs=Function("path")))
_BACKUPS = PrivateName(
    "keras.callbacks",
    "BackupAndRestore",
    Class(
        members={"_save_model": Function("self"), "on_train_end": Function("self", "logs")},
        assigned=("backup_dir", "delete_checkpoint", "double_checkpoint"),
    ),
)


def public_names() -> dict[Any, str]:
    """Returns the names of what Keras exports, by what is exported."""
    return _PUBLIC_NAMES.get()


def registered_names() -> dict[Any, str]:
    """Returns the names that users have registered, by what they registered."""
    return _REGISTERED_NAMES.get()


def cloning_module() -> Any:
    """Returns the module in which `clone_model` calls itself for nested models."""
    return _CLONING.get()


def tf_keras_models() -> Any:
    """Returns the module that is `tf.keras.models`."""
    return _TF_MODELS.get()


def saving_functions() -> Any:
    """Returns the module of the functions that methods of models call to save."""
    return _SAVING.get()


def saved_states() -> Any:
    """Returns the module that walks through a model whose state is saved or loaded."""
    return _STATES.get()


def file_functions() -> Any:
    """Returns the module of the functions by which callbacks look at files and make folders."""
    return _FILES.get()


def backup_class() -> Any:
    """Returns the callback that backs up weights and the number of the epoch."""
    return _BACKUPS.get()
