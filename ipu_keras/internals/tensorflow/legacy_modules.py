"""Modules of TensorFlow 1 that TensorFlow still has, but under no public name."""

import sys
from types import ModuleType

from ipu_keras.internals.forms import Class, Function, PrivateName

_DENSE = PrivateName("tensorflow.python.layers.layers", "dense", Function("inputs", "units"))
_CELL = PrivateName(
    "tensorflow.python.ops.rnn_cell",
    "BasicLSTMCell",
    Class(members={"__init__": Function("self", "num_units")}),
)


def layers_of_tensorflow_1() -> ModuleType:
    """Returns what `tf.layers` was; with Keras 3, `tf.compat.v1.layers` is empty."""
    _DENSE.get()
    return sys.modules[_DENSE.module]


def cells_of_tensorflow_1() -> ModuleType:
    """Returns what `tf.nn.rnn_cell` was; with Keras 3, `tf.compat.v1.nn.rnn_cell` is empty."""
    _CELL.get()
    return sys.modules[_CELL.module]
