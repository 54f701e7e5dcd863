"""What TensorFlow exports: SavedModels of objects, and those of sessions."""

import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.saved_models import writing_module

_METHODS = ("__init__", "add_meta_graph", "add_meta_graph_and_variables", "save")


def surround_exports(
    concerns: Callable[[], bool],
    once: Callable[[str, Callable[[], Any]], Any],
    write: Callable[[str, Callable[[str], Any]], Any],
) -> None:
    """Has a function write SavedModels, also those of Keras's `export`.

    Args:
        concerns: Whether that is so, asked each time.
        once: Takes a text that says what is written, and what writes it, and returns what that
            does, also if it is not called in this process.
        write: The same for a folder, which may be written to another path and moved.
    """

    def saving(original: Callable) -> Callable:
        def save_and_return_nodes(obj, export_dir, *args, **kwargs):
            if not concerns():
                return original(obj, export_dir, *args, **kwargs)
            found: list[Any] = []

            def to(path: str) -> None:
                found.append(original(obj, path, *args, **kwargs))

            folder = os.fspath(export_dir)
            if "://" in folder:
                once(folder, lambda: to(folder))
            else:
                os.makedirs(os.path.dirname(os.path.abspath(folder)), exist_ok=True)
                write(folder, to)
            # `tf.saved_model.save` needs nothing of it.
            return found[0] if found else None

        return save_and_return_nodes

    def building(original: Callable) -> Callable:
        def method(self, *args, **kwargs):
            if not concerns():
                return original(self, *args, **kwargs)
            if original.__name__ == "__init__":
                # All that a builder has where another process does what its methods do.
                (self._export_dir,) = (*args, *kwargs.values())
            place = os.path.join(self._export_dir, f":{original.__name__}")
            return once(place, lambda: original(self, *args, **kwargs))

        return method

    install(writing_module(), "save_and_return_nodes", saving)
    for name in _METHODS:
        install(tf.compat.v1.saved_model.Builder, name, building)
