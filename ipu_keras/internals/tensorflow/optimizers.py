"""What optimizers of TensorFlow 1 keep, and how checkpoints find it.

The class is public, to be extended by rules of updates alone; those that wrap others have to pass
on what it does with checkpoints.
"""

from typing import Any

from ipu_keras.internals.forms import Class, Function, PrivateName

_OPTIMIZER = PrivateName(
    "tensorflow",
    "compat.v1.train.Optimizer",
    Class(
        "_deferred_dependencies",
        members={
            "_create_or_restore_slot_variable": Function(
                "self", "slot_variable_position", "slot_name", "variable"
            ),
            "_get_or_make_slot": Function("self", "var", "val", "slot_name", "op_name"),
            "_lookup_dependency": Function("self", "name"),
            "_maybe_initialize_trackable": Function("self"),
            "_trackable_children": Function("self", "save_type"),
        },
        assigned=("_name", "_slots"),
    ),
)

# `tf.compat.v1.train.Optimizer`; it is used as soon as it is a base class.
Optimizer: Any = _OPTIMIZER.get()
