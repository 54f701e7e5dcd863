"""An ONNX model as frozen values, which is what everything but the builder works on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# As ONNX calls the domain of its own operations; files write it as an empty string too.
AI_ONNX = "ai.onnx"
AI_ONNX_ML = "ai.onnx.ml"
AI_GRAPHCORE = "ai.graphcore"

# What attributes that say how to run a node, and not what it computes, begin with.
_ANNOTATION = "__"


@dataclass(frozen=True)
class Node:
    """One operation of a graph.

    Args:
        kind: Of the operation, such as `"MatMul"`.
        domain: Of the operation, such as `AI_ONNX`.
        inputs: Names of tensors; empty for an optional one that is left out.
        outputs: Names of tensors; empty for one that nobody needs.
        name: Which users gave it; may be empty.
        attributes: By name: an integer, float, string, array, `Graph`, or a list of these.
    """

    kind: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def annotations(self) -> Mapping[str, Any]:
        """Attributes that say how the node runs, such as `"__pipeline_stage"`."""
        return {k: v for k, v in self.attributes.items() if k.startswith(_ANNOTATION)}

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Attributes that say what the node computes."""
        return {k: v for k, v in self.attributes.items() if not k.startswith(_ANNOTATION)}

    @property
    def title(self) -> str:
        """What errors call it, such as `"MatMul 'MatMul:0'"`."""
        called = self.name or next((name for name in self.outputs if name), "")
        return f"{self.kind} {called!r}"


@dataclass(frozen=True)
class GraphInput:
    """A tensor that a graph is given.

    Args:
        name: Of the tensor.
        dtype: Name of NumPy's type, such as `"float32"`; `None` if it is not declared.
        shape: Sizes; `None` for one that is not declared, or `None` for all.
    """

    name: str
    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can run, and what they begin with.

    Args:
        name: Of the graph.
        nodes: Each takes inputs, initialisers, results of nodes before it, and in a subgraph
            tensors of the graphs around.
        inputs: What is given when it runs; none of them is an initialiser.
        outputs: Names of tensors.
        initialisers: Arrays by name of tensor.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[GraphInput, ...]
    outputs: tuple[str, ...]
    initialisers: Mapping[str, np.ndarray] = field(default_factory=dict)

    def all_nodes(self) -> Iterator[Node]:
        """Its nodes, and those of the graphs within them."""
        for node in self.nodes:
            yield node
            for attribute in node.attributes.values():
                if isinstance(attribute, Graph):
                    yield from attribute.all_nodes()

    def tensor_names(self) -> list[str]:
        """Inputs, initialisers and results of nodes, in this order."""
        results = [name for node in self.nodes for name in node.outputs if name]
        return [each.name for each in self.inputs] + list(self.initialisers) + results


@dataclass(frozen=True)
class Model:
    """A graph, and the versions of operations that it was written for.

    Args:
        graph: The main graph.
        opsets: Version by domain.
    """

    graph: Graph
    opsets: Mapping[str, int]
