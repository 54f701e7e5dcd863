"""What writes checkpoints of objects, and the file that says which is the last."""

from typing import Any

from ipu_keras.internals.forms import Class, Function, Module, PrivateName

_SAVER = PrivateName(
    "tensorflow.python.checkpoint.checkpoint",
    "TrackableSaver",
    Class(members={"save": Function("self", "file_prefix")}),
)
_ASYNCHRONOUS = PrivateName(
    "tensorflow.python.checkpoint.async_checkpoint_helper",
    "AsyncCheckpointHelper",
    Class(
        members={
            "save": Function("self", "save_path", "options"),
            "_write": Function("self", "save_path", "options"),
            "checkpointer": Function("self"),
            "sync": Function("self"),
        }
    ),
)
_RECORDS = PrivateName(
    "tensorflow.python.checkpoint",
    "checkpoint_management",
    Module(update_checkpoint_state_internal=Function("save_dir", "model_checkpoint_path")),
)


def object_saver() -> Any:
    """Returns the class whose `save` writes all variables of a `tf.train.Checkpoint`."""
    return _SAVER.get()


def asynchronous_saver() -> Any:
    """Returns the class that writes checkpoints in a thread, where their options say so."""
    return _ASYNCHRONOUS.get()


def checkpoint_records() -> Any:
    """Returns the module in which all savers look up what writes that file."""
    return _RECORDS.get()
