"""Cuts out what XLA lacks or refuses before it lowers the rest, and puts it back after."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.xla import cpu_kernels
from ipu_keras.ir import NOT_LOWERED, Graph, Op, TensorSpec
from ipu_keras.tracing.as_written import AsWritten
from ipu_keras.tracing.concrete import called_functions
from ipu_keras.tracing.extraction import extract, feeds_of
from ipu_keras.tracing.frontend_attributes import attributes_of, place_with
from ipu_keras.tracing.layers import LayerNames, operation_of_reference
from ipu_keras.tracing.lowering import LoweringError


@dataclass(frozen=True)
class Cut:
    """A function without the operations that XLA cannot lower.

    Args:
        function: A `tf.ConcreteFunction` that takes what the whole function takes and then
            `given`, and that returns what the whole function returns and then `fetched`.
        operations: What was cut out, in the order of tracing.
        given: Results of what was cut out that the rest takes.
        fetched: Results of the rest that the operations take.
    """

    function: Any
    operations: tuple[tf.Operation, ...]
    given: tuple[tf.Tensor, ...]
    fetched: tuple[tf.Tensor, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(op.name for op in self.operations)


def cut_unsupported(concrete: Any, refused: Collection[str] = ()) -> Cut | None:
    """Takes out of a function the operations for which XLA has no kernel, or that it refused.

    An operation that calls a function with such an operation is taken out whole. So is what
    takes a result that cannot be handed on: a text, or a tensor whose shape is not known. The
    result is `None` if nothing has to be taken out.

    Args:
        refused: Names of operations that XLA has kernels for, but cannot lower as they are
            used: for instance, because the shape of a result depends on values. Those of a
            called function follow the name of the call.

    Raises:
        LoweringError: The function returns what cannot be handed on.
    """
    supported = cpu_kernels() | {"Placeholder"}
    instead = concrete.instead if isinstance(concrete, AsWritten) else {}
    every = concrete.graph.get_operations()
    inputs = {op.name: [instead.get(t.ref(), t) for t in op.inputs] for op in every}
    names = {op.name for op in every if not _is_supported(op, supported)}
    names |= _refused(refused, every)
    for op in every:  # operations come after those whose results they take
        if any(t.op.name in names and not _is_array(t) for t in inputs[op.name]):
            names.add(op.name)
    operations = [op for op in every if op.name in names]
    if not operations:
        return None
    returned = tf.nest.flatten(concrete.structured_outputs, expand_composites=True)
    results = list(filter(tf.is_tensor, returned))  # None is returned as such
    taken = [t for op in every if op.name not in names for t in inputs[op.name]]
    given = _distinct(t for t in (*taken, *results) if t.op.name in names)
    _check_results(t for t in results if t.op.name in names)
    fetched = _distinct(
        t for op in operations for t in op.inputs if t.op.name not in names and _is_array(t)
    )
    feeds = feeds_of(concrete)
    part = extract(
        concrete,
        # Inputs are returned as well, as a part drops those that nothing needs.
        [results, [instead.get(tensor.ref(), tensor) for tensor in fetched], feeds],
        given=given,
        controls=[op for op in concrete.graph.control_outputs if op.name not in names],
        without=names,
        instead=instead,
    )
    return Cut(part.function, tuple(operations), given, (*fetched, *feeds))


def _refused(names: Collection[str], operations: Sequence[tf.Operation]) -> set[str]:
    """Returns the operations of a graph that are among the names, or that call one that is."""
    by_name = {op.name: op for op in operations}
    found = set()
    for name in names:
        scope = name
        while scope and scope not in by_name:
            scope, _, _ = scope.rpartition("/")
        # An operation may have the name of a scope that it has nothing to do with.
        if scope == name or (scope and _called_by(by_name[scope])):
            found.add(scope)
    return {name for name in found if by_name[name].type != "Placeholder"}


def _check_results(results: Iterable[tf.Tensor]) -> None:
    lost = next((tensor for tensor in results if not _is_array(tensor)), None)
    if lost is None:
        return
    tensor = _origin(lost)
    if _is_numeric(tensor):
        what = "its result has no known shape. Give it one with `set_shape`"
    else:
        what = f"an IPU cannot return its result of type {tensor.dtype.name}. Return numbers"
    raise LoweringError(
        f"XLA cannot lower {tensor.op.type}, and {what}. Received: {tensor.op.name!r} of shape "
        f"{tensor.shape}"
    )


def _origin(tensor: tf.Tensor) -> tf.Tensor:
    """Follows a tensor without a known shape, or of texts, back to the first such tensor."""
    for before in tensor.op.inputs:
        if not _is_array(before) and _is_numeric(before) == _is_numeric(tensor):
            return _origin(before)
    return tensor


def put_back(graph: Graph, cut: Cut, layers: LayerNames) -> Graph:
    """Puts what was cut out back into the graph that XLA made of the rest.

    What was cut out has TensorFlow's kind of operation, and the attribute `NOT_LOWERED`.
    """
    end = len(cut.function.outputs)
    num_results = end - len(cut.fetched)
    values = dict(zip((t.ref() for t in cut.fetched), graph.results[num_results:end], strict=True))
    values.update(_references(cut.given))
    arguments = [op for op in graph.ops if op.attributes.get("role") == "argument"]
    arguments.sort(key=lambda op: op.attributes["number"])
    stand_ins = arguments[len(arguments) - len(cut.given) :]
    renamed = {op.name: values[t.ref()] for op, t in zip(stand_ins, cut.given, strict=True)}
    ops = [op for op in graph.ops if op.name not in renamed]
    ops += [_operation(op, cut, values, layers) for op in cut.operations]
    results = graph.results[:num_results] + graph.results[end:]
    return replace(
        graph,
        ops=_in_order([_rewired(op, renamed, num_results, end) for op in ops]),
        results=tuple(renamed.get(name, name) for name in results),
    )


def _references(given: Sequence[tf.Tensor]) -> dict[Any, str]:
    """Returns how the results of operations are called, of which only the used ones are kept."""
    used: dict[str, list[tf.Tensor]] = {}
    for tensor in given:
        used.setdefault(tensor.op.name, []).append(tensor)
    return {
        tensor.ref(): f"{name}:{position}" if len(tensors) > 1 else name
        for name, tensors in used.items()
        for position, tensor in enumerate(tensors)
    }


def _operation(op: tf.Operation, cut: Cut, values: Mapping[Any, str], layers: LayerNames) -> Op:
    """Makes an operation in TensorFlow's words; it waits for inputs that are no arrays."""
    place = place_with(layers.place(op.name), attributes_of(op))
    others = (t.op.name for t in op.inputs if t.ref() not in values)
    return Op(
        op.name,
        op.type,
        tuple(TensorSpec(tuple(t.shape.as_list()), t.dtype.name) for t in cut.given if t.op is op),
        inputs=tuple(values[t.ref()] for t in op.inputs if t.ref() in values),
        after=tuple(dict.fromkeys(name for name in others if name in cut.names)),
        attributes={NOT_LOWERED: True},
        **vars(place),
    )


def _rewired(op: Op, renamed: Mapping[str, str], num_results: int, end: int) -> Op:
    """Lets an operation take the real values, and moves the result index of a written variable."""
    attributes = dict(op.attributes)
    if attributes.get("result", 0) >= end:
        attributes["result"] -= end - num_results
    inputs = tuple(renamed.get(name, name) for name in op.inputs)
    return replace(op, inputs=inputs, attributes=attributes)


def _in_order(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Sorts operations so that each follows what it takes or waits for, and otherwise as given."""
    by_name = {op.name: op for op in ops}
    ordered: dict[str, Op] = {}
    opened: set[str] = set()
    pending = list(reversed(ops))
    while pending:
        op = pending[-1]
        missing = [
            by_name[name]
            for name in (*map(operation_of_reference, op.inputs), *op.after)
            if name not in ordered
        ]
        if missing and op.name in opened:
            raise LoweringError(
                "What XLA lacks cannot be put back among the rest: an operation would need its own "
                f"result. Received: {op.name!r}"
            )
        if missing:
            opened.add(op.name)
            pending += missing
        else:
            ordered[pending.pop().name] = op
    return tuple(ordered.values())


def _is_supported(op: tf.Operation, kernels: frozenset[str]) -> bool:
    if op.type not in kernels:
        return False
    functions = called_functions(op.graph)
    return all(
        _is_supported(inner, kernels)
        for name in _called_by(op)
        if name in functions
        for inner in functions[name].graph.get_operations()
    )


def _called_by(op: tf.Operation) -> list[str]:
    return [value.func.name for value in op.node_def.attr.values() if value.HasField("func")]


def _is_array(tensor: tf.Tensor) -> bool:
    return _is_numeric(tensor) and tensor.shape.is_fully_defined()


def _is_numeric(tensor: tf.Tensor) -> bool:
    dtype = tensor.dtype
    return dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex


def _distinct(tensors: Iterable[tf.Tensor]) -> tuple[tf.Tensor, ...]:
    return tuple({tensor.ref(): tensor for tensor in tensors}.values())
