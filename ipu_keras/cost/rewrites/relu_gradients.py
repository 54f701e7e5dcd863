"""Makes gradients of ReLU the one operation that popnn has for them.

XLA compares the features with zero, and then selects: on an IPU, a selection takes five cycles
for each element, where vertices of non-linearities work on whole vectors.

    features ─┬─ compare GT ─┐
        zero ─┘      dy ─────┼─ select        ─>   dy, features ─ relu-gradient
                    zero ────┘
"""

from collections.abc import Mapping
from dataclasses import replace

from ipu_keras.cost.rewrites.constants import (
    NUMBER_KINDS,
    numbers_of,
    sources_of,
    without_unused,
)
from ipu_keras.ir import RELU_GRADIENT, Graph, Op


def with_relu_gradients(graph: Graph) -> Graph:
    """Makes one operation, with the selection's name, of each gradient of ReLU.

    Example:

    >>> from ipu_keras.ir import TensorSpec
    >>> spec = (TensorSpec((), "float32"),)
    >>> ops = (
    ...     Op("x", "parameter", spec),
    ...     Op("dy", "parameter", spec),
    ...     Op("zero", "constant", spec, attributes={"value": 0.0}),
    ...     Op("on", "compare", spec, inputs=("x", "zero"), attributes={"direction": "GT"}),
    ...     Op("dx", "select", spec, inputs=("on", "dy", "zero")),
    ... )
    >>> graph = with_relu_gradients(Graph("step", ops, results=("dx",)))
    >>> [(op.name, op.kind, op.inputs) for op in graph.ops][2:]
    [('dx', 'relu-gradient', ('dy', 'x'))]
    """
    functions = {name: with_relu_gradients(body) for name, body in graph.functions.items()}
    made_by, numbers = {op.name: op for op in graph.ops}, numbers_of(graph.ops)
    found = {
        op.name: made_by[op.inputs[0]]
        for op in graph.ops
        if op.kind == "select" and _is_relu_gradient(op, made_by, numbers)
    }
    if not found:
        return replace(graph, functions=functions)
    ops = [
        replace(
            op,
            kind=RELU_GRADIENT,
            inputs=(op.inputs[1], found[op.name].inputs[0]),
            attributes={},
        )
        if op.name in found
        else op
        for op in graph.ops
    ]
    zeros = [value for name in found for value in (made_by[name].inputs[2], found[name].inputs[1])]
    unused = sources_of(zeros, made_by, NUMBER_KINDS) | {one.name for one in found.values()}
    kept = without_unused(ops, unused, graph.results)
    return replace(graph, ops=kept, functions=functions)


def _is_relu_gradient(select: Op, made_by: Mapping[str, Op], numbers: Mapping[str, float]) -> bool:
    condition, _, otherwise = select.inputs
    compare = made_by.get(condition)
    if compare is None or compare.kind != "compare":
        return False
    features = made_by.get(compare.inputs[0])
    spec = select.outputs[0]
    # What is compared and what is selected go through the same vectors.
    alike = features is None or features.outputs[0].dtype == spec.dtype
    return (
        compare.attributes.get("direction") == "GT"
        and alike
        and "float" in spec.dtype
        and numbers.get(compare.inputs[1]) == 0
        and numbers.get(otherwise) == 0
    )
