"""Graphs as frozen values: what a step computes, op by op."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ipu_keras.program import TensorSpec


@dataclass(frozen=True)
class Op:
    """One operation of a graph.

    Args:
        name: Unique within its graph; carries the layer's name scope.
        kind: TensorFlow's name of the operation type, such as `"MatMul"`.
        outputs: Its results. A dimension that tracing could not find is -1.
        stateful: Whether it writes something that outlives the graph's run.
        body: Names of the graphs that the operation calls: loop bodies,
            branches, called functions.
    """

    name: str
    kind: str
    outputs: tuple[TensorSpec, ...] = ()
    stateful: bool = False
    body: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A traced computation and the graphs that its operations call.

    Args:
        name: Name of the traced function.
        ops: Operations in the order of tracing.
        functions: Called graphs by name.
    """

    name: str
    ops: tuple[Op, ...]
    functions: dict[str, "Graph"] = field(default_factory=dict)

    @property
    def kinds(self) -> frozenset[str]:
        """The types of its operations, those of called graphs included."""
        return frozenset(op.kind for op in self.walk())

    @property
    def writes_state(self) -> bool:
        """Whether running it changes what a later run sees."""
        return any(op.stateful for op in self.walk())

    def walk(self) -> Iterator[Op]:
        """Yields every operation once, those of called graphs included."""
        seen: set[str] = set()
        pending = [self]
        while pending:
            graph = pending.pop()
            for op in graph.ops:
                yield op
                for name in op.body:
                    if name in self.functions and name not in seen:
                        seen.add(name)
                        pending.append(self.functions[name])
