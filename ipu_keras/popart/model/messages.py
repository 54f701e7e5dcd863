"""What is in ONNX's messages, with the graphs that are within nodes."""

from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto


def graphs_within(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node has as attributes; they may have such nodes themselves.

    Args:
        node: It.
    """
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph, and all within its nodes.

    Args:
        graph: It.
    """
    yield graph
    for node in graph.node:
        for inner in graphs_within(node):
            yield from all_graphs(inner)


def names_taken(node: NodeProto) -> Iterator[str]:
    """Tensors that a node takes, and those that the graphs within it take or give back.

    Args:
        node: It.
    """
    yield from node.input
    for graph in graphs_within(node):
        yield from (each.name for each in graph.output)
        for inner in graph.node:
            yield from names_taken(inner)


def all_tensors(graph: GraphProto) -> Iterator[tuple[TensorProto, str]]:
    """The tensors whose data is in a graph, or within its nodes, and what errors call them.

    Args:
        graph: It.
    """
    for each in all_graphs(graph):
        for tensor in each.initializer:
            yield tensor, f"The initialiser {tensor.name!r}"
        for node in each.node:
            for attribute in node.attribute:
                what = f"The attribute {attribute.name!r}"
                if attribute.type == AttributeProto.TENSOR:
                    yield attribute.t, what
                yield from ((tensor, what) for tensor in attribute.tensors)
