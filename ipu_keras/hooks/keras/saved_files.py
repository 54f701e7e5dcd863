"""What Keras writes: models, weights, and the backups of training."""

import contextlib
import copy
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from ipu_keras.hooks.installation import install
from ipu_keras.internals.keras.saving import (
    backup_class,
    file_functions,
    saved_states,
    saving_functions,
    tf_keras_models,
)

# Writes a file or a folder: takes its path, and what writes it to a path.
Write = Callable[[str, Callable[[str], Any]], Any]


def surround_writing(
    concerns: Callable[[], bool],
    write: Write,
    remove: Callable[[str], None],
    within: Callable[[], contextlib.AbstractContextManager[None]],
) -> None:
    """Has a function write what Keras saves to files, and remove its backups.

    Args:
        concerns: Whether that is so, asked each time.
        write: May have it written to another path, and move it.
        remove: Takes the folder of a backup that is no longer wanted.
        within: Opened where whoever saves or loads makes variables of no model.
    """

    def saving(original: Callable) -> Callable:
        def save(model, filepath, overwrite=True, *args, **kwargs):
            if not concerns() or not _is_local(filepath):
                return original(model, filepath, overwrite, *args, **kwargs)
            path = os.fspath(filepath)
            if not overwrite and os.path.exists(path):
                # Keras asks the user, and does not find the file at another path.
                return write(path, lambda _: original(model, path, overwrite, *args, **kwargs))
            return write(path, lambda new: original(model, new, overwrite, *args, **kwargs))

        return save

    def exporting(original: Callable) -> Callable:
        def export(model, filepath, format="tf_saved_model", verbose=None, *args, **kwargs):
            # SavedModels are TensorFlow's to write.
            if not concerns() or format == "tf_saved_model" or not _is_local(filepath):
                return original(model, filepath, format, verbose, *args, **kwargs)
            # It would say the other path.
            write(
                os.fspath(filepath),
                lambda new: original(model, new, format, False, *args, **kwargs),
            )
            if verbose is not False:
                print(f"Saved artifact at '{filepath}'.")
            return None

        return export

    def backing_up(original: Callable) -> Callable:
        def _save_model(self):
            if not concerns() or not _is_local(self.backup_dir):
                return original(self)
            # Weights and the number of the epoch are two files, which belong together.
            path = os.path.abspath(self.backup_dir)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return write(path, lambda new: original(_moved(self, new)))

        return _save_model

    def ending(original: Callable) -> Callable:
        def on_train_end(self, logs=None):
            if not concerns() or not _is_local(self.backup_dir):
                return original(self, logs)
            if self.delete_checkpoint:
                remove(os.path.abspath(self.backup_dir))
            return None

        return on_train_end

    def making(original: Callable) -> Callable:
        def makedirs(path):
            # Keras looks whether there is one, and another process may make it in between.
            return os.makedirs(path, exist_ok=True) if concerns() else original(path)

        return makedirs

    def comparing(original: Callable) -> Callable:
        def get_attr_skipset(obj_type):
            # It makes an optimizer, to see what attributes each has.
            with within():
                return original(obj_type)

        return get_attr_skipset

    again = (keras.saving, keras.models, tf_keras_models())
    install(saving_functions(), "save_model", saving, also=again)
    install(saving_functions(), "save_weights", saving, also=[keras.saving])
    install(keras.Model, "export", exporting)
    install(backup_class(), "_save_model", backing_up)
    install(backup_class(), "on_train_end", ending)
    install(file_functions(), "makedirs", making)
    install(saved_states(), "get_attr_skipset", comparing)


def _is_local(path: Any) -> bool:
    return isinstance(path, str | os.PathLike) and "://" not in os.fspath(path)


def _moved(callback: keras.callbacks.Callback, folder: str) -> keras.callbacks.Callback:
    """Returns a callback that backs up to another folder, and has its files there."""
    moved, before = copy.copy(callback), Path(callback.backup_dir)
    moved.backup_dir = folder
    for name, value in vars(callback).items():
        if isinstance(value, str) and Path(value).parent == before:
            new = os.path.join(folder, os.path.basename(value))
            setattr(moved, name, new)
            if callback.double_checkpoint and os.path.exists(value):
                os.makedirs(folder, exist_ok=True)
                shutil.copy2(value, new)
    return moved
