"""Makes a function of some of a traced function's operations."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.contexts import without_callbacks
from ipu_keras.internals.tensorflow.functions import add_function, functions_in
from ipu_keras.tracing.concrete import called_functions


@dataclass(frozen=True)
class ExtractedPart:
    """A part of a traced function, and the positions of those of its inputs that the part takes."""

    function: Any
    inputs: tuple[int, ...]


# The shapes of their results were set in Python, where shape inference cannot find them again
# when the operations are imported.
_SHAPED_BY_PYTHON = frozenset({"EagerPyFunc", "LookupTableFindV2", "PyFunc", "PyFuncStateless"})


def feeds_of(concrete: Any) -> list[tf.Tensor]:
    """Returns the placeholders of a traced function's arguments, without those of captures."""
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
) -> ExtractedPart:
    """Makes a function of what some results of a traced function need; operations keep their names.

    Args:
        concrete: The traced function, a `tf.ConcreteFunction`.
        results: A structure of tensors of its graph, which the part returns.
        given: Tensors that the part takes after its inputs instead of computing them.
        controls: Operations without a result that the part also runs, such as writes.
        without: Names of operations to leave out, even where others wait for them. Each of
            their results that is needed must be `given`.
        instead: Tensors that operations take in place of others, by `ref()` of those.
        keeps_inputs: Whether the part also takes the inputs that it does not need.
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
    # Imported with their definitions alone they would have no graphs in Python, which others
    # walk.
    called = [*called_functions(concrete.graph).values()] if calls else []
    taken_inside = {tensor.name for op in inside for tensor in inputs_of(op)}
    imported = [t.name for t in tf.nest.flatten(results) if t.op in computed]

    def part(*ipu_given):
        graph = tf.compat.v1.get_default_graph()
        values = {inner.name: graph.capture(outer) for outer, inner in captures}
        values.update((t.name, value) for t, value in zip(taken, ipu_given, strict=True))
        # `import_graph_def` refuses an input map with entries that nothing uses.
        used = {name: value for name, value in values.items() if name in taken_inside}
        for function in called:
            add_function(graph, function)
        found = tf.graph_util.import_graph_def(definition, used, imported, name="")
        values.update(zip(imported, found, strict=True))
        return tf.nest.map_structure(lambda tensor: values[tensor.name], results)

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in taken]
    # What `tf.debugging.enable_check_numerics` has added is in the traced function already; to
    # the placeholders of the part it would add what XLA lacks.
    with without_callbacks():
        function = tf.function(part, autograph=False).get_concrete_function(*specs)
    function.graph.variables = concrete.graph.variables  # lowering reads the names of handles there
    return ExtractedPart(function, inputs)


def _needed(
    ends: Iterable[Any],
    known: Collection[Any],
    without: Collection[str],
    inputs_of: Callable[[tf.Operation], Iterable[tf.Tensor]],
) -> set[Any]:
    """Returns operations and all that they need, stopping at tensors that are known."""
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
    """Returns the definition of some operations, with functions that have no graph in Python.

    Those with a graph are added to the part as Python objects instead.
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
        # This takes time in proportion to the whole graph, which may be cut into many parts.
        library = graph.as_graph_def().library
        definition.library.gradient.extend(library.gradient)
        definition.library.function.extend(
            function for function in library.function if function.signature.name in others
        )
    for node in nodes:
        node.attr.pop("_class", None)  # colocates with an operation that may not be in this part
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
