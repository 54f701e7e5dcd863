"""Makes a function of some of a traced function's operations."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import add_function, functions_in
from ipu_keras.tracing.concrete import called_functions


@dataclass(frozen=True)
class Part:
    """A part of a traced function.

    Args:
        function: A `tf.ConcreteFunction` that computes it.
        inputs: Which of the whole function's inputs it takes, by position.
    """

    function: Any
    inputs: tuple[int, ...]


# The shapes of their results are what somebody has said in Python: importing them asks nobody.
_SHAPED_BY_PYTHON = frozenset({"EagerPyFunc", "LookupTableFindV2", "PyFunc", "PyFuncStateless"})


def feeds_of(concrete: Any) -> list[tf.Tensor]:
    """The placeholders of a `tf.ConcreteFunction`'s arguments, without captured values."""
    return concrete.inputs[: len(concrete.inputs) - len(concrete.graph.internal_captures)]


def extract(
    concrete: Any,
    results: Any,
    *,
    given: Sequence[tf.Tensor] = (),
    controls: Iterable[tf.Operation] = (),
    without: Collection[str] = (),
    instead: Mapping[Any, tf.Tensor] = MappingProxyType({}),
    keeps_inputs: bool = False,
) -> Part:
    """Makes a function of what some results of a traced function need.

    Operations keep their names.

    Args:
        concrete: The traced function, a `tf.ConcreteFunction`.
        results: A structure of tensors of its graph; what the part returns.
        given: Tensors of its graph that the part takes after its inputs instead of
            computing them.
        controls: Operations without a result that the part runs, such as writes.
        without: Names of operations that are left out, also where others wait for
            them. All of their results that are needed must be `given`.
        instead: What operations take instead of other tensors, by reference of those.
        keeps_inputs: Whether the part takes all inputs, those too that it does not need.

    Returns:
        The part.
    """
    known = {tensor.ref() for tensor in given}
    ends = [t.op for t in tf.nest.flatten(results) if t.ref() not in known]

    def inputs_of(op: tf.Operation) -> list[tf.Tensor]:
        return [instead.get(tensor.ref(), tensor) for tensor in op.inputs]

    needed = _needed([*ends, *controls], known, without, inputs_of)
    returned = {tensor.op for tensor in tf.nest.flatten(results)}
    feeds = feeds_of(concrete)
    taking = {feed.op for feed in feeds} if keeps_inputs else needed | returned
    inputs = tuple(k for k, feed in enumerate(feeds) if feed.op in taking)
    taken = [*(feeds[k] for k in inputs), *given]
    captures = [pair for pair in concrete.graph.captures if pair[1].op in needed]
    outside = {tensor.op for tensor in concrete.inputs}
    renamed = {reference.deref().name: other.name for reference, other in instead.items()}
    computed = needed - outside
    inside = [op for op in concrete.graph.get_operations() if op in computed]
    definition = _definition(concrete.graph, inside, renamed)
    calls = any(_calls(op.node_def) for op in inside)
    # Imported by their definitions, they would be without graphs in Python.
    called = [*called_functions(concrete.graph).values()] if calls else []
    taken_inside = {tensor.name for op in inside for tensor in inputs_of(op)}
    imported = [t.name for t in tf.nest.flatten(results) if t.op in computed]

    def part(*ipu_given):
        graph = tf.compat.v1.get_default_graph()
        values = {inner.name: graph.capture(outer) for outer, inner in captures}
        values.update((t.name, value) for t, value in zip(taken, ipu_given, strict=True))
        # TensorFlow takes values that nothing uses for a mistake.
        used = {name: value for name, value in values.items() if name in taken_inside}
        for function in called:
            add_function(graph, function)
        found = tf.graph_util.import_graph_def(definition, used, imported, name="")
        values.update(zip(imported, found, strict=True))
        return tf.nest.map_structure(lambda tensor: values[tensor.name], results)

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in taken]
    function = tf.function(part, autograph=False).get_concrete_function(*specs)
    function.graph.variables = concrete.graph.variables  # they tell names of handles
    return Part(function, inputs)


def _needed(
    ends: Iterable[Any],
    known: Collection[Any],
    without: Collection[str],
    inputs_of: Callable[[tf.Operation], Iterable[tf.Tensor]],
) -> set[Any]:
    """The operations that others need, themselves included, apart from known tensors."""
    needed: set[Any] = set()
    pending = list(ends)
    while pending:
        op = pending.pop()
        if op not in needed:
            needed.add(op)
            pending.extend(before for before in op.control_inputs if before.name not in without)
            pending.extend(tensor.op for tensor in inputs_of(op) if tensor.ref() not in known)
    return needed


def _definition(
    graph: tf.Graph, operations: Collection[tf.Operation], renamed: Mapping[str, str]
) -> Any:
    """The definition of some of a graph's operations.

    And of the functions they may call of which Python knows no graph.
    """
    names = {op.name for op in operations}
    definition = tf.compat.v1.GraphDef(versions=graph.graph_def_versions)
    nodes = [op.node_def for op in operations]
    for op, node in zip(operations, nodes, strict=True):
        if op.type in _SHAPED_BY_PYTHON:
            shapes = [tensor.shape.as_proto() for tensor in op.outputs]
            node.attr["_output_shapes"].list.shape.extend(shapes)
    others = functions_in(graph).keys() - called_functions(graph).keys()
    if others and any(map(_calls, nodes)):
        # Takes time in proportion to the whole graph, of which there may be many parts.
        library = graph.as_graph_def().library
        definition.library.gradient.extend(library.gradient)
        definition.library.function.extend(
            function for function in library.function if function.signature.name in others
        )
    for node in nodes:
        node.attr.pop("_class", None)  # which device to share with an operation that is not here
        inputs = [
            renamed.get(name if ":" in name else f"{name}:0", name)
            for name in node.input
            if name[0] != "^" or name[1:] in names
        ]
        del node.input[:]
        node.input.extend(inputs)
    definition.node.extend(nodes)
    return definition


def _calls(node: Any) -> bool:
    return any(value.HasField("func") or value.list.func for value in node.attr.values())
