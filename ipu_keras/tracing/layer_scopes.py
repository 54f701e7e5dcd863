"""While functions are traced, the scopes that were made for layers: a layer has one, not many."""

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
        """The scope that was made for an owner; `None` if there is none yet.

        Args:
            graph: That is traced.
            around: The scope around it.
            name: As the owner asked for it.
            owner: The `id` of the layer.
        """
        return self._opened.get((graph, around, name, owner))

    def first_of(self, graph: Any, owner: int) -> str | None:
        """The first scope that was made for an owner, wherever that was.

        Args:
            graph: That is traced.
            owner: The `id` of the layer.
        """
        return self._first.get((graph, owner))

    def add(self, graph: Any, around: str, name: str, owner: int, scope: str) -> None:
        """Notes a scope.

        Args:
            graph: As for `opened`.
            around: As for `opened`.
            name: As for `opened`.
            owner: As for `opened`.
            scope: The name that it got.
        """
        self._opened[graph, around, name, owner] = scope
        self._first.setdefault((graph, owner), scope)


_scopes: ContextVar[LayerScopes | None] = ContextVar("layer_scopes", default=None)


@contextlib.contextmanager
def layer_scopes() -> Iterator[None]:
    """While tracing, lets a layer that opens its scope again have the same one.

    Keras opens a layer's scope twice in each call, and TensorFlow numbers what has the same
    name: the layer `dense` would be `dense_1` in a graph, as if it were another one.
    """
    token = _scopes.set(LayerScopes())
    try:
        yield
    finally:
        _scopes.reset(token)


def current_layer_scopes() -> LayerScopes | None:
    """The scopes made so far; `None` outside of `layer_scopes`."""
    return _scopes.get()
