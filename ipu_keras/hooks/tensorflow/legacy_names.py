"""Names of TensorFlow 1 that `tf.compat.v1` has no longer with Keras 3."""

from types import ModuleType

import tensorflow as tf


def give_legacy_names(layers: ModuleType, cells: ModuleType) -> None:
    """Gives `tf.compat.v1` what its lazy modules would have, for the rest of the process.

    It is for processes that run a script of TensorFlow 1, so nothing undoes it, and it is in no
    table.

    Args:
        layers: For `layers`.
        cells: For `nn.rnn_cell`.
    """
    tf.compat.v1.layers = layers
    tf.compat.v1.nn.rnn_cell = cells
