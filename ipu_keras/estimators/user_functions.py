"""Calls the functions that users give to estimators, with the arguments that they name."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from ipu_keras.estimators.specs import ModeKeys
from ipu_keras.settings.arguments import noted

_OF_MODEL_FUNCTIONS = {"features", "labels", "mode", "params", "config"}


def parameters_of(argument: str, function: Any) -> set[str]:
    """Returns the names of the arguments of a user's function, or raises a `TypeError`."""
    if not callable(function):
        raise TypeError(
            f"`{argument}` must be a function. Received: {argument}={function!r} of type "
            f"{type(function).__name__}"
        )
    return set(inspect.signature(function).parameters)


def check_model_function(model_fn: Any, *, takes_features: bool) -> None:
    """Raises a `ValueError` for a model function with other arguments than it can be given."""
    names = parameters_of("model_fn", model_fn)
    unknown = names - _OF_MODEL_FUNCTIONS
    if unknown:
        raise ValueError(
            f"`model_fn` may only have the arguments {sorted(_OF_MODEL_FUNCTIONS)}. "
            f"Received: also {sorted(unknown)}"
        )
    if takes_features and "features" not in names:
        raise ValueError(
            "`model_fn` must have an argument `features`, which gets what the dataset has. "
            f"Received: a function of {sorted(names)}"
        )
    if not takes_features and names & {"features", "labels"}:
        raise noted(
            ValueError("`model_fn` must not have `features` or `labels` as arguments"),
            "The first computational stage of a pipeline gets these. "
            f"Received: a function of {sorted(names)}",
        )


def called_model_function(
    model_fn: Callable[..., Any],
    features: Any,
    labels: Any,
    mode: str,
    params: Mapping[str, Any],
    config: Any,
) -> Any:
    """Calls a model function with what it takes."""
    names = parameters_of("model_fn", model_fn)
    if labels is not None and "labels" not in names:
        raise ValueError(
            "`model_fn` must have an argument `labels`, as `input_fn` returns a dataset of "
            f"features and labels. Received: a function of {sorted(names)}"
        )
    offered = {
        "features": features,
        "labels": labels,
        "mode": mode,
        "params": dict(params),
        "config": config,
    }
    return model_fn(**{name: value for name, value in offered.items() if name in names})


def dataset_of(
    input_fn: Callable[..., Any],
    mode: str,
    params: Mapping[str, Any],
    config: Any,
    input_context: tf.distribute.InputContext,
) -> tf.data.Dataset:
    """Calls an input function; returns its dataset, whose elements are tuples.

    These are of features and labels, or for predictions of the features alone.
    """
    offered = {
        "mode": mode,
        "params": dict(params),
        "config": config,
        "input_context": input_context,
    }
    names = parameters_of("input_fn", input_fn)
    with tf.device("/device:CPU:0"):
        found = input_fn(**{name: value for name, value in offered.items() if name in names})
        if not isinstance(found, tf.data.Dataset | tf.compat.v1.data.Dataset):
            raise noted(ValueError("input_fn must return Dataset"), f"Received: {found!r}")
        spec = found.element_spec
        if isinstance(spec, tuple | list) and not hasattr(spec, "_fields"):
            if mode == ModeKeys.PREDICT:
                return found.map(lambda features, *rest: (features,))
            if len(spec) not in (1, 2):
                raise ValueError(
                    "The elements of `input_fn`'s dataset must be tuples (features, labels) or "
                    "(features,). "
                    f"Received: elements of {len(spec)} parts"
                )
            return found
        return found.map(lambda features: (features,))
