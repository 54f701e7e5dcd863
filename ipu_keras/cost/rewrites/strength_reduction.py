"""Makes powers and divisions by constants the products that they are.

XLA's algebraic simplifier, which the compiler for IPUs runs too, does the same: a power takes
hundreds of times as long as a product, and a division ten times.
"""

from collections.abc import Iterator
from dataclasses import replace

from ipu_keras.cost.rewrites.constants import (
    NUMBER_KINDS,
    number_like,
    numbers_of,
    sources_of,
    without_unused,
)
from ipu_keras.ir import Graph, Op

# Exponents that the simplifier (`HandlePower`) has another form for, besides 0. It writes `x **
# 2` as a product; the gradient of that has `x ** 1`.
_EXPONENTS = (-1, 1, 2, 3)


def with_products_for_powers(graph: Graph) -> Graph:
    """Replaces powers by a constant -1, 1, 2 or 3; the last operation keeps the power's name.

    Example:

    >>> from ipu_keras.ir import TensorSpec
    >>> spec = (TensorSpec((), "float32"),)
    >>> x, two = Op("x", "parameter", spec), Op("two", "constant", spec, attributes={"value": 2.0})
    >>> square = Op("square", "power", spec, inputs=("x", "two"))
    >>> graph = with_products_for_powers(Graph("step", (x, two, square), results=("square",)))
    >>> [(op.name, op.kind, op.inputs) for op in graph.ops]
    [('x', 'parameter', ()), ('square', 'multiply', ('x', 'x'))]
    """
    functions = {name: with_products_for_powers(body) for name, body in graph.functions.items()}
    made_by, numbers = {op.name: op for op in graph.ops}, numbers_of(graph.ops)
    powers = [op for op in graph.ops if op.kind == "power"]
    exponents = {op.name: numbers.get(op.inputs[1]) for op in powers}
    exponents = {name: value for name, value in exponents.items() if value in _EXPONENTS}
    if not exponents:
        return replace(graph, functions=functions)
    ops: list[Op] = []
    renamed: dict[str, str] = {}
    for op in graph.ops:
        now = replace(op, inputs=tuple(renamed.get(value, value) for value in op.inputs))
        exponent = exponents.get(op.name)
        if exponent is None:
            ops.append(now)
        # A power of 1 is its operand; only a result of the graph needs a copy, which has its
        # name.
        elif exponent == 1 and not op.stateful and op.name not in graph.results:
            renamed[op.name] = now.inputs[0]
        else:
            ops += _written_out(now, int(exponent))
    before = (made_by[name].inputs[1] for name in exponents)
    unused = sources_of(before, made_by, NUMBER_KINDS)
    return replace(graph, ops=without_unused(ops, unused, graph.results), functions=functions)


def _written_out(power: Op, exponent: int) -> Iterator[Op]:
    x = power.inputs[0]
    if exponent == 1:
        yield replace(power, kind="copy", inputs=(x,))
    elif exponent == 2:
        yield replace(power, kind="multiply", inputs=(x, x))
    elif exponent == 3:
        square = replace(
            power, name=f"{power.name}/square", kind="multiply", inputs=(x, x), stateful=False
        )
        yield square
        yield replace(power, kind="multiply", inputs=(square.name, x))
    else:
        ones = number_like(power, "one", 1.0)
        yield from ones
        yield replace(power, kind="divide", inputs=(ones[-1].name, x))


def with_products_for_divisions(graph: Graph) -> Graph:
    """Replaces divisions of floating point numbers by a constant other than 0.

    Example:

    >>> from ipu_keras.ir import TensorSpec
    >>> spec = (TensorSpec((), "float32"),)
    >>> x, four = Op("x", "parameter", spec), Op("4", "constant", spec, attributes={"value": 4.0})
    >>> quarter = Op("y", "divide", spec, inputs=("x", "4"))
    >>> graph = with_products_for_divisions(Graph("step", (x, four, quarter), results=("y",)))
    >>> [(op.kind, op.inputs, op.attributes) for op in graph.ops][1:]
    [('constant', (), {'value': 0.25}), ('multiply', ('x', 'y/reciprocal'), {})]
    """
    functions = {name: with_products_for_divisions(body) for name, body in graph.functions.items()}
    # The simplifier's `HandleDivide`: Keras divides by numbers of elements in every mean.
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
