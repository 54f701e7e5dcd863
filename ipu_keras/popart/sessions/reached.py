"""What of a graph a loss reaches: weights, softmaxes; and which statistics are kept."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from ipu_keras.popart.model.graph import AI_GRAPHCORE, AI_ONNX, Graph, Node
from ipu_keras.popart.options.patterns import SOFTMAX_GRAD_DIRECT, excludes
from ipu_keras.popart.options.prefixes import reservedGradientPrefix

# Of a batch normalisation, the inputs and the outputs that are its running statistics.
_STATISTICS = ((3, 1), (4, 2))

# Of products, the inputs that are multiplied: not what is added.
_TWO = (slice(0, 2),)
_FACTORS = {
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "ConvTranspose"), _TWO),
    # Images, kernels and biases take turns.
    "MultiConv": (slice(0, None, 3), slice(1, None, 3)),
}


def trained_weights(graph: Graph, loss: str) -> tuple[str, ...]:
    """The initialisers that a loss depends on.

    Args:
        graph: The main graph.
        loss: Name of a tensor.

    Returns:
        Names of floating tensors, in the order of the model. Statistics that a normalisation keeps
        are none of them.

    Example:

    >>> node = Node("Mul", AI_ONNX, ("x", "w"), ("y",))
    >>> weights = {"w": np.ones(2), "unused": np.ones(2)}
    >>> trained_weights(Graph("g", (node,), (), ("y",), weights), "y")
    ('w',)
    """
    reached = {loss}.union(*map(_taken, _nodes_before(graph, loss)))
    return tuple(
        name
        for name, array in graph.initialisers.items()
        if name in reached and np.issubdtype(array.dtype, np.floating)
    )


def direct_softmaxes(
    graph: Graph, loss: str, anchors: Collection[str]
) -> dict[tuple[str, ...], Node]:
    """The softmaxes past which gradients of losses go, as PopART's `SoftMaxGradDirect` has it.

    Gradients of probabilities that more than one node gives are added up before the softmax, and
    so is each that is an anchor: there is no way past then.

    Args:
        graph: The main graph.
        loss: Name of the tensor whose gradients are taken.
        anchors: Names of tensors.

    Returns:
        By the results of negative log likelihoods, the nodes that make their probabilities.

    Example:

    >>> softmax = Node("Softmax", AI_ONNX, ("x",), ("p",))
    >>> nll = Node("Nll", AI_GRAPHCORE, ("p", "labels"), ("loss",))
    >>> main = Graph("g", (softmax, nll), (), ("loss",))
    >>> direct_softmaxes(main, "loss", ["loss"]) == {("loss",): softmax}
    True
    >>> direct_softmaxes(main, "loss", ["Gradient___p"])
    {}
    """
    nodes = _nodes_before(graph, loss)
    made = {
        node.outputs[0]: node
        for node in nodes
        if (node.kind, node.domain) == ("Softmax", AI_ONNX)
        and reservedGradientPrefix() + node.outputs[0] not in anchors
    }
    takers = Counter(name for node in nodes for name in set(_taken(node)))
    return {
        node.outputs: made[node.inputs[0]]
        for node in nodes
        if (node.kind, node.domain) == ("Nll", AI_GRAPHCORE)
        and node.inputs[0] in made
        and takers[node.inputs[0]] == 1
        and not excludes(node, SOFTMAX_GRAD_DIRECT)
    }


def factors_of_products(graph: Graph, loss: str) -> tuple[str, ...]:
    """What matrix products and convolutions multiply, if it follows from trained weights.

    Their backward passes make the gradients of these. They are those of the main graph: what is
    within its nodes, such as the body of a loop, is left out.

    Args:
        graph: The main graph.
        loss: Name of the tensor whose gradients are taken.

    Returns:
        Names of tensors, in the order of the graph.

    Example:

    >>> node = Node("MatMul", AI_ONNX, ("x", "w"), ("y",))
    >>> factors_of_products(Graph("g", (node,), (), ("y",), {"w": np.ones((2, 2))}), "y")
    ('w',)
    """
    reached = set(trained_weights(graph, loss))
    for node in graph.nodes:
        if reached.intersection(_taken(node)):
            reached.update(node.outputs)
    factors = [
        name
        for node in reversed(_nodes_before(graph, loss))
        for position in _FACTORS.get(node.kind, ())
        for name in node.inputs[position]
        if name in reached
    ]
    return tuple(dict.fromkeys(factors))


def kept_statistics(graph: Graph) -> Iterator[tuple[Node, str, str]]:
    """What batch normalisations of the main graph keep from batch to batch.

    Args:
        graph: The main graph.

    Yields:
        The node, the initialiser that has a statistic, and the result that is its next value.
    """
    for node in graph.nodes:
        if node.kind != "BatchNormalization" or node.domain != AI_ONNX:
            continue
        for taken, returned in _STATISTICS:
            after = node.outputs[returned] if returned < len(node.outputs) else ""
            if after and node.inputs[taken] in graph.initialisers:
                yield node, node.inputs[taken], after


def _nodes_before(graph: Graph, loss: str) -> list[Node]:
    """The nodes that a loss depends on, the last first."""
    reached, found = {loss}, []
    for node in reversed(graph.nodes):
        if reached.intersection(node.outputs):
            found.append(node)
            reached.update(_taken(node))
    return found


def _taken(node: Node) -> Iterator[str]:
    """The tensors that a node computes with, but for statistics."""
    are_kept = node.kind == "BatchNormalization" and node.domain == AI_ONNX
    statistics = {taken for taken, _ in _STATISTICS} if are_kept else set()
    for position, name in enumerate(node.inputs):
        if name and position not in statistics:
            yield name
    for attribute in node.attributes.values():
        yield from _within(attribute if isinstance(attribute, list | tuple) else [attribute])


def _within(attributes: Iterable[object]) -> Iterator[str]:
    """What graphs within a node take from around."""
    for each in attributes:
        if isinstance(each, Graph):
            own = set(each.tensor_names())
            taken = {name for node in each.nodes for name in _taken(node)}
            yield from sorted((taken | set(each.outputs)) - own)
