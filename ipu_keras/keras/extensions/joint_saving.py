"""Has processes that train together save once, so that files are whole or not there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ipu_keras.hooks.keras.saved_files import surround_writing
from ipu_keras.hooks.tensorflow.event_files import name_event_files
from ipu_keras.hooks.tensorflow.exports import surround_exports
from ipu_keras.hooks.tensorflow.saved_variables import surround_checkpoints
from ipu_keras.machine.system import SYSTEM
from ipu_keras.processes.checkpoints import are_several, of_one_process, written_once
from ipu_keras.store.atomic_files import remove_whole, written_beside


def attach_joint_saving() -> None:
    """Has Keras and TensorFlow write files once for all processes."""
    surround_writing(are_several, _write, _remove, of_one_process)
    surround_checkpoints(are_several, written_once, of_one_process)
    surround_exports(are_several, written_once, _write)
    name_event_files(lambda: f".{SYSTEM.world.rank}" if SYSTEM.world.rank else "")


def _write(path: str, write: Callable[[str], Any]) -> Any:
    def write_whole():
        with written_beside(Path(path)) as new:
            return write(str(new))

    return written_once(path, write_whole)


def _remove(folder: str) -> None:
    def remove():
        if os.path.isdir(folder):
            remove_whole(Path(folder))

    # Another process may still read what is there: it asks for the same.
    written_once(folder, remove)
