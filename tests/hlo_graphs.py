"""Builds HLO graphs by hand, and checks those that were not."""

from ipu_keras.ir import Graph, Op
from ipu_keras.program import TensorSpec


def spec(*shape, dtype="float32"):
    return TensorSpec(shape, dtype)


def op(name, kind, shape, *inputs, dtype="float32", layer="", body=(), **attributes):
    """An operation with one result of that shape."""
    return Op(
        name,
        kind,
        (spec(*shape, dtype=dtype),),
        inputs=inputs,
        attributes=attributes,
        layer=layer,
        body=body,
    )


def variable(name, *shape, result=None):
    """A variable; `result` is the index of its new value among the graph's results."""
    written = {} if result is None else {"result": result}
    return op(name, "parameter", shape, role="variable", **written)


def argument(name, *shape):
    return op(name, "parameter", shape, role="argument")


def inner_parameter(name, *shape, first_leaf=0):
    """A parameter of a graph that another one calls."""
    return op(name, "parameter", shape, first_leaf=first_leaf)


def graph(*ops, results=(), functions=None):
    names = results or (ops[-1].name,)
    return Graph("step", ops, functions or {}, results=tuple(names), form="hlo")


def loop(trips, max_trip_count=None):
    """x = x + w, some times over; then its negative."""
    condition = graph(
        inner_parameter("i", 3),
        inner_parameter("w", 3, first_leaf=1),
        op("more", "compare", (), "i"),
    )
    body = graph(
        inner_parameter("i", 3),
        inner_parameter("w", 3, first_leaf=1),
        op("next", "add", (3,), "i", "w"),
        results=("next", "w"),
    )
    whole = Op(
        "while",
        "while",
        (spec(3), spec(3)),
        inputs=("x", "w"),
        body=("condition", "body"),
        attributes={"trip_count": trips, "max_trip_count": max_trip_count},
    )
    functions = {"condition": condition, "body": body}
    return graph(
        argument("x", 3),
        variable("w", 3),
        whole,
        op("y", "negate", (3,), "while:0"),
        functions=functions,
    )


def missing_references(graph):
    """What in a graph or its functions is used before, or without, being computed."""
    found = []
    for current in (graph, *graph.functions.values()):
        known, names = set(), set()
        for one in current.ops:
            if one.name in names:
                found.append(f"{current.name}: two operations {one.name}")
            found += [f"{current.name}: {one.name} takes {v}" for v in one.inputs if v not in known]
            found += [
                f"{current.name}: {one.name} calls {b}"
                for b in one.body
                if b not in graph.functions
            ]
            known |= {one.name} if len(one.outputs) == 1 else set()
            known |= {f"{one.name}:{k}" for k in range(len(one.outputs))}
            names.add(one.name)
        found += [f"{current.name} returns {v}" for v in current.results if v not in known]
    return found
