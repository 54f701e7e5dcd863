"""Puts gradients on the IPUs of the operations whose gradients they are."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ipu_keras.ir import Graph, Op
from ipu_keras.tracing.layers import forward_path


def with_shards_of_gradients(graph: Graph, traced: Callable[[], Mapping[str, int]]) -> Graph:
    """Gives gradients the shards of the operations whose gradients they are.

    A gradient is asked for outside of the scopes of shards. TensorFlow names it after the
    operation, or the scope around that; where this does not tell exactly one shard, the
    gradient gets none. If anything is on a shard, `traced` returns those of TensorFlow's
    operations, also of those that only gradients need.
    """
    every = (graph, *graph.functions.values())
    by_scope: dict[str, set[int]] = {}
    for name, shard in _forward(every):
        for scope in _scopes(name):
            by_scope.setdefault(scope, set()).add(shard)
    if not by_scope:
        return graph
    for name, shard in traced().items():
        for scope in (name, *_scopes(name)):
            by_scope.setdefault(scope, set()).add(shard)

    def placed(op: Op) -> Op:
        if op.shard is not None or not op.backward:
            return op
        found = (by_scope[s] for s in _scopes(forward_path(op.name)) if s in by_scope)
        shards = next((shards for shards in found if len(shards) == 1), None)
        return op if shards is None else replace(op, shard=next(iter(shards)))

    functions = {
        name: replace(each, ops=tuple(map(placed, each.ops)))
        for name, each in graph.functions.items()
    }
    return replace(graph, ops=tuple(map(placed, graph.ops)), functions=functions)


def _forward(graphs: Iterable[Graph]) -> Iterator[tuple[str, int]]:
    """Yields names and shards of operations that are no gradients."""
    for graph in graphs:
        for op in graph.ops:
            if op.shard is not None and not op.backward and op.kind != "parameter":
                yield op.name, op.shard


def _scopes(name: str) -> Iterator[str]:
    """Yields the scopes around a name, innermost first; XLA's names have the operation as one."""
    parts = name.split("/")
    for end in range(len(parts) - 1, 0, -1):
        yield "/".join(parts[:end])
