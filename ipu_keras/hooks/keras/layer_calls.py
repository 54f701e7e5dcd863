"""Surrounds Keras's calls of layers and their name scopes, and changes what some layers compute."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import keras

from ipu_keras.hooks.installation import install
from ipu_keras.internals.keras.backend import backend_module, name_scope


class Observer(Protocol):
    """Stands around the calls of layers."""

    def called(self, operation: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        """Makes a layer's or operation's call, `call(*args, **kwargs)`, and returns its result."""


def observe_calls(current: Callable[[], Observer | None]) -> None:
    """Lets an observer stand around the calls of layers, whenever `current` returns one.

    Keras offers no hook there. Overriding `Functional._run_through_graph` would show the calls
    in a graph, but not those in the `call` of a subclass, nor those in models that were made
    outside a strategy's scope and nested later. The `call` of a layer is too far inside: its
    inputs have been cast by then. So `__call__` is wrapped, that of layers and that of the
    other operations that functional graphs have.
    """
    install(keras.Layer, "__call__", lambda call: _observed(call, current, lambda layer: True))
    # `Layer.__call__` ends in `Operation.__call__`, so a layer would be observed twice.
    install(keras.Operation, "__call__", lambda call: _observed(call, current, _is_no_layer))


def _is_no_layer(operation: Any) -> bool:
    return not isinstance(operation, keras.Layer)


def _observed(
    original: Callable, current: Callable[[], Observer | None], concerns: Callable[[Any], bool]
) -> Callable:
    def __call__(self, *args, **kwargs):
        observer = current()
        if observer is None or not concerns(self):
            return original(self, *args, **kwargs)
        return observer.called(self, functools.partial(original, self), args, kwargs)

    return __call__


def surround_name_scopes(enter: Callable[[Any, Callable[[Any], Any]], Any]) -> None:
    """Lets another function enter Keras's name scopes: it takes the scope and its `__enter__`.

    Keras offers no hook there: the scope is opened in the middle of a layer's `__call__`.
    """

    def wrapper(original: Callable) -> Callable:
        def __enter__(self):
            return enter(self, original)

        return __enter__

    install(name_scope(), "__enter__", wrapper)


def extend_batch_norm(
    in_training: Callable[[Any, Any], Any], moments: Callable[[Any, Any, Any, Any], tuple[Any, Any]]
) -> None:
    """Lets other functions compute what the layer does in training.

    Args:
        in_training: Takes the layer and its inputs; returns the outputs, or `None` to leave
            them to Keras.
        moments: Takes the layer, the mean and variance of a batch, and its mask or `None`;
            returns the mean and variance to normalize with.
    """

    def with_outputs(original: Callable) -> Callable:
        def call(self, inputs, training=None, mask=None):
            outputs = in_training(self, inputs) if training and mask is None else None
            if outputs is not None:
                return outputs
            return original(self, inputs, training=training, mask=mask)

        return call

    def with_moments(original: Callable) -> Callable:
        def _moments(self, inputs, mask):
            mean, variance = original(self, inputs, mask)
            return moments(self, mean, variance, mask)

        return _moments

    install(keras.layers.BatchNormalization, "call", with_outputs)
    install(keras.layers.BatchNormalization, "_moments", with_moments)


def offer_lstm(compute: Callable[..., Any]) -> None:
    """Has `compute` stand in for the backend's LSTM over a sequence, unless it returns `None`."""

    def wrapper(original: Callable) -> Callable:
        def lstm(inputs, initial_state_h, initial_state_c, mask, *args, **kwargs):
            computed = None
            if not args and mask is None:
                computed = compute(inputs, initial_state_h, initial_state_c, **kwargs)
            if computed is not None:
                return computed
            return original(inputs, initial_state_h, initial_state_c, mask, *args, **kwargs)

        return lstm

    install(backend_module(), "lstm", wrapper)
