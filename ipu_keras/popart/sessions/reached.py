"""Finds what a loss depends on: weights and softmaxes; and which statistics are kept."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from ipu_keras.popart.model.graph import AI_GRAPHCORE, AI_ONNX, Node, OnnxGraph
from ipu_keras.popart.options.patterns import SOFTMAX_GRAD_DIRECT, excludes
from ipu_keras.popart.options.prefixes import reservedGradientPrefix

# ONNX's BatchNormalization: running mean and variance are the inputs 3 and 4, and their next
# values the outputs 1 and 2.
_STATISTICS = ((3, 1), (4, 2))

# The inputs of products that are multiplied; a third one, a bias, is added.
_TWO = (slice(0, 2),)
_FACTORS = {
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "ConvTranspose"), _TWO),
    # Images, kernels and biases take turns.
    "MultiConv": (slice(0, None, 3), slice(1, None, 3)),
}


def trained_weights(graph: OnnxGraph, loss: str, weights: Iterable[str]) -> tuple[str, ...]:
    """Returns those of the weights that a loss depends on, in their order.

    Statistics that a normalisation keeps are none: they follow from batches, not from gradients.

    Example:

    >>> node = Node("Mul", AI_ONNX, ("x", "w"), ("y",))
    >>> trained_weights(OnnxGraph("g", (node,), (), ("y",)), "y", ["w", "unused"])
    ('w',)
    """
    reached = {loss}.union(*map(_taken, _nodes_before(graph, loss)))
    return tuple(name for name in weights if name in reached)


def direct_softmaxes(
    graph: OnnxGraph, loss: str, anchors: Collection[str]
) -> dict[tuple[str, ...], Node]:
    """Returns the softmaxes that gradients of losses bypass, as PopART's `SoftMaxGradDirect` says.

    Gradients of probabilities are added up before the softmax if more than one node takes these,
    or if the gradient is an anchor: there is no bypass then. Nodes are keyed by the outputs of
    their negative log likelihoods.

    Example:

    >>> softmax = Node("Softmax", AI_ONNX, ("x",), ("p",))
    >>> nll = Node("Nll", AI_GRAPHCORE, ("p", "labels"), ("loss",))
    >>> main = OnnxGraph("g", (softmax, nll), (), ("loss",))
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


def factors_of_products(graph: OnnxGraph, loss: str, trained: Iterable[str]) -> tuple[str, ...]:
    """Returns what products and convolutions multiply, if it depends on `trained` weights.

    Automatic loss scaling counts the gradients of these tensors. They are in the order of the
    main graph; what is within its nodes, such as the body of a loop, is left out.

    Example:

    >>> node = Node("MatMul", AI_ONNX, ("x", "w"), ("y",))
    >>> factors_of_products(OnnxGraph("g", (node,), (), ("y",)), "y", ["w"])
    ('w',)
    """
    reached = set(trained)
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


def kept_statistics(graph: OnnxGraph) -> Iterator[tuple[Node, str, str]]:
    """Yields what batch normalisations of the main graph keep from batch to batch.

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


def _nodes_before(graph: OnnxGraph, loss: str) -> list[Node]:
    """Returns the nodes that a loss depends on, the last first."""
    reached, found = {loss}, []
    for node in reversed(graph.nodes):
        if reached.intersection(node.outputs):
            found.append(node)
            reached.update(_taken(node))
    return found


def _taken(node: Node) -> Iterator[str]:
    """Yields the tensors that a node computes with, except running statistics."""
    are_kept = node.kind == "BatchNormalization" and node.domain == AI_ONNX
    statistics = {taken for taken, _ in _STATISTICS} if are_kept else set()
    for position, name in enumerate(node.inputs):
        if name and position not in statistics:
            yield name
    for attribute in node.attributes.values():
        yield from _within(attribute if isinstance(attribute, list | tuple) else [attribute])


def _within(attributes: Iterable[object]) -> Iterator[str]:
    """Yields what graphs within a node take from around them."""
    for each in attributes:
        if isinstance(each, OnnxGraph):
            own = set(each.tensor_names())
            taken = {name for node in each.nodes for name in _taken(node)}
            yield from sorted((taken | set(each.outputs)) - own)
