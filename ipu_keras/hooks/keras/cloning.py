"""How Keras clones models."""

from collections.abc import Callable
from typing import Any

import keras

from ipu_keras.hooks.installation import install
from ipu_keras.internals.keras.saving import cloning_module, tf_keras_models


def tell_of_clones(cloned: Callable[[Any, Any], None]) -> None:
    """Has a function told of each model that is cloned.

    A clone is made of the config of a model, or of its calls; Keras has no hook for
    what else it has. So `clone_model` is wrapped, wherever Keras has it.

    Args:
        cloned: Called with the model and its clone.
    """

    def wrapper(original: Callable) -> Callable:
        def clone_model(model, *args, **kwargs):
            clone = original(model, *args, **kwargs)
            cloned(model, clone)
            return clone

        return clone_model

    install(cloning_module(), "clone_model", wrapper, also=[keras.models, tf_keras_models()])
