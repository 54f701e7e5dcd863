"""Gradients on the IPUs of what they are the gradients of."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ipu_keras.ir import Graph, Op
from ipu_keras.tracing.layers import forward_path


def with_shards_of_gradients(graph: Graph, traced: Callable[[], Mapping[str, int]]) -> Graph:
    """Gives the operations of gradients the shards of the operations whose gradients they are.

    Gradients are asked for outside of the scopes of shards. TensorFlow names them after the
    operation, or the scope that it is in; where that does not tell one shard, they have none.

    Args:
        graph: HLO, as it was traced.
        traced: The shards of operations of TensorFlow by name, also of those that nobody needs
            but for their gradients. Not called if nothing is on a shard.
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
    """The shards of operations by name, but for those of gradients."""
    for graph in graphs:
        for op in graph.ops:
            if op.shard is not None and not op.backward and op.kind != "parameter":
                yield op.name, op.shard


def _scopes(name: str) -> Iterator[str]:
    """The scopes that a name is in, innermost first; of XLA's, with TensorFlow's operation."""
    parts = name.split("/")
    for end in range(len(parts) - 1, 0, -1):
        yield "/".join(parts[:end])
