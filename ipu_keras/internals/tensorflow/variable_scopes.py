"""What TensorFlow 1 knows of the names of variables, and graphs that may no longer change."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.internals.forms import Class, Function, PrivateName

_STORE = PrivateName(
    "tensorflow.python.ops.variable_scope", "_get_default_variable_store", Function()
)
_STORE_CLASS = PrivateName(
    "tensorflow.python.ops.variable_scope",
    "_VariableStore",
    Class(assigned=("_vars", "_partitioned_vars")),
)
_SCOPES = PrivateName(
    "tensorflow.python.ops.variable_scope", "get_variable_scope_store", Function()
)
_SCOPES_CLASS = PrivateName(
    "tensorflow.python.ops.variable_scope",
    "_VariableScopeStore",
    Class(assigned=("current_scope", "variable_scopes_count")),
)
_CHANGEABLE = PrivateName("tensorflow", "Graph._unsafe_unfinalize", Function("self"))


@dataclass(frozen=True)
class VariableNames:
    """The names of variables in the current graph at one moment, and the scope that was open.

    Args:
        parts: Those of the variables that were partitioned.
        counts: How often scopes of each name were opened.
    """

    variables: dict
    parts: dict
    counts: dict
    scope: Any

    @classmethod
    def now(cls) -> "VariableNames":
        _STORE_CLASS.get()
        _SCOPES_CLASS.get()
        store, scopes = _STORE.get()(), _SCOPES.get()()
        return cls(
            dict(store._vars),
            dict(store._partitioned_vars),
            dict(scopes.variable_scopes_count),
            scopes.current_scope,
        )

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """While this is open, the graph knows the names that it knew then."""
        before = VariableNames.now()
        self._set()
        try:
            yield
        finally:
            before._set()

    def _set(self) -> None:
        store, scopes = _STORE.get()(), _SCOPES.get()()
        store._vars = dict(self.variables)
        store._partitioned_vars = dict(self.parts)
        scopes.variable_scopes_count = dict(self.counts)
        scopes.current_scope = self.scope


@contextlib.contextmanager
def changeable(graph: tf.Graph) -> Iterator[None]:
    """While this is open, a session's graph may be changed, even if it was finalized."""
    if not graph.finalized:
        yield
        return
    _CHANGEABLE.get()
    graph._unsafe_unfinalize()
    try:
        yield
    finally:
        graph.finalize()
