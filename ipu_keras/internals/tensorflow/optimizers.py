"""What optimizers of TensorFlow 1 keep, and how checkpoints find it.

The class is public, but made to be extended by new update rules alone. Optimizers that wrap
others also have to pass on what it does for checkpoints.
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

# `tf.compat.v1.train.Optimizer`, compared at import because it is a base of our classes.
Optimizer: Any = _OPTIMIZER.get()
