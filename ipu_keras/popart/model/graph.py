"""An ONNX model as frozen values, on which everything but the builder works."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# The domain of ONNX's own operations, which files also write as an empty string.
AI_ONNX = "ai.onnx"
AI_ONNX_ML = "ai.onnx.ml"
AI_GRAPHCORE = "ai.graphcore"

# The prefix of attributes that say how to run a node, and not what it computes.
_ANNOTATION = "__"


@dataclass(frozen=True)
class Node:
    """One operation of a graph.

    Args:
        kind: The ONNX operator type, such as `"MatMul"`.
        inputs: Names of tensors; the name of an optional input that is left out is empty.
        outputs: Names of tensors; the name of an output that nobody needs is empty.
        name: The name that users gave the node, which may be empty.
        attributes: By name, an integer, float, string, array, `OnnxGraph`, or a list of these.
    """

    kind: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def annotations(self) -> Mapping[str, Any]:
        """The attributes that say how the node runs, such as `"__pipeline_stage"`."""
        return {k: v for k, v in self.attributes.items() if k.startswith(_ANNOTATION)}

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The attributes that say what the node computes."""
        return {k: v for k, v in self.attributes.items() if not k.startswith(_ANNOTATION)}

    @property
    def title(self) -> str:
        """The name of the node in errors, such as `"MatMul 'MatMul:0'"`."""
        called = self.name or next((name for name in self.outputs if name), "")
        return f"{self.kind} {called!r}"


@dataclass(frozen=True)
class GraphInput:
    """A tensor that a graph is given.

    Args:
        dtype: The name of NumPy's type, such as `"float32"`; `None` if none is declared.
        shape: The declared sizes, `None` for one that is open; `None` if no shape is declared.
    """

    name: str
    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None


@dataclass(frozen=True)
class OnnxGraph:
    """Nodes in an order in which they can run, with the tensors that they begin with.

    Args:
        nodes: Each takes inputs, initialisers and results of nodes before it, and within another
            graph also the tensors around.
        inputs: The tensors that are given when the graph runs, none of which is an initialiser.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[GraphInput, ...]
    outputs: tuple[str, ...]
    initialisers: Mapping[str, np.ndarray] = field(default_factory=dict)

    def all_nodes(self) -> Iterator[Node]:
        """Yields the nodes, and those of the graphs within them."""
        for node in self.nodes:
            yield node
            for attribute in node.attributes.values():
                if isinstance(attribute, OnnxGraph):
                    yield from attribute.all_nodes()

    def tensor_names(self) -> list[str]:
        """Lists the names of inputs, initialisers and results of nodes, in this order."""
        results = [name for node in self.nodes for name in node.outputs if name]
        return [each.name for each in self.inputs] + list(self.initialisers) + results


@dataclass(frozen=True)
class OnnxModel:
    """A main graph, and the opset of each domain that it was written for."""

    graph: OnnxGraph
    opsets: Mapping[str, int]
