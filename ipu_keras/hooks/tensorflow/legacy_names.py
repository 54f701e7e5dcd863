"""Gives `tf.compat.v1` names of TensorFlow 1 that it lacks with Keras 3."""

from types import ModuleType

import tensorflow as tf


def give_legacy_names(layers: ModuleType, cells: ModuleType) -> None:
    """Sets `tf.compat.v1.layers` and `tf.compat.v1.nn.rnn_cell` for the rest of the process.

    With Keras 3 both are lazy modules that fail when they are used. Only a process that runs a
    script of TensorFlow 1 gets here, so nothing undoes it, and it is in no table of hooks.
    """
    tf.compat.v1.layers = layers
    tf.compat.v1.nn.rnn_cell = cells
