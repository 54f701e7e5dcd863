"""While functions are traced, the scopes that were made for layers: a layer has one, not many."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

# Names of scopes by graph, scope around them, name and owner.
Scopes = dict[tuple[Any, str, str, int], str]

_scopes: ContextVar[Scopes | None] = ContextVar("layer_scopes", default=None)


@contextlib.contextmanager
def layer_scopes() -> Iterator[None]:
    """While tracing, lets a layer that opens its scope again have the same one.

    Keras opens a layer's scope twice in each call, and TensorFlow numbers what has the same
    name: the layer `dense` would be `dense_1` in a graph, as if it were another one.
    """
    token = _scopes.set({})
    try:
        yield
    finally:
        _scopes.reset(token)


def current_layer_scopes() -> Scopes | None:
    """The scopes made so far; `None` outside of `layer_scopes`."""
    return _scopes.get()
