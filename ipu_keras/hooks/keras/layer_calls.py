"""Surrounds Keras's calls of layers, and of the operations in functional graphs."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import keras

from ipu_keras.hooks.installation import install


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
