"""Divisions by constants as the products that they are.

XLA's algebraic simplifier, which the compiler for IPUs runs too, multiplies by the reciprocal
(`HandleDivide`). Keras divides by numbers of elements in every mean; a division takes ten times
as long.
"""

from collections.abc import Iterator
from dataclasses import replace

from ipu_keras.compiler.powers import NUMBER_KINDS, numbers_of
from ipu_keras.compiler.unused import sources_of, without_unused
from ipu_keras.ir import Graph, Op
from ipu_keras.program import TensorSpec


def with_products_for_divisions(graph: Graph) -> Graph:
    """A graph without divisions of floating point numbers by a constant other than 0.

    Args:
        graph: One step, as HLO.

    Returns:
        A graph with the same results; a product has the name of its division.

    Example:

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
    divisors = {op.name: numbers.get(op.inputs[1]) for op in divisions}
    divisors = {name: value for name, value in divisors.items() if value}
    if not divisors:
        return replace(graph, functions=functions)
    ops: list[Op] = []
    for op in graph.ops:
        divisor = divisors.get(op.name)
        ops += [op] if divisor is None else _product(op, 1 / divisor)
    unused = sources_of((made_by[name].inputs[1] for name in divisors), made_by, NUMBER_KINDS)
    return replace(graph, ops=without_unused(ops, unused, graph.results), functions=functions)


def _product(division: Op, reciprocal: float) -> Iterator[Op]:
    (spec,) = division.outputs
    factor = replace(
        division,
        name=f"{division.name}/reciprocal",
        kind="constant",
        outputs=(TensorSpec((), spec.dtype),),
        inputs=(),
        attributes={"value": reciprocal},
    )
    yield factor
    if spec.shape:
        factor = replace(
            factor,
            name=f"{division.name}/reciprocals",
            kind="broadcast",
            outputs=division.outputs,
            inputs=(factor.name,),
            attributes={"dimensions": ()},
        )
        yield factor
    yield replace(division, kind="multiply", inputs=(division.inputs[0], factor.name))
