"""Gives layers the same names in traced graphs as in the model, for reports."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_keras.hooks.keras.layer_calls import surround_name_scopes
from ipu_keras.internals.keras.backend import open_as
from ipu_keras.tracing.layer_scopes import current_layer_scopes


def attach_scope_names() -> None:
    """Merges the scopes that Keras opens for one layer, where `layer_scopes` asks for it.

    Keras opens a scope once to build the layer and once to call it, and TensorFlow would number
    the second, so that `dense` became `dense_1`.
    """
    surround_name_scopes(_enter)


def _enter(scope: Any, enter: Callable[[Any], Any]) -> Any:
    scopes = current_layer_scopes()
    if scopes is None or scope.caller is None or tf.executing_eagerly():
        return enter(scope)
    graph = tf.compat.v1.get_default_graph()
    around = graph.get_name_scope()
    key = graph, around, scope.name, id(scope.caller)
    opened = scopes.opened(*key)
    if opened is not None:
        # A name that ends in a slash opens the scope again.
        open_as(scope, tf.name_scope(f"{opened}/"))
    entered = enter(scope)
    if graph.get_name_scope() != around:  # Keras opens no scope of a layer within itself
        scopes.add(*key, graph.get_name_scope())
    return entered
