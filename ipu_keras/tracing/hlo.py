"""Reads what XLA makes of a traced TensorFlow function into an `ir.Graph`.

Here is the walk over XLA's module. `lowering` calls XLA; `hlo_attributes` reads an
instruction's attributes, and `layers` its layer; `trip_counts` counts loops, `random_draws`
puts random numbers together, and `poplar_calls` operations of Poplar's libraries.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from ipu_keras.internals.tensorflow.protos import hlo_module
from ipu_keras.ir import Graph, Op
from ipu_keras.tracing.concrete import called_functions, names_of_functions
from ipu_keras.tracing.frontend_attributes import (
    AttributesOfCalls,
    place_with,
    shards_in,
)
from ipu_keras.tracing.gradient_shards import with_shards_of_gradients
from ipu_keras.tracing.hlo_attributes import attributes_of, kind_of, specs_of
from ipu_keras.tracing.layers import (
    LayerNames,
    LayerPlace,
    operation_of_reference,
    operation_path,
    with_inherited_places,
    with_place_of_caller,
)
from ipu_keras.tracing.lowering import FunctionInput, Lowering, LoweringError, lower
from ipu_keras.tracing.poplar_calls import with_poplar_calls
from ipu_keras.tracing.poplar_operation import poplar_operation_of
from ipu_keras.tracing.random_draws import Origin, draw_of, draws, with_random_draws
from ipu_keras.tracing.stand_ins import instructions_of, operation_of_call
from ipu_keras.tracing.trip_counts import with_trip_counts
from ipu_keras.tracing.unsupported import cut_unsupported, put_back

# Operations whose called computations become graphs. Those that others call, such as the
# reducer of a `reduce`, are told by attributes.
_CALLS = frozenset({"call", "conditional", "while"})

# What a graph takes, and what has an effect besides results; these stay even if nothing uses
# them.
_KEPT = frozenset({"infeed", "outfeed", "parameter", "recv", "recv-done", "send", "send-done"})

# What TensorFlow and XLA add to the names of functions. Most numbers count what the process has
# traced before, and would make reports of equal programs differ: `__inference_step_85`,
# `while_body_51_const_0__.5`, `while_cond_484_grad_512__.9`.
_DECORATION = re.compile(
    r"^(?:__|a_)?(?:inference|forward|backward)_+"
    r"|(?<=_body)_\d+|(?<=_cond)_\d+|(?<=_true)_\d+|(?<=_false)_\d+"
    r"|(?:_const_[\d_]+)?_*(?:\.\d+)?$"
)
_COUNTER = re.compile(r"_\d+$")


def hlo_graph(concrete, *, stand_ins: bool = True) -> Graph:
    """Returns the operations that XLA makes of a traced function, before it optimises them.

    Nothing is executed and no variable is changed.

    Args:
        concrete: A `tf.ConcreteFunction`, or one `AsWritten`, whose arguments have fully
            defined shapes. Its variables may be on any device.
        stand_ins: As for `lower`; it changes how long that takes, and not the graph.

    Returns:
        A graph of form `"hlo"`. Kinds of operations and names of attributes are XLA's, with
        these differences:

        - Instructions that no result needs are left out.
        - There are no tuples: operations have several outputs, and inputs name tensors.
        - A `"parameter"` has the attributes `number`, `first_leaf` (how many tensors the
          parameters before it have), and in the outermost graph `role`: `"argument"`,
          `"variable"` or `"capture"`, the last two with `name`. A variable that the function
          writes has `result`, the index in `Graph.results` of the new value; what computes it is
          `stateful`.
        - The `body` of a `"while"` is (condition, body), which take the loop's tensors; it has
          `trip_count` and `max_trip_count`. That of a `"conditional"` has one graph per branch; it
          takes the predicate or index and then the tensors of each branch, `num_branch_inputs` of
          them.
        - An operation that XLA lacks or refuses is left in TensorFlow's words: its kind is
          TensorFlow's, such as `"EagerPyFunc"`, and it has the attribute `not_lowered`.
        - A `"constant"` that is a scalar has its `value`. Integers that grow from 0 along an axis
          have `progression`, the axis and the step, which is 0 if all of them are 0. The values
          of other constants are left out.
        - A random draw is one operation of kind `"random"` with the attribute `distribution`; a
          categorical one also has `num_drawn`, the number of random numbers that it takes.
        - What is traced within one `poplar_operation` is one operation of kind `"poplar-call"` with
          that graph as its `body`, and so is its gradient; see `poplar_calls`.

    Raises:
        LoweringError: XLA cannot take an input; or it refused an operation, and the function
            returns something of that operation that is no array of known shape.

    Example:

    >>> import tensorflow as tf
    >>> double = tf.function(lambda x: x + x)
    >>> graph = hlo_graph(double.get_concrete_function(tf.TensorSpec((3,), tf.float32)))
    >>> [op.kind for op in graph.ops]
    ['parameter', 'reshape', 'add', 'reshape']
    """
    graphs = _graphs(concrete.graph)
    layers = LayerNames(
        frozenset(operation.name for graph in graphs for operation in graph.get_operations()),
        frozenset(name for graph in graphs for name in names_of_functions(graph)),
    )
    calls = AttributesOfCalls(graphs)
    name = plain_name(concrete.function_def.signature.name)
    try:
        graph = _read(concrete, name, layers, calls, stand_ins)
    except LoweringError as error:
        graph = _read_without_refused(concrete, name, layers, calls, stand_ins, error)
    return with_poplar_calls(with_shards_of_gradients(graph, partial(shards_in, graphs)))


def _read_without_refused(
    concrete,
    name: str,
    layers: LayerNames,
    calls: AttributesOfCalls,
    stand_ins: bool,
    error: LoweringError,
) -> Graph:
    """Returns the graph with what XLA refuses in TensorFlow's words."""
    refused: frozenset[str] = frozenset()
    while True:
        # XLA may name only the first operation that it refuses, so lowering is tried again
        # without it until nothing new is named.
        cut = cut_unsupported(concrete, refused | error.operations)
        if cut is None or cut.names <= refused:
            raise error
        refused = cut.names
        # A draw put together as one operation would come both before and after what was cut out
        # of it.
        without = {draw_of(Origin(op.name, op.type)) for op in cut.operations}
        try:
            graph = _read(cut.function, name, layers, calls, stand_ins, without)
            return put_back(graph, cut, layers)
        except LoweringError as another:
            error = another


def _read(
    concrete,
    name: str,
    layers: LayerNames,
    calls: AttributesOfCalls,
    stand_ins: bool,
    without: Collection[str] = frozenset(),
) -> Graph:
    lowering = lower(concrete, stand_ins=stand_ins)
    module = hlo_module(lowering.module)
    return _ModuleReader(module, layers, calls, without).read(name, lowering)


def _graphs(func_graph) -> list[Any]:
    """Returns the traced graph and those of the functions it calls, each once."""
    found = {id(func_graph): func_graph}
    pending = [func_graph]
    while pending:
        for function in called_functions(pending.pop()).values():
            if id(function.graph) not in found:
                found[id(function.graph)] = function.graph
                pending.append(function.graph)
    return list(found.values())


class _ModuleReader:
    """Reads one module of XLA, a graph for each computation that is called.

    Random draws in the scopes `without` are not put together.
    """

    def __init__(
        self, module, layers: LayerNames, calls: AttributesOfCalls, without: Collection[str]
    ):
        self._module = module
        self._without = without
        self._layers = layers
        self._calls = calls
        self._computations = {c.id: c for c in module.computations}
        self._names: dict[int, str] = {}
        self._functions: dict[str, Graph] = {}
        self._origins: dict[tuple[str, str], tuple[Origin, LayerPlace]] = {}

    def read(self, name: str, lowering: Lowering) -> Graph:
        entry = self._graph(self._module.entry_computation_id, name)
        # XLA returns the new values of variables as results that alias the parameters with the
        # old ones.
        updates = {
            alias.parameter_number: alias.output_shape_index[0] if alias.output_shape_index else 0
            for alias in self._module.input_output_alias.entries
        }
        ops = _with_roles(entry.ops, lowering, updates)
        written = {operation_of_reference(entry.results[index]) for index in updates.values()}
        ops = tuple(replace(op, stateful=True) if op.name in written else op for op in ops)
        return replace(entry, ops=ops, functions=self._reachable(entry.ops))

    def _graph(self, computation_id: int, name: str) -> Graph:
        computation = self._computations[computation_id]
        values = _Values()
        ops: list[Op] = []
        origins: dict[str, Origin] = {}
        for instruction in _in_order(computation.instructions):
            # Tuples only bundle values; on an IPU they are neither memory nor work.
            if instruction.opcode in ("tuple", "get-tuple-element"):
                values.fold(instruction)
                continue
            origin, place = self._origin(instruction)
            place = place_with(place, self._texts(instruction))
            made = instructions_of(
                self._op(instruction, origin, place, values),
                partial(values.unique_name, origin.path),
            )
            origins.update((op.name, origin) for op in made)
            ops += made
            values.add(instruction, made[-1])
        results = values.tensors[computation.root_id]
        return self._finished(name, _with_leaf_counts(ops), results, origins)

    def _finished(
        self, name: str, ops: Sequence[Op], results: tuple[str, ...], origins: dict[str, Origin]
    ) -> Graph:
        """Makes the graph of a computation whose instructions have been read."""
        # The order matters: what only a draw used is unused once the draw is one operation,
        # layers are inherited only from operations that stay, and loops are counted in graphs
        # that are complete.
        made, results = with_random_draws(ops, results, origins, self._without)
        made = _used(made, results)
        unnamed = {op.name for op in made if _is_unnamed(origins.get(op.name))}
        made = with_inherited_places(made, unnamed)
        made = with_trip_counts(made, self._functions)
        for op in made:
            self._hand_down_place(op)
        return Graph(name, made, results=results, form="hlo")

    def _hand_down_place(self, caller: Op) -> None:
        """Gives what a layer calls to that layer, as far as its own names say nothing."""
        place = LayerPlace.of(caller)
        if not place.is_known and not place.is_annotated:
            return
        for name in caller.body:
            body = self._functions[name]
            ops = with_place_of_caller(body.ops, caller)
            self._functions[name] = replace(body, ops=ops)
            for op in ops:
                self._hand_down_place(op)

    def _origin(self, instruction) -> tuple[Origin, LayerPlace]:
        """Returns where an instruction comes from; most instructions share that with others."""
        key = _named_as(instruction)
        if key not in self._origins:
            origin = Origin(operation_path(key[0]), key[1])
            draw = draw_of(origin)
            # A layer may be called "normal", or a metric "poisson", without drawing anything;
            # then its name is no scope of a draw, and is read for the layer as any other.
            path = draw if draw and self._is_drawn(draw) else origin.path
            place = self._layers.place(path) if path else LayerPlace()
            self._origins[key] = origin, self._of_poplar_operation(key[0], place)
        return self._origins[key]

    def _texts(self, instruction) -> Mapping[str, str]:
        """Returns what scopes say of an instruction, or of the function call it was traced in."""
        texts = instruction.frontend_attributes.map
        called = self._calls.of(instruction.metadata.op_name)
        return {**called, **texts} if called else texts

    def _is_drawn(self, draw: str) -> bool:
        return draw in self._without or draw in self._drawing

    @cached_property
    def _drawing(self) -> frozenset[str]:
        """Scopes in which something is drawn; computed only if a scope is named like a sampler."""
        every = {_named_as(i) for c in self._module.computations for i in c.instructions}
        origins = (Origin(operation_path(name), kind) for name, kind in every)
        return frozenset(draw_of(origin) for origin in origins if draws(origin))

    def _of_poplar_operation(self, op_name: str, place: LayerPlace) -> LayerPlace:
        """Returns the place of the Poplar operation that an instruction is a part of, if any.

        Each call of a function has operations of its own. Merged instructions have several
        names, and only the last of these includes the calls around it, so it names the
        operation.
        """
        whole = poplar_operation_of(op_name.rpartition(";")[2])
        if not whole:
            return place
        return replace(self._layers.place(operation_path(whole)), poplar_operation=whole)

    def _op(self, instruction, origin: Origin, place: LayerPlace, values: "_Values") -> Op:
        attributes = attributes_of(instruction, self._computations)
        if instruction.opcode == "parameter":
            attributes["number"] = instruction.parameter_number
        if instruction.opcode == "conditional":
            branches = instruction.operand_ids[1:]
            attributes["num_branch_inputs"] = tuple(len(values.tensors[b]) for b in branches)
        return Op(
            name=values.unique_name(origin.path, kind_of(instruction)),
            kind=kind_of(instruction),
            outputs=specs_of(instruction.shape),
            body=self._body(instruction) if instruction.opcode in _CALLS else (),
            inputs=tuple(v for operand in instruction.operand_ids for v in values.tensors[operand]),
            attributes=attributes,
            **vars(place),
        )

    def _body(self, instruction) -> tuple[str, ...]:
        called = list(instruction.called_computation_ids)
        if instruction.opcode == "while":
            called.reverse()  # XLA lists the body before the condition
        return tuple(self._function(computation_id) for computation_id in called)

    def _function(self, computation_id: int) -> str:
        """Returns the name of a called graph, which is read when it is first asked for."""
        if computation_id not in self._names:
            plain = plain_name(self._computations[computation_id].name)
            name = _unique(plain, self._names.values())
            self._names[computation_id] = name
            self._functions[name] = self._graph(computation_id, name)
        return self._names[computation_id]

    def _reachable(self, ops: Iterable[Op]) -> dict[str, Graph]:
        """Returns the graphs that are still called; those within a random draw are gone with it."""
        found: dict[str, Graph] = {}
        pending = [name for op in ops for name in op.body]
        while pending:
            name = pending.pop()
            if name not in found:
                found[name] = self._functions[name]
                pending += [called for op in found[name].ops for called in op.body]
        return {name: graph for name, graph in self._functions.items() if name in found}


class _Values:
    """The names of the tensors that each instruction of a computation gives."""

    def __init__(self) -> None:
        self.tensors: dict[int, tuple[str, ...]] = {}
        # Where each element of a tuple begins among its tensors: an element may be a tuple
        # itself.
        self._starts: dict[int, list[int]] = {}
        self._counts: dict[str, int] = {}

    def unique_name(self, path: str, kind: str) -> str:
        """Names an operation by the scope and kind of its instruction, numbered if repeated."""
        base = f"{path}/{kind}" if path else kind
        count = self._counts.get(base, 0)
        self._counts[base] = count + 1
        return f"{base}.{count}" if count else base

    def add(self, instruction, op: Op) -> None:
        """Notes the results of an instruction that became an operation."""
        many = len(op.outputs) > 1
        self._note(
            instruction,
            tuple(f"{op.name}:{k}" for k in range(len(op.outputs)))
            if many
            else (op.name,) * len(op.outputs),
        )

    def fold(self, instruction) -> None:
        """Notes the tensors that a tuple, or an element of one, consists of."""
        operands = [self.tensors[operand] for operand in instruction.operand_ids]
        if instruction.opcode == "tuple":
            tensors = tuple(tensor for operand in operands for tensor in operand)
        else:
            starts = self._starts[instruction.operand_ids[0]]
            index = instruction.tuple_index
            tensors = operands[0][starts[index] : starts[index + 1]]
        self._note(instruction, tensors)

    def _note(self, instruction, tensors: tuple[str, ...]) -> None:
        self.tensors[instruction.id] = tensors
        if instruction.shape.tuple_shapes:
            starts = [0]
            for part in instruction.shape.tuple_shapes:
                starts.append(starts[-1] + len(specs_of(part)))
            self._starts[instruction.id] = starts


def _named_as(instruction) -> tuple[str, str]:
    """Returns the name and type of the TensorFlow operation that an instruction belongs to."""
    metadata = instruction.metadata
    operation = operation_of_call(instruction.custom_call_target)
    return metadata.op_name, operation or metadata.op_type


def _in_order(instructions) -> list[Any]:
    """Sorts instructions by when they were made, each after its operands."""
    ordered = sorted(instructions, key=lambda instruction: instruction.id)
    defined: set[int] = set()
    for instruction in ordered:
        if not defined.issuperset(instruction.operand_ids):
            return list(instructions)  # operands come first, but not in traced order
        defined.add(instruction.id)
    return ordered


def plain_name(name: str) -> str:
    """Returns the name of a function as the user, or TensorFlow's control flow, gave it."""
    return _COUNTER.sub("", _DECORATION.sub("", name)) or name


def _unique(base: str, taken: Iterable[str]) -> str:
    names = set(taken)
    numbered = (f"{base}_{count}" for count in itertools.count(1))
    return next(name for name in itertools.chain([base], numbered) if name not in names)


def _is_unnamed(origin: Origin | None) -> bool:
    """Whether the trace does not tell which layer asked for an operation."""
    if origin is None:  # it is a random draw, and those have a scope
        return False
    # The tape adds up the gradients that flow into one tensor outside of all scopes.
    is_sum_of_tape = origin.kind == "AddN" and "/" not in origin.path
    return not origin.path or is_sum_of_tape


def _used(ops: Sequence[Op], results: Sequence[str]) -> tuple[Op, ...]:
    """Leaves out what has no effect, as XLA's first pass does."""
    used = {operation_of_reference(value) for value in results}
    kept = []
    for op in reversed(ops):
        if op.name in used or op.kind in _KEPT:
            used.update(map(operation_of_reference, op.inputs))
            kept.append(op)
    return tuple(reversed(kept))


def _with_leaf_counts(ops: Sequence[Op]) -> list[Op]:
    """Gives parameters the positions of their tensors among those of all parameters."""
    parameters = [op for op in ops if op.kind == "parameter"]
    first: dict[str, int] = {}
    start = 0
    for op in sorted(parameters, key=lambda op: op.attributes["number"]):
        first[op.name] = start
        start += len(op.outputs)
    return [
        replace(op, attributes={**op.attributes, "first_leaf": first[op.name]})
        if op.name in first
        else op
        for op in ops
    ]


def _with_roles(
    ops: Sequence[Op], lowering: Lowering, updates: Mapping[int, int]
) -> tuple[Op, ...]:
    """Says of the entry's parameters which inputs of the traced function they are."""
    parameters = [op for op in ops if op.kind == "parameter"]
    given = _inputs_of(sorted(parameters, key=lambda op: op.attributes["number"]), lowering)
    return tuple(
        replace(op, attributes=_entry_attributes(op, given[op.name], updates))
        if op.name in given
        else op
        for op in ops
    )


def _entry_attributes(
    parameter: Op, given: FunctionInput, updates: Mapping[int, int]
) -> dict[str, Any]:
    attributes = {**parameter.attributes, "role": given.role}
    if given.role != "argument":
        attributes["name"] = given.name
    if attributes["number"] in updates:
        attributes["result"] = updates[attributes["number"]]
    return attributes


def _inputs_of(parameters: Sequence[Op], lowering: Lowering) -> dict[str, FunctionInput]:
    """Finds the input that each parameter stands for."""
    found: dict[str, FunctionInput] = {}
    waiting = list(reversed(parameters))
    for given in lowering.inputs:
        # XLA drops the parameter of a captured value that it has read as a constant, and keeps
        # the order of the others, so specs are enough to match them.
        if waiting and waiting[-1].outputs == (given.spec,):
            found[waiting.pop().name] = given
        elif given.role != "capture":
            raise LoweringError(
                "The shape of a result, or which operation computes it, may not depend on the "
                f"value of an argument or a variable. Make it a constant. Received: {given}",
                lowering.refused,
            )
    return found
