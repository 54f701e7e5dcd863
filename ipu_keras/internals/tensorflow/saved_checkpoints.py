"""What writes checkpoints of objects, and the file that says which is the last."""

from typing import Any

from ipu_keras.internals.forms import Class, Function, Module, PrivateName

_SAVER = PrivateName(
    "tensorflow.python.checkpoint.checkpoint",
    "TrackableSaver",
    Class(members={"save": Function("self", "file_prefix")}),
)
_CHECKPOINT = PrivateName(
    "tensorflow.python.checkpoint.checkpoint",
    "Checkpoint",
    Class(members={"_maybe_create_save_counter": Function("self")}),
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


def counted_checkpoint() -> Any:
    """Returns the class `tf.train.Checkpoint`, which makes a variable when it is first saved."""
    return _CHECKPOINT.get()


def asynchronous_saver() -> Any:
    """Returns the class that writes checkpoints in a thread, where their options say so."""
    return _ASYNCHRONOUS.get()


def checkpoint_records() -> Any:
    """Returns the module in which all savers look up what writes that file."""
    return _RECORDS.get()
