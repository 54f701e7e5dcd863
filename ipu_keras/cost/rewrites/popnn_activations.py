"""Gives activation functions of popnn a vertex, and a gradient, that take the input alone.

TensorFlow computes them by operations of its own, and its gradient takes what all of these make:
seven values as large as the input for a GELU, which an IPU never has.

                   ┌──────── y                              ┌── y
    x ── Gelu ═════╪═════╗                     x ────┬── Gelu
                         ╠═ Gelu ── dx   ->          └──┐
                 dy ─────╝                          dy ─┴─ Gelu ── dx
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from ipu_keras.ir import POPLAR_CALL, POPNN_ACTIVATIONS, Graph, Op, TensorSpec


def with_popnn_activations(graph: Graph) -> Graph:
    """Makes one vertex of each activation function of popnn, and one of its gradient.

    Where something else takes what a function makes on its way, it stays as it was traced.
    """
    bodies: dict[str, Graph] = {}
    functions = {name: _rewritten(one, bodies) for name, one in graph.functions.items()}
    whole = _rewritten(graph, bodies)
    return replace(whole, functions={**functions, **bodies})


def _rewritten(graph: Graph, bodies: dict[str, Graph]) -> Graph:
    calls = [op for op in graph.ops if _kind_of(op) is not None]
    if not calls:
        return graph
    made_by = {f"{op.name}:{k}": op for op in calls for k in range(len(op.outputs))}
    made_by |= {op.name: op for op in calls}
    gradients = {op.name: found for op in calls if (found := _as_gradient(op, made_by))}
    results = _results(graph, made_by, gradients)
    renamed, ops = {}, []
    for op in graph.ops:
        function, gradient = results.get(op.name), gradients.get(op.name)
        if function is not None:
            renamed[function] = op.name
            spec = op.outputs[int(function.partition(":")[2] or 0)]
            op = _with_vertex(op, op.inputs, spec, bodies)
        elif gradient is not None and gradient[0].name in results:
            source, dy = gradient
            op = _with_vertex(op, (dy, source.inputs[0]), op.outputs[0], bodies)
        ops.append(op)
    ops = [replace(op, inputs=tuple(renamed.get(v, v) for v in op.inputs)) for op in ops]
    names = tuple(renamed.get(name, name) for name in graph.results)
    return replace(graph, ops=tuple(ops), results=names)


def _kind_of(op: Op) -> str | None:
    """Returns the kind of the vertex of an operation, `None` if popnn has none for it."""
    return POPNN_ACTIVATIONS.get(op.attributes["operation"]) if op.kind == POPLAR_CALL else None


def _as_gradient(op: Op, made_by: Mapping[str, Op]) -> tuple[Op, str] | None:
    """Returns the function that an operation is the gradient of, and what it is multiplied with."""
    if not op.backward or len(op.outputs) != 1:
        return None
    sources = {made_by[name].name: made_by[name] for name in op.inputs if name in made_by}
    sources = {name: one for name, one in sources.items() if not one.backward}
    if len(sources) != 1:
        return None
    (source,) = sources.values()
    if _kind_of(source) != _kind_of(op) or len(source.inputs) != 1:
        return None
    known = {*source.inputs, *(name for name, one in made_by.items() if one is source)}
    others = [name for name in op.inputs if name not in known]
    return (source, others[0]) if len(others) == 1 else None


def _results(
    graph: Graph, made_by: Mapping[str, Op], gradients: Mapping[str, tuple[Op, str]]
) -> dict[str, str]:
    """Returns the one value of each function that others take, its gradients aside."""
    taken: dict[str, set[str]] = defaultdict(set)
    for op in graph.ops:
        source = gradients[op.name][0] if op.name in gradients else None
        for name in op.inputs:
            if name in made_by and made_by[name] is not source:
                taken[made_by[name].name].add(name)
    for name in graph.results:
        if name in made_by:
            taken[made_by[name].name].add(name)
    return {
        op.name: next(iter(taken[op.name]))
        for op in made_by.values()
        if not op.backward and len(op.inputs) == len(taken[op.name]) == 1
    }


def _with_vertex(
    call: Op, inputs: tuple[str, ...], spec: TensorSpec, bodies: dict[str, Graph]
) -> Op:
    """Returns the operation with one vertex for its body, between tensors of one spec."""
    kind = _kind_of(call)
    assert kind is not None, "only calls of popnn's functions have vertices of these"
    names = [f"{call.name}/parameter.{k}" for k in range(len(inputs))]
    parameters = (
        Op(name, "parameter", (spec,), attributes={"number": k, "first_leaf": k})
        for k, name in enumerate(names)
    )
    vertex = Op(
        f"{call.name}/vertex",
        kind if len(inputs) == 1 else f"{kind}-gradient",
        (spec,),
        inputs=tuple(names),
    )
    (body,) = call.body
    bodies[body] = Graph(body, (*parameters, vertex), results=(vertex.name,), form="hlo")
    return replace(call, inputs=inputs, outputs=(spec,))
