"""Tells of the models that Keras clones."""

from collections.abc import Callable
from typing import Any

import keras

from ipu_keras.hooks.installation import install
from ipu_keras.internals.keras.saving import cloning_module, tf_keras_models


def tell_of_clones(cloned: Callable[[Any, Any], None]) -> None:
    """Has `cloned` called with each model that is cloned, and with its clone.

    A clone is made from a model's config or calls alone, and Keras has no hook for what else
    the model has. So `clone_model` is wrapped, in each of the modules that offer it.
    """

    def wrapper(original: Callable) -> Callable:
        def clone_model(model, *args, **kwargs):
            clone = original(model, *args, **kwargs)
            cloned(model, clone)
            return clone

        return clone_model

    install(cloning_module(), "clone_model", wrapper, also=[keras.models, tf_keras_models()])
