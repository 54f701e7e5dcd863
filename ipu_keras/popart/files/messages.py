"""Walks through ONNX's messages, including the graphs within nodes."""

from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto


def graphs_within(node: NodeProto) -> Iterator[GraphProto]:
    """Yields the graphs that are attributes of a node."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yields a graph, and all graphs within its nodes at any depth."""
    yield graph
    for node in graph.node:
        for inner in graphs_within(node):
            yield from all_graphs(inner)


def names_taken(node: NodeProto) -> Iterator[str]:
    """Yields the tensors that a node takes, and those that the graphs within it take or return."""
    yield from node.input
    for graph in graphs_within(node):
        yield from (each.name for each in graph.output)
        for inner in graph.node:
            yield from names_taken(inner)


def all_tensors(graph: GraphProto) -> Iterator[tuple[TensorProto, str]]:
    """Yields the tensors with data in a graph or within its nodes, with their names in errors."""
    for each in all_graphs(graph):
        for tensor in each.initializer:
            yield tensor, f"The initialiser {tensor.name!r}"
        for node in each.node:
            for attribute in node.attribute:
                what = f"The attribute {attribute.name!r}"
                if attribute.type == AttributeProto.TENSOR:
                    yield attribute.t, what
                yield from ((tensor, what) for tensor in attribute.tensors)
