"""Puts the operations of called functions in place of the calls."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.host.replicas.together import label_of
from ipu_keras.internals.tensorflow.functions import add_function
from ipu_keras.tracing.concrete import called_functions
from ipu_keras.tracing.extraction import feeds_of
from ipu_keras.tracing.frontend_attributes import attributes_of, give_around

# TensorFlow's optimizer inlines calls too, but only when a function runs, which is too late for
# what has to be found in one graph.
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_Wanted = Callable[[tf.Operation], bool]


def inlined(concrete: Any, wanted: _Wanted) -> Any:
    """Returns a traced function without those calls that lead to wanted operations.

    Loops and branches are left alone, with all that they call, and so are calls with labels
    (`ipu_keras.host.replicas.together`). The function itself is returned if there is no such call.
    """
    flat = _Flat(concrete.graph, wanted)
    if not flat.bodies:
        return concrete
    definition = flat.definition()
    results = tf.nest.flatten(concrete.structured_outputs, expand_composites=True)
    names = {t.name: flat.tensor(t.name) for t in results if t is not None}
    taken = {_tensor_name(name) for node in definition.node for name in node.input}
    feeds = feeds_of(concrete)

    def function(*ipu_given):
        graph = tf.compat.v1.get_default_graph()
        values = {inner.name: graph.capture(outer) for outer, inner in concrete.graph.captures}
        values.update((t.name, value) for t, value in zip(feeds, ipu_given, strict=True))
        imported = sorted(set(names.values()) - set(values))
        # `import_graph_def` refuses an input map with entries that nothing uses.
        used = {name: value for name, value in values.items() if name in taken}
        # Imported with their definitions alone they would have no graphs in Python, and what is
        # in their loops and branches would not be found.
        for called in flat.functions.values():
            add_function(graph, called)
        found = tf.graph_util.import_graph_def(definition, used, imported, name="")
        values.update(zip(imported, found, strict=True))
        outputs = [None if t is None else values[names[t.name]] for t in results]
        return tf.nest.pack_sequence_as(
            concrete.structured_outputs, outputs, expand_composites=True
        )

    function.__name__ = concrete.graph.name
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in feeds]
    whole = tf.function(function, autograph=False).get_concrete_function(*specs)
    whole.graph.variables = concrete.graph.variables  # lowering reads the names of handles there
    return whole


def leads_to(op: tf.Operation, wanted: _Wanted) -> bool:
    """Whether an operation is a wanted one, or calls one by whatever way."""
    called = [value.func.name for value in op.node_def.attr.values() if value.HasField("func")]
    called += [f.name for value in op.node_def.attr.values() for f in value.list.func]
    functions = called_functions(op.graph) if called else {}
    return wanted(op) or any(
        leads_to(inner, wanted)
        for name in called
        if name in functions
        for inner in functions[name].graph.get_operations()
    )


def _all_functions(graph: Any) -> dict[str, Any]:
    """Returns the functions with graphs that a graph may call, directly or through others."""
    found: dict[str, Any] = {}
    pending = [graph]
    while pending:
        called = called_functions(pending.pop())
        pending += [f.graph for name, f in called.items() if name not in found]
        found.update(called)
    return found


@dataclass(frozen=True)
class _Body:
    """What a call consists of, in names of the calling graph.

    Args:
        results: Names of what stands for the results of the call.
        ends: Control inputs for what has to run after the call.
    """

    nodes: Sequence[Any]
    results: Sequence[str]
    ends: Sequence[str]
    functions: Sequence[Any]


class _Flat:
    """A graph in which the bodies of calls stand in place of the calls that lead to `wanted`."""

    def __init__(self, graph: Any, wanted: _Wanted):
        self.graph = graph
        self.functions = _all_functions(graph)
        self.bodies = {
            op.name: _body(op, wanted)
            for op in graph.get_operations()
            if op.type in _CALLS and label_of(op) is None and leads_to(op, wanted)
        }

    def definition(self) -> Any:
        """Returns all operations but the inputs, and the functions that have no graph in Python."""
        definition = self.graph.as_graph_def()
        outside = {tensor.op.name for tensor in self.graph.inputs}
        nodes = [node for node in self._nodes(definition) if node.name not in outside]
        functions = {f.signature.name: f for f in definition.library.function}
        for body in self.bodies.values():
            functions.update((f.signature.name, f) for f in body.functions)
        functions = {name: f for name, f in functions.items() if name not in self.functions}
        for repeated, values in (
            (definition.node, nodes),
            (definition.library.function, list(functions.values())),
        ):
            del repeated[:]
            repeated.extend(values)
        return definition

    def tensor(self, name: str) -> str:
        (found,) = self.instead(_plain(name))
        return _tensor_name(found)

    def instead(self, name: str) -> list[str]:
        """Returns what stands for an input of an operation, which may be the result of a call."""
        op, _, number = name.lstrip("^").partition(":")
        if op not in self.bodies:
            return [name]
        body = self.bodies[op]
        following = body.ends if name[0] == "^" else [body.results[int(number or 0)]]
        return [final for each in following for final in self.instead(each)]

    def _nodes(self, definition: Any) -> Iterator[Any]:
        for original in definition.node:
            body = self.bodies.get(original.name)
            for node in [original] if body is None else body.nodes:
                # It colocates with an operation that may be gone.
                node.attr.pop("_class", None)
                _set_inputs(node, [each for name in node.input for each in self.instead(name)])
                yield node


def _body(call: tf.Operation, wanted: _Wanted) -> _Body:
    """Returns the operations of the called function, named as parts of the call."""
    flat = _Flat(called_functions(call.graph)[call.get_attr("f").name].graph, wanted)
    definition = flat.definition()
    given = {
        inside.op.name: _plain(outside.name)
        for inside, outside in zip(flat.graph.inputs, call.inputs, strict=True)
    }

    def renamed(name: str) -> str:
        if name[0] != "^":
            return given.get(name, f"{call.name}/{name}")
        source = given.get(name[1:], f"{call.name}/{name[1:]}")
        return f"^{source.partition(':')[0]}"

    # A call begins after what it waits for, so each of its operations does, and it is over when
    # all of its results and effects are there.
    before = [f"^{op.name}" for op in call.control_inputs]
    around = attributes_of(call)
    for node in definition.node:
        give_around(node, around)
        node.name = f"{call.name}/{node.name}"
        _set_inputs(node, [*map(renamed, node.input), *before])
    results = [renamed(_plain(flat.tensor(tensor.name))) for tensor in flat.graph.outputs]
    ends = [end for op in flat.graph.control_outputs for end in flat.instead(f"^{op.name}")]
    ends = [*map(renamed, ends), *(f"^{result.partition(':')[0]}" for result in results)]
    return _Body(definition.node, results, ends, definition.library.function)


def _set_inputs(node: Any, names: Sequence[str]) -> None:
    """Replaces what an operation takes: first tensors, then each operation to wait for, once."""
    tensors = [name for name in names if name[0] != "^"]
    waits = dict.fromkeys(name for name in names if name[0] == "^")
    del node.input[:]
    node.input.extend([*tensors, *waits])


def _plain(name: str) -> str:
    """Returns the name of a tensor as definitions have it."""
    return name.removesuffix(":0")


def _tensor_name(name: str) -> str:
    return name if ":" in name else f"{name}:0"
