"""What TensorFlow writes: checkpoints of objects and of sessions, and which is the last one."""

import contextlib
import copy
import os
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.hooks.installation import install
from ipu_keras.internals.tensorflow.functions import is_trace
from ipu_keras.internals.tensorflow.saved_checkpoints import (
    asynchronous_saver,
    checkpoint_records,
    counted_checkpoint,
    object_saver,
)


def surround_checkpoints(
    concerns: Callable[[], bool],
    once: Callable[[str, Callable[[], Any]], Any],
    within: Callable[[], contextlib.AbstractContextManager[None]],
) -> None:
    """Has a function write checkpoints; TensorFlow itself writes each file whole or not at all.

    Args:
        concerns: Whether that is so, asked each time.
        once: Takes the path and what writes it, and returns what that does, the path of the
            checkpoint, also if it is not called in this process.
        within: Opened where a checkpoint makes the variable that counts how often it was saved.
    """

    def saving_objects(original: Callable) -> Callable:
        def save(self, file_prefix, *args, **kwargs):
            is_traced = is_trace(tf.compat.v1.get_default_graph())
            if not concerns() or is_traced or not isinstance(file_prefix, str | os.PathLike):
                return original(self, file_prefix, *args, **kwargs)

            def write():
                return _text(original(self, file_prefix, *args, **kwargs))

            return once(os.fspath(file_prefix), write)

        return save

    def saving_sessions(original: Callable) -> Callable:
        def save(self, sess, save_path, *args, **kwargs):
            if not concerns():
                return original(self, sess, save_path, *args, **kwargs)
            is_here = []

            def write():
                is_here.append(True)
                return original(self, sess, save_path, *args, **kwargs)

            found = once(os.fspath(save_path), write)
            if found is not None and not is_here:
                kept = [one for one in self.last_checkpoints if one != found] + [found]
                most = self.as_saver_def().max_to_keep or len(kept)
                self.set_last_checkpoints_with_time([(one, time.time()) for one in kept[-most:]])
            return found

        return save

    def saving_at_once(original: Callable) -> Callable:
        def save(self, save_path, options=None):
            if not concerns():
                return original(self, save_path, options)
            # In a thread it would be written, or be waited for, at another time in each process.
            self.sync()
            at_once = copy.copy(options) or tf.train.CheckpointOptions()
            at_once.experimental_enable_async_checkpoint = False
            return getattr(self.checkpointer(), original.__name__)(save_path, at_once)

        return save

    def recording(original: Callable) -> Callable:
        def update_checkpoint_state_internal(save_dir, *args, **kwargs):
            if not concerns():
                return original(save_dir, *args, **kwargs)
            # Not the name of a checkpoint, which may be the folder's.
            state = os.path.join(os.fspath(save_dir), ":state")
            return once(state, lambda: original(save_dir, *args, **kwargs))

        return update_checkpoint_state_internal

    def counting(original: Callable) -> Callable:
        def _maybe_create_save_counter(self):
            with within():
                return original(self)

        return _maybe_create_save_counter

    install(counted_checkpoint(), "_maybe_create_save_counter", counting)
    install(object_saver(), "save", saving_objects)
    for name in ("save", "_write"):
        install(asynchronous_saver(), name, saving_at_once)
    install(tf.compat.v1.train.Saver, "save", saving_sessions)
    install(checkpoint_records(), "update_checkpoint_state_internal", recording)


def _text(path: Any) -> str:
    return tf.compat.as_str(path.numpy() if tf.is_tensor(path) else path)
