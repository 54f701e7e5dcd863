"""Reads a traced TensorFlow function into an `ir.Graph` of TensorFlow's own operations."""

from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import functions_in
from ipu_keras.ir import Graph, Op, TensorSpec

_LOOPS = frozenset({"StatelessWhile", "While"})

# TensorFlow marks these as stateful too. But reading changes nothing, and whether a call or a
# loop changes anything is said by the ops of its body.
_ONLY_READS_OR_CALLS = frozenset(
    {
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "VarHandleOp",
        "StatefulPartitionedCall",
        "While",
        "If",
        "Case",
    }
)


def graph_of(concrete) -> Graph:
    """Returns the graph of a `tf.ConcreteFunction`, with the functions that it calls.

    Operations that no result or effect needs are left out, as TensorFlow does not run them.
    """
    functions: dict[str, Graph] = {}
    _collect_functions(concrete.graph, functions)
    results = tuple(map(_reference, concrete.graph.outputs))
    name = concrete.function_def.signature.name
    return Graph(name, _ops(concrete.graph), functions, results)


def _collect_functions(func_graph, functions: dict[str, Graph]) -> None:
    for name, function in called_functions(func_graph).items():
        if name not in functions:
            functions[name] = Graph(name, _ops(function.graph))
            _collect_functions(function.graph, functions)


def names_of_functions(func_graph: Any) -> tuple[str, ...]:
    """Returns the names of the functions that a graph knows, `Defun`s of TensorFlow 1 included."""
    return tuple(map(_text, functions_in(func_graph)))


def called_functions(func_graph: Any) -> dict[str, Any]:
    """Returns the functions that the operations of a graph may call, by name.

    Those of TensorFlow 1's `Defun`, which a few of its own gradients still are, have no graph
    and are left out.
    """
    return {
        _text(name): function
        for name, function in functions_in(func_graph).items()
        if hasattr(function, "graph")
    }


def names_called(op: Any) -> tuple[str, ...]:
    """Returns the names of functions among an operation's attributes: branches, bodies, callees."""
    names = []
    for attribute in op.op_def.attr:
        # Other attributes are not read, as they may be large: a constant's value is one.
        if attribute.type == "func":
            names.append(op.get_attr(attribute.name).name)
        elif attribute.type == "list(func)":
            names.extend(function.name for function in op.get_attr(attribute.name))
    return tuple(names)


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _ops(func_graph) -> tuple[Op, ...]:
    return tuple(
        Op(
            name=op.name,
            kind=op.type,
            outputs=tuple(_spec(tensor) for tensor in op.outputs),
            stateful=op.op_def.is_stateful and op.type not in _ONLY_READS_OR_CALLS,
            body=names_called(op),
            inputs=tuple(map(_reference, op.inputs)),
            after=tuple(before.name for before in op.control_inputs),
            attributes=_attributes(op),
        )
        for op in _needed(func_graph)
    )


def _needed(func_graph) -> list[Any]:
    """Returns the operations that TensorFlow runs, and the inputs."""
    needed = set()
    pending = [*(t.op for t in func_graph.outputs), *func_graph.control_outputs]
    while pending:
        op = pending.pop()
        if op not in needed:
            needed.add(op)
            pending += [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
    needed.update(tensor.op for tensor in func_graph.inputs)
    return [op for op in func_graph.get_operations() if op in needed]


def _reference(tensor) -> str:
    op = tensor.op
    return op.name if len(op.outputs) == 1 else f"{op.name}:{tensor.value_index}"


def _spec(tensor) -> TensorSpec:
    shape = tensor.shape
    # A tensor of unknown rank counts as one of an unknown size. `as_list` is used because
    # iterating over a shape gives `Dimension`s where a script has switched TensorFlow 1's
    # behaviour on.
    known = [None] if shape.rank is None else shape.as_list()
    dimensions = tuple(-1 if size is None else size for size in known)
    return TensorSpec(dimensions, tensor.dtype.name)


def _attributes(op) -> dict[str, Any]:
    """Returns the seeds of a draw whose kernel keeps its generator, or the turns of a loop."""
    if op.type in _LOOPS:
        # TensorFlow puts a counter and `maximum_iterations` before what the user's loop
        # carries.
        most: Any = tf.get_static_value(op.inputs[1]) if len(op.inputs) > 1 else None
        is_count = most is not None and np.ndim(most) == 0 and most >= 0
        return {"turns": int(most)} if is_count else {}
    if not op.op_def.is_stateful:
        return {}
    given = op.node_def.attr
    return {"seeds": (given["seed"].i, given["seed2"].i)} if "seed2" in given else {}
