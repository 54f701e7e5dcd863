"""Makes the variables that a compiled model needs for its data, before it is traced."""

import functools
from typing import Any

import keras
import tensorflow as tf
from keras import tree

from ipu_keras.internals.keras.backend import compute_output_spec
from ipu_keras.internals.keras.models import Functional, layers_in, outputs_in
from ipu_keras.internals.keras.training import (
    compiled_loss,
    compiled_metrics,
    compute_loss,
    symbolic_build,
)


def is_built(model: keras.Model) -> bool:
    """Whether a compiled model has everything that Keras builds, for whatever data."""
    parts = (compiled_metrics(model), compiled_loss(model), model.optimizer)
    return all(part is None or part.built for part in parts) and all(
        layer.built for layer in layers_in(model)
    )


def build_from(model: keras.Model, data: Any) -> None:
    """Builds layers, metrics, loss and optimizer of a compiled model, as Keras does in `fit`.

    Keras calls a model to see the shapes of its outputs, which for a deep model takes as long as
    a fifth of tracing its train step. Those of functional models are known. `data` is what
    `train_step` takes, with `tf.TensorSpec`s for tensors. A model that cannot be called on it
    raises a RuntimeError or a ValueError.
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tree.map_structure(_symbol, data))
    predicted = _known_outputs(model, x)
    if predicted is not None:
        metrics, loss = compiled_metrics(model), compiled_loss(model)
        if metrics is not None and not metrics.built:
            compute_output_spec(model.compute_metrics, x, y, predicted, sample_weight=sample_weight)
        if loss is not None and not loss.built:
            of_model = functools.partial(compute_loss, model)
            compute_output_spec(
                of_model, x, y, predicted, sample_weight=sample_weight, training=False
            )
    # Keras skips what is built already, and the call of the model with it.
    symbolic_build(model, data)


def _symbol(spec: tf.TensorSpec | None) -> keras.KerasTensor | None:
    return (
        None
        if spec is None
        else keras.KerasTensor(spec.shape, keras.backend.standardize_dtype(spec.dtype))
    )


def _known_outputs(model: keras.Model, x: Any) -> Any:
    """Returns the model's outputs for inputs as `KerasTensor`s; None if they are not known."""
    functional = getattr(model, "_functional", None) or model
    own_call = type(model).call not in (Functional.call, keras.Sequential.call)
    if own_call or not isinstance(functional, Functional):
        return None
    # Where the inputs do not fit or a layer is not built, the call in Keras is to say so.
    given, expected = tree.flatten(x), functional.inputs
    fit = len(given) == len(expected) and all(map(_fits, given, expected))
    if not fit or not all(layer.built for layer in layers_in(model)):
        return None
    outputs = outputs_in(functional)
    if any(None in tensor.shape[1:] or not tensor.shape for tensor in tree.flatten(outputs)):
        return None
    size = given[0].shape[0]
    return tree.map_structure(
        lambda tensor: keras.KerasTensor((size, *tensor.shape[1:]), tensor.dtype), outputs
    )


def _fits(given: Any, expected: keras.KerasTensor) -> bool:
    return (
        given is not None
        and len(given.shape) == len(expected.shape)
        and all(b in (None, a) for a, b in zip(given.shape, expected.shape, strict=True))
    )
