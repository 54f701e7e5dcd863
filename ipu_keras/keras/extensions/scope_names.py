"""Names of layers in traced graphs as in the model, for reports."""

import functools

import tensorflow as tf
from keras.src import backend

from ipu_keras.tracing.layer_scopes import current_layer_scopes


def attach_scope_names() -> None:
    """Lets the scopes that Keras opens for a layer be one, where `layer_scopes` asks for it.

    Keras offers no hook there: the scope is opened in the middle of a layer's `__call__`, once to
    build the layer and once to call it. So the scope's `__enter__` is wrapped once; elsewhere it
    does what it did.
    """
    original = backend.name_scope.__enter__
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def __enter__(self):
        scopes = current_layer_scopes()
        if scopes is None or self.caller is None or tf.executing_eagerly():
            return original(self)
        graph = tf.compat.v1.get_default_graph()
        around = graph.get_name_scope()
        key = graph, around, self.name, id(self.caller)
        opened = scopes.opened(*key)
        if opened is not None:
            # TensorFlow opens a scope again if its name ends like this.
            self._tf_name_scope = tf.name_scope(f"{opened}/")
        entered = original(self)
        if graph.get_name_scope() != around:  # Keras leaves out a scope of its own within itself
            scopes.add(*key, graph.get_name_scope())
        return entered

    backend.name_scope.__enter__ = __enter__
