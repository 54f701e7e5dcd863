"""How Keras calls layers, and the operations of functional graphs."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import keras

from ipu_keras.hooks.installation import install


class Observer(Protocol):
    """What is told of the calls of layers."""

    def called(self, operation: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        """Makes the call, and returns its result.

        Args:
            operation: The layer, or an operation of Keras in a functional graph.
            call: Makes the call, of these arguments.
            args: Positional arguments.
            kwargs: Named arguments.
        """


def observe_calls(current: Callable[[], Observer | None]) -> None:
    """Lets an observer stand around the calls of layers.

    Keras offers no hook there. The calls in a graph could be told from overriding
    `Functional._run_through_graph`, but not those in the `call` of a subclass, nor
    those in models that were made outside a strategy's scope and nested later; the
    `call` of a layer is too far inside, after its inputs have been cast. So
    `__call__` is wrapped, that of layers and that of the operations that functional
    graphs have besides. Without an observer they do what they did.

    Args:
        current: Returns the observer, if there is one, whenever something is called.
    """
    install(keras.Layer, "__call__", lambda call: _observed(call, current, lambda layer: True))
    # A layer calls this as well, and has been observed by then.
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
