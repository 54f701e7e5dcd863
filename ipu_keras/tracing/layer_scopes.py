"""Remembers the scopes that layers got while functions are traced, so that each has one."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any


class LayerScopes:
    """Names of the scopes that layers have in the graphs that are being traced.

    Example:

    >>> scopes = LayerScopes()
    >>> scopes.add("graph", "model", "dense", 7, "model/dense_1")
    >>> scopes.opened("graph", "model", "dense", 7)
    'model/dense_1'
    >>> scopes.first_of("graph", 7)
    'model/dense_1'
    """

    def __init__(self) -> None:
        self._opened: dict[tuple[Any, str, str, int], str] = {}
        self._first: dict[tuple[Any, int], str] = {}

    def opened(self, graph: Any, around: str, name: str, owner: int) -> str | None:
        """Returns the scope that a layer got within `around` for a name, or `None`.

        The `owner` is the layer's `id`, as two layers may have the same name.
        """
        return self._opened.get((graph, around, name, owner))

    def first_of(self, graph: Any, owner: int) -> str | None:
        """Returns the first scope in a graph that was made for a layer, wherever it was."""
        return self._first.get((graph, owner))

    def add(self, graph: Any, around: str, name: str, owner: int, scope: str) -> None:
        """Notes the scope that a layer got; `around`, `name` and `owner` are as for `opened`."""
        self._opened[graph, around, name, owner] = scope
        self._first.setdefault((graph, owner), scope)


_scopes: ContextVar[LayerScopes | None] = ContextVar("layer_scopes", default=None)


@contextlib.contextmanager
def layer_scopes() -> Iterator[None]:
    """While this is open, a layer that opens its scope again gets the same one.

    Keras opens a layer's scope twice in each call, and TensorFlow numbers scopes of the same
    name: the layer `dense` would be `dense_1` in a graph, as if it were another layer.
    """
    token = _scopes.set(LayerScopes())
    try:
        yield
    finally:
        _scopes.reset(token)


def current_layer_scopes() -> LayerScopes | None:
    """Returns the scopes made so far; `None` outside of `layer_scopes`."""
    return _scopes.get()
