"""Builds HLO graphs by hand, and checks those that were not."""

from dataclasses import replace

from ipu_keras.ir import Graph, Op, TensorSpec


def spec(*shape, dtype="float32"):
    return TensorSpec(shape, dtype)


def op(
    name, kind, shape, *inputs, dtype="float32", layer="", backward=False, body=(), **attributes
):
    """An operation with one result of that shape."""
    return Op(
        name,
        kind,
        (spec(*shape, dtype=dtype),),
        inputs=inputs,
        attributes=attributes,
        layer=layer,
        backward=backward,
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


def product(name, shape, left, right, *, contracted=(1, 0), **place):
    """A matrix product over those axes of its operands."""
    return op(
        name,
        "dot",
        shape,
        left,
        right,
        lhs_batch_dimensions=(),
        rhs_batch_dimensions=(),
        lhs_contracting_dimensions=(contracted[0],),
        rhs_contracting_dimensions=(contracted[1],),
        **place,
    )


def poplar_call(name, operation, *inputs, shapes, body="body", **place):
    """An operation of Poplar's libraries whose body is a function of that name."""
    return Op(
        name,
        "poplar-call",
        tuple(spec(*shape) for shape in shapes),
        inputs=inputs,
        body=(body,),
        attributes={"operation": operation},
        **place,
    )


def training_step(layers, *, batch=64, width=64):
    """A step of a chain of dense layers l0, l1, ...; the gradient of each needs its result.

    x ─ z0 ─ h0 ─ z1 ─ h1 ─ ... ─ loss ─ dz1 ─ dw1, dh0 ─ dz0 ─ dw0;  w -= dw

    In bytes, `w` has 4 x width x width, everything else 4 x batch x width.
    """
    shape, square = (batch, width), (width, width)
    ops = [argument("x", *shape), op("zero", "constant", (), value=0.0)]
    ops += [variable(f"w{k}", *square, result=k + 1) for k in range(layers)]
    for k in range(layers):
        before = f"h{k - 1}" if k else "x"
        ops.append(product(f"z{k}", shape, before, f"w{k}", layer=f"l{k}"))
        ops.append(op(f"h{k}", "tanh", shape, f"z{k}", layer=f"l{k}"))
    last = f"h{layers - 1}"
    ops.append(
        op("loss", "reduce", (), last, "zero", layer="loss", dimensions=(0, 1), operation="add")
    )
    gradient = last
    for k in reversed(range(layers)):
        here = {"layer": f"l{k}", "backward": True}
        before = f"h{k - 1}" if k else "x"
        ops.append(op(f"dz{k}", "multiply", shape, gradient, f"h{k}", **here))
        ops.append(product(f"dw{k}", square, before, f"dz{k}", contracted=(0, 0), **here))
        if k:
            gradient = f"dh{k - 1}"
            ops.append(product(gradient, shape, f"dz{k}", f"w{k}", contracted=(1, 1), **here))
    ops += [op(f"u{k}", "subtract", square, f"w{k}", f"dw{k}", layer="sgd") for k in range(layers)]
    return graph(*ops, results=("loss", *(f"u{k}" for k in range(layers))))


def staged_step(layers, *, stages=None, **sizes):
    """`training_step`, as traced in the scopes of stages and of the weight update.

    Args:
        layers: How many there are.
        stages: The stage of each layer; by default, each is one by itself.
        **sizes: As for `training_step`.
    """
    stages = list(range(layers)) if stages is None else stages
    by_layer = {f"l{k}": stage for k, stage in enumerate(stages)} | {"loss": stages[-1]}
    whole = training_step(layers, **sizes)
    ops = (
        replace(one, weight_update=True)
        if one.layer == "sgd"
        else replace(one, stage=by_layer.get(one.layer))
        for one in whole.ops
    )
    return replace(whole, ops=tuple(ops))


def with_checkpoint(step, name, shape=(64, 64)):
    """The step with a checkpoint of a value, which all that read it read."""
    mark = f"{name}/mark"
    ops = []
    for one in step.ops:
        inputs = tuple(mark if value == name else value for value in one.inputs)
        ops.append(replace(one, inputs=inputs))
        if one.name == name:
            ops.append(op(mark, "recomputation-checkpoint", shape, name))
    return replace(step, ops=tuple(ops))


def forward_only(step):
    """The forward pass of `training_step` or `staged_step`, with its loss."""
    ops = [
        replace(one, attributes={k: v for k, v in one.attributes.items() if k != "result"})
        for one in step.ops
        if not one.backward and one.layer != "sgd"
    ]
    return graph(*ops, results=("loss",))
