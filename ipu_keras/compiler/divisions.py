"""Divisions by constants as the products that they are.

XLA's algebraic simplifier, which the compiler for IPUs runs too, multiplies by the reciprocal
(`HandleDivide`). Keras divides by numbers of elements in every mean; a division takes ten times
as long.
"""

from dataclasses import replace

from ipu_keras.compiler.numbers import NUMBER_KINDS, number_like, numbers_of
from ipu_keras.compiler.unused import sources_of, without_unused
from ipu_keras.ir import Graph, Op


def with_products_for_divisions(graph: Graph) -> Graph:
    """A graph without divisions of floating point numbers by a constant other than 0.

    Args:
        graph: One step, as HLO.

    Returns:
        A graph with the same results; a product has the name of its division.

    Example:

    >>> from ipu_keras.program import TensorSpec
    >>> spec = (TensorSpec((), "float32"),)
    >>> x, four = Op("x", "parameter", spec), Op("4", "constant", spec, attributes={"value": 4.0})
    >>> quarter = Op("y", "divide", spec, inputs=("x", "4"))
    >>> graph = with_products_for_divisions(Graph("step", (x, four, quarter), results=("y",)))
    >>> [(op.kind, op.inputs, op.attributes) for op in graph.ops][1:]
    [('constant', (), {'value': 0.25}), ('multiply', ('x', 'y/reciprocal'), {})]
    """
    functions = {name: with_products_for_divisions(body) for name, body in graph.functions.items()}
    made_by, numbers = {op.name: op for op in graph.ops}, numbers_of(graph.ops)
    divisions = [op for op in graph.ops if op.kind == "divide" and "float" in op.outputs[0].dtype]
    divisors = {op.name: numbers.get(op.inputs[1], 0) for op in divisions}
    divisors = {name: value for name, value in divisors.items() if value}
    if not divisors:
        return replace(graph, functions=functions)
    ops: list[Op] = []
    for op in graph.ops:
        if op.name in divisors:
            reciprocal = number_like(op, "reciprocal", 1 / divisors[op.name])
            ops += reciprocal
            op = replace(op, kind="multiply", inputs=(op.inputs[0], reciprocal[-1].name))
        ops.append(op)
    unused = sources_of((made_by[name].inputs[1] for name in divisors), made_by, NUMBER_KINDS)
    return replace(graph, ops=without_unused(ops, unused, graph.results), functions=functions)
