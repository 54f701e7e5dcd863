"""Has finished functions compute float16 as an IPU does.

An IPU widens halves to float32, computes, and rounds the result once. Its halves have no
infinity: what is too large becomes 65504 (or NaN, with `floating_point_behaviour.nanoo`), and an
infinite operand, or a division by zero, makes NaN (Tile Vertex ISA 1.2.3, section 2.9). It rounds
to the nearest half, or at random (`random_rounding`), for which functions are given keys.

This works on definitions of functions, after all that looks at graphs, so that gradients, loops,
branches, XLA's programs and TensorFlow's executor are treated alike, and reports see nothing of
it. Functions without halves stay as they are.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras._rounding import RoundingKeys, own_number, own_number_of_partials
from ipu_keras.host.fused_updates import TYPES as TYPES_OF_UPDATES
from ipu_keras.host.fused_updates import type_in, update_of
from ipu_keras.host.half_operations import (
    BOUNDED,
    CHANGES,
    COMPUTING,
    LEFT_ALONE,
    MOVING,
    OVERFLOWING,
    SINGULAR,
    called_in,
    computes_halves,
    is_for_xla,
    is_widening,
    makes_integers,
    positions_of,
)
from ipu_keras.host.operation_kinds import CONTROL_FLOW, LOOPS
from ipu_keras.host.partial_sums import (
    PartialsScope,
    PartialTypes,
    function_in_passes,
    text_of_stages,
)
from ipu_keras.host.random_rounding import (
    MODULE_VERSION,
    NEXT_STEP,
    distance_of_replica,
    following_key,
    module_of_keys,
    module_that_rounds,
    register_kernels,
)
from ipu_keras.host.sums_of_lists import with_sums_of_tensors
from ipu_keras.internals.tensorflow.contexts import function_definition
from ipu_keras.internals.tensorflow.functions import defined_like
from ipu_keras.internals.tensorflow.operations import definition_of
from ipu_keras.machine.numerics import Numerics
from ipu_keras.program import Pipeline
from ipu_keras.settings.enumerations import StochasticRoundingBehaviour
from ipu_keras.tracing.frontend_attributes import (
    attributes_in,
    is_at_random,
    replica_part_in,
)

_HALF, _FLOAT = tf.float16.as_datatype_enum, tf.float32.as_datatype_enum
_INT32, _INT64 = tf.int32.as_datatype_enum, tf.int64.as_datatype_enum
_RESOURCE = tf.resource.as_datatype_enum
_LARGEST = 65504.0

# What an IPU makes of NaN, and TensorFlow by the instruction of x86 for it.
_INT32_LEAST = -(2**31)

# What the kernel makes of numbers that are too large, see `_cext/rounding.pxi`.
_SATURATED, _SATURATED_IF_FINITE, _NEVER_FINITE, _INFINITE = range(4)

# Before the name of a tensor, says that nothing takes its place there.
_AS_IT_IS = "="

# What hands a key on to the functions that it calls; others draw one of the device's.
_KEYED = CONTROL_FLOW | {"PartitionedCall", "StatefulPartitionedCall"}

# The names of a key among what a function takes and returns.
_KEY, _NEXT_KEY = "ipu_rounding_key", "ipu_next_rounding_key"

_numbers = itertools.count()


def with_halves(
    concrete: Any, numerics: Numerics, keys: RoundingKeys, pipeline: Pipeline | None = None
) -> Any:
    """Returns a function that computes halves as an IPU does; the given one if it has none.

    Args:
        concrete: A `tf.ConcreteFunction` that is called as it is: a caller with halves of its own
            would have it written anew once more.
        numerics: How halves overflow on the device, and when they are rounded at random.
        keys: The stream of keys of the device, which has to live as long as the function may run.
        pipeline: The pipeline that it is, whose stages may have partial sums of other types.
    """
    definition = function_definition(concrete.inference_fn.name.decode())
    # Where an overflow stops, it has to be seen when the execution is over.
    numerics = replace(numerics, nanoo=numerics.shows_overflow)
    made, called = definitions_with_halves(definition, numerics, keys, pipeline)
    return defined_like(concrete, made, called) if made else concrete


def definitions_with_halves(
    definition: Any, numerics: Numerics, keys: RoundingKeys, pipeline: Pipeline | None = None
) -> tuple[list[tuple[str, Any]], list[Any]]:
    """Returns definitions of what a function calls and, the last, of itself, with its halves.

    They are new `FunctionDef`s, each with the name of what it takes the place of. There are none
    if the function computes no halves, as those that were made here. The second list has the
    traced functions that these call besides, and that have to be kept. See `with_halves`.
    """
    name = definition.signature.name
    functions = _HalvedFunctions({name: definition}, PartialTypes(numerics.half_partials))
    if functions.are_computed_in(name):
        at_random = numerics.rounding is StochasticRoundingBehaviour.ON
        way = _Way(
            nanoo=numerics.nanoo,
            stream=keys.address,
            at_random=at_random,
            partials=PartialsScope(stages=text_of_stages(pipeline)),
        )
        functions.rewritten(name, way)
    return functions.made, functions.called


@dataclass(frozen=True, kw_only=True)
class _Way:
    """How a function is written anew.

    Args:
        nanoo: Whether halves that overflow become NaN.
        stream: Where the keys of the device are.
        at_random: Whether its operations round at random, unless they say themselves how they do.
        partials: Which type of partial sums scopes and stages around it ask for.
        in_xla: Whether XLA's programs call it.
        takes_key: Whether it is given a key as its last argument.
        hands_key_on: Whether it returns the key of the next step of its loop as its last result.
    """

    nanoo: bool
    stream: int
    at_random: bool
    partials: PartialsScope = field(default_factory=PartialsScope)
    in_xla: bool = False
    takes_key: bool = False
    hands_key_on: bool = False


class _HalvedFunctions:
    """Functions that call each other, and what becomes of them.

    Args:
        known: Definitions by their names; TensorFlow knows the others.
        partials: Which of their operations have partial sums of halves.
    """

    def __init__(self, known: dict[str, Any], partials: PartialTypes) -> None:
        self.partials = partials
        self._known = {
            name: with_sums_of_tensors(each, function_definition) for name, each in known.items()
        }
        self._concerned: dict[tuple[str, bool], bool] = {}
        self._drawing: dict[tuple[str, bool], bool] = {}
        self._names: dict[tuple[str, _Way], str] = {}
        self._called: dict[tuple[bytes, bool], Any] = {}
        self.made: list[tuple[str, Any]] = []

    @property
    def called(self) -> list[Any]:
        """The traced functions that new ones call for updates, and for partial sums of halves."""
        return [*self._called.values()]

    def update_for(self, node: Any) -> str:
        """Returns the name of what computes the new values of variables that a node updates."""
        return self._name_of(node, in_xla=False, trace=lambda: update_of(node))

    def in_passes_for(self, node: Any, in_xla: bool) -> str:
        """Returns the name of what takes the place of a convolution or product of halves."""
        return self._name_of(node, in_xla, lambda: function_in_passes(node, in_xla))

    def _name_of(self, node: Any, in_xla: bool, trace: Callable[[], Any]) -> str:
        """Traces a function for nodes of this kind and these attributes, if it is the first."""
        alike = type(node)(op=node.op)
        for name, value in node.attr.items():
            if name[0] != "_":
                alike.attr[name].CopyFrom(value)
        key = (alike.SerializeToString(deterministic=True), in_xla)
        if key not in self._called:
            self._called[key] = trace()
        return self._called[key].inference_fn.name.decode()

    def are_computed_in(self, name: str, in_xla: bool = False) -> bool:
        """Whether a function, or one that it calls, computes halves, or what XLA has otherwise."""
        definition = self._definition_of(name)
        in_xla = in_xla or is_for_xla(definition)
        if (name, in_xla) not in self._concerned:
            self._concerned[name, in_xla] = any(
                computes_halves(node)
                or (in_xla and makes_integers(node))
                or any(
                    self.are_computed_in(called.name, in_xla or is_for_xla(node))
                    for called in called_in(node)
                )
                for node in definition.node_def
            )
        return self._concerned[name, in_xla]

    def _definition_of(self, name: str) -> Any:
        if name not in self._known:
            found = function_definition(name)
            self._known[name] = with_sums_of_tensors(found, function_definition)
        return self._known[name]

    def are_rounded_at_random(self, name: str, at_random: bool) -> bool:
        """Whether a function, or one that it calls, rounds at random, as its caller does or not."""
        if (name, at_random) not in self._drawing:
            self._drawing[name, at_random] = any(
                (computes_halves(node) and own)
                or any(self.are_rounded_at_random(called.name, own) for called in called_in(node))
                for node in self._definition_of(name).node_def
                for own in [_rounds_at_random(node, at_random)]
            )
        return self._drawing[name, at_random]

    def only_calls(self, name: str, at_random: bool) -> bool:
        """Whether all that a function rounds at random is in what one of its operations calls."""
        drawing = [
            node
            for node in self._definition_of(name).node_def
            for own in [_rounds_at_random(node, at_random)]
            if (computes_halves(node) and own)
            or any(self.are_rounded_at_random(called.name, own) for called in called_in(node))
        ]
        return len(drawing) == 1 and drawing[0].op in _KEYED

    def rewritten(self, name: str, way: _Way) -> str:
        """Returns the name of what takes the place of a function.

        XLA has no kernels of ours, and needs none: it rounds as part of other operations.
        """
        if not way.takes_key and not self.are_computed_in(name, way.in_xla):
            return name
        definition = self._definition_of(name)
        way = replace(way, in_xla=way.in_xla or is_for_xla(definition))
        if (name, way) not in self._names:
            self._names[name, way] = f"{name}_halves_{next(_numbers)}"
            kind = _Rewriting if way.in_xla else _RewritingForExecutor
            found = kind(definition, self, way).result()
            found.signature.name = self._names[name, way]
            self.made.append((name, found))
        return self._names[name, way]


def _rounds_at_random(node: Any, around: bool) -> bool:
    """Whether a node rounds at random: as the innermost scope says, or as what is around it."""
    own = is_at_random(attributes_in(node))
    return around if own is None else own


class _Rewriting:
    """Writes one function anew: all that computes halves does so in float32, and rounds."""

    _in_xla = True

    def __init__(self, definition: Any, functions: _HalvedFunctions, way: _Way):
        self._definition = definition
        self._functions = functions
        self._way = way
        self._nanoo = way.nanoo
        self._nodes: list[Any] = []
        # The operations that others wait for, without taking a result.
        self._awaited = {
            name[1:] for node in definition.node_def for name in node.input if name[0] == "^"
        }
        # By the tensor that was a half, the one that is it now.
        self._instead: dict[str, str] = {}
        self._constants: dict[tuple[str, int], str] = {}
        # The function's key, once there is one, and how many have been made of it.
        self._own_key = _KEY if way.takes_key else ""
        self._salts = itertools.count(NEXT_STEP + 1)
        # A call around all that a function does, which XLA's programs have more of, makes no other
        # key. What follows in a loop has a salt of its own.
        self._hands_own_key_on = (
            way.takes_key
            and not way.hands_key_on
            and functions.only_calls(definition.signature.name, way.at_random)
        )
        # Of parts that all replicas call.
        self._salts_of_parts: dict[str, int] = {}
        # Whether the operation that is written anew rounds at random.
        self._at_random = False
        # What is said of its partial sums.
        self._partials = PartialsScope()
        # The operations of which no half is infinite, so that what is computed of it need not look.
        self._finite_ops: set[str] = set()
        # Where new operations are, and what they wait for.
        self._device = ""

    def result(self) -> Any:
        """Returns the definition of the new function, under the name of the old one."""
        found = type(self._definition)()
        found.CopyFrom(self._definition)
        for node in found.node_def:
            self._device = node.device
            self._at_random = _rounds_at_random(node, self._way.at_random)
            self._partials = self._functions.partials.scope_of(node, self._way.partials)
            self._call(node)
            if self._in_xla and makes_integers(node):
                self._make_integers(node)
            elif not computes_halves(node):
                self._note_moved(node)
                self._move(node)
            elif node.op in CHANGES:
                self._change(node)
            elif node.op in TYPES_OF_UPDATES:
                self._update(node)
            elif node.op == "Cast":
                self._cast(node)
            else:
                self._compute(node)
        self._hand_key_on(found)
        for key, name in list(found.ret.items()):  # setting one may move others
            found.ret[key] = self._half_of(name)
        for node in self._nodes:  # to which this may add
            for k, name in enumerate(node.input):
                node.input[k] = self._half_of(name)
        nodes = [*self._nodes]
        del found.node_def[:]
        found.node_def.extend(nodes)
        return found

    def _call(self, node: Any) -> None:
        """Has a node call what takes the place of the functions that it calls, if it calls any."""
        functions, at_random = called_in(node), self._at_random
        takes_key = node.op in _KEYED and any(
            self._functions.are_rounded_at_random(function.name, at_random)
            for function in functions
        )
        way = replace(
            self._way,
            in_xla=self._in_xla or is_for_xla(node),
            at_random=at_random,
            partials=self._partials,
            takes_key=takes_key,
            hands_key_on=False,
        )
        body = node.attr["body"].func.name if node.op in LOOPS else None
        for function in functions:
            hands_on = takes_key and function.name == body
            own = replace(way, hands_key_on=hands_on)
            function.name = self._functions.rewritten(function.name, own)
        if takes_key:
            self._give_key(node)

    def _give_key(self, node: Any) -> None:
        """Gives the functions that a node calls a key as their last argument."""
        key = self._key_of_call(node)
        given = [name for name in node.input if name[0] != "^"]
        waited_for = node.input[len(given) :]
        del node.input[:]
        node.input.extend([*given, key, *waited_for])
        node.attr["T" if node.op in LOOPS else "Tin"].list.type.append(_INT64)
        if node.op in LOOPS and node.attr["output_shapes"].list.shape:
            node.attr["output_shapes"].list.shape.add()

    def _key_of_call(self, node: Any) -> str:
        """Returns the key of what a node calls; what all replicas call may have the same."""
        if self._hands_own_key_on:
            return self._key()
        name, part = f"{node.name}/{_KEY}", replica_part_in(attributes_in(node))
        if part is None:
            return self._following_key(next(self._salts), name)
        if part.name not in self._salts_of_parts:
            self._salts_of_parts[part.name] = next(self._salts)
        key = self._following_key(self._salts_of_parts[part.name], name)
        if part.replica == 0:
            return key
        one, distance = (self._constant(n, _INT64) for n in (1, distance_of_replica(part.replica)))
        apart = f"{self._new('BitwiseAnd', f'{name}/apart', [key, one], T=_INT64)}:z:0"
        moved = f"{self._new('Mul', f'{name}/distance', [apart, distance], T=_INT64)}:z:0"
        return f"{self._new('AddV2', f'{name}/of_replica', [key, moved], T=_INT64)}:z:0"

    def _hand_key_on(self, found: Any) -> None:
        """Adds keys to the signature of the new function."""
        if self._way.takes_key:
            found.signature.input_arg.add(name=_KEY, type=_INT64)
        elif self._own_key:
            # Who calls it must not take two calls for one.
            found.signature.is_stateful = True
        if self._way.hands_key_on:
            found.signature.output_arg.add(name=_NEXT_KEY, type=_INT64)
            found.ret[_NEXT_KEY] = self._following_key(NEXT_STEP, _NEXT_KEY)

    def _following_key(self, salt: int, name: str) -> str:
        """Returns a key that follows from that of the function."""
        term, factor, last = (self._constant(number, _INT64) for number in following_key(salt))
        key = f"{self._new('AddV2', f'{name}/salted', [self._key(), term], T=_INT64)}:z:0"
        key = f"{self._new('Mul', f'{name}/spread', [key, factor], T=_INT64)}:z:0"
        return f"{self._new('AddV2', f'{name}/moved', [key, last], T=_INT64)}:z:0"

    def _key(self) -> str:
        if not self._own_key:
            device, self._device = self._device, ""
            self._own_key = self._drawn_key()
            self._device = device
        return self._own_key

    def _drawn_key(self) -> str:
        """Takes the next key of the device."""
        module = module_of_keys(self._way.stream)
        return self._module(_KEY, [], module, takes=[], returns=_INT64, rank=0)

    def _module(
        self,
        name: str,
        inputs: Sequence[str],
        module: bytes,
        *,
        takes: list[int],
        returns: int,
        rank: int,
    ) -> str:
        """Has XLA compile a module in MLIR; returns its only result."""
        node = self._new_node("XlaCallModule", name, inputs)
        node.attr["version"].i = MODULE_VERSION
        node.attr["module"].s = module
        node.attr["platforms"].list.s.append(b"CPU")
        node.attr["Tin"].list.type.extend(takes)
        node.attr["Tout"].list.type.append(returns)
        shape = node.attr["Sout"].list.shape.add()
        for _ in range(rank):
            shape.dim.add(size=-1)
        return f"{name}:output:0"

    def _half_of(self, tensor: str) -> str:
        """Returns what nodes take for a tensor that they name."""
        return self._instead.get(tensor, tensor).removeprefix(_AS_IT_IS)

    def _move(self, node: Any) -> None:
        self._nodes.append(node)

    def _note_moved(self, node: Any) -> None:
        """Notes whether halves that are moved, or constant, are finite."""
        if node.op == "Const":
            value = tf.make_ndarray(node.attr["value"].tensor)
            if value.dtype != np.float16 or not np.isinf(value).any():
                self._finite_ops.add(node.name)
        elif node.op in MOVING and self._are_finite(node.input):
            self._finite_ops.add(node.name)

    def _are_finite(self, tensors: Iterable[str]) -> bool:
        return all(name.partition(":")[0] in self._finite_ops for name in tensors if name[0] != "^")

    def _compute(self, node: Any) -> None:
        kind = definition_of(node.op)
        halves = {name for name in COMPUTING[node.op] if node.attr[name].type == _HALF}
        wide = positions_of(node, halves)
        is_finite = node.op not in SINGULAR and self._are_finite(node.input[k] for k in wide)
        is_bounded = node.op in BOUNDED and is_finite
        self._finite_ops.add(node.name)
        if self._has_half_partials(node, halves):
            self._add_up_in_passes(node, wide)
            return
        self._widen(node, wide, halves)
        for argument in kind.output_arg:
            if argument.type_attr in halves:
                tensor = f"{node.name}:{argument.name}:0"
                operands = [node.input[k] for k in wide] if node.op in OVERFLOWING else []
                name = f"{node.name}/{argument.name}"
                result = _AS_IT_IS + tensor
                checked = [] if is_finite else operands or [result]
                self._note(tensor, self._rounded(result, name, checked, is_bounded))

    def _has_half_partials(self, node: Any, halves: set[str]) -> bool:
        are_halves = self._functions.partials.are_halves(node, self._partials)
        return are_halves and len(halves) == len(COMPUTING[node.op])

    def _add_up_in_passes(self, node: Any, wide: Sequence[int]) -> None:
        """Calls what rounds each partial sum, in place of an operation that has such."""
        (result,) = definition_of(node.op).output_arg
        function = self._functions.in_passes_for(node, self._in_xla)
        for k in wide:
            node.input[k] = self._cast_to(_FLOAT, node.input[k], f"{node.name}/wide_{k}")
        at_random = self._at_random
        overflow = _NEVER_FINITE if self._nanoo else _SATURATED_IF_FINITE
        salt = next(self._salts) if at_random else 0
        own = self._constant(own_number_of_partials(salt, overflow, at_random), _INT64)
        key = self._key() if at_random else self._constant(0, _INT64)
        given = [name for name in node.input if name[0] != "^"]
        call = self._new_node("PartitionedCall", node.name, [*given, key, own])
        call.input.extend(node.input[len(given) :])
        call.attr["f"].func.name = function
        types = [_FLOAT if k in wide else _INT32 for k in range(len(given))]
        call.attr["Tin"].list.type.extend([*types, _INT64, _INT64])
        call.attr["Tout"].list.type.append(_FLOAT)
        found = f"{_AS_IT_IS}{node.name}:output:0"
        self._note(f"{node.name}:{result.name}:0", self._as_noted(found, node.name))

    def _as_noted(self, found: str, name: str) -> str:
        """Returns what is noted of halves that are in float32."""
        return self._cast_to(_HALF, found, f"{name}/half")

    def _widen(self, node: Any, positions: Iterable[int], types: Iterable[str]) -> None:
        """Gives a node float32 in place of the halves among its inputs."""
        for k in positions:
            node.input[k] = self._cast_to(_FLOAT, node.input[k], f"{node.name}/wide_{k}")
        for name in types:
            node.attr[name].type = _FLOAT
        self._nodes.append(node)

    def _change(self, node: Any) -> None:
        """Reads, computes and writes, in place of an operation that does all of it in halves."""
        handle, value, *controls = node.input
        read = self._new("ReadVariableOp", f"{node.name}/read", [handle, *controls], dtype=_HALF)
        self._new(CHANGES[node.op], f"{node.name}/changed", [f"{read}:value:0", value], T=_HALF)
        changed = self._nodes.pop()
        self._compute(changed)
        node.op = "AssignVariableOp"
        self._finite_ops.discard(node.name)
        node.input[1] = f"{changed.name}:z:0"
        self._nodes.append(node)

    def _update(self, node: Any) -> None:
        """Reads, computes and writes all variables that one operation updates."""
        given = [name for name in node.input if name[0] != "^"]
        waited_for = node.input[len(given) :]
        arguments = definition_of(node.op).input_arg
        handles = [name for name, a in zip(given, arguments, strict=True) if a.type == _RESOURCE]
        halves = positions_of(node, [TYPES_OF_UPDATES[node.op]])
        for k, handle in enumerate(handles):
            read = self._new(
                "ReadVariableOp", f"{node.name}/read_{k}", [handle, *waited_for], dtype=_HALF
            )
            given[k] = f"{read}:value:0"
        for k in [*range(len(handles)), *halves]:
            given[k] = self._cast_to(_FLOAT, given[k], f"{node.name}/wide_{k}")
        call = self._new_node("PartitionedCall", f"{node.name}/updated", given)
        call.attr["f"].func.name = self._functions.update_for(node)
        types = [type_in(argument, node).as_datatype_enum for argument in arguments]
        call.attr["Tin"].list.type.extend(types)
        call.attr["Tout"].list.type.extend([_FLOAT] * len(handles))
        written = []
        for k, handle in enumerate(handles):
            value = f"{call.name}:output:{k}"
            result = _AS_IT_IS + value
            self._note(value, self._rounded(result, f"{node.name}/new_{k}", [result]))
            written.append(
                self._new(
                    "AssignVariableOp", f"{node.name}/written_{k}", [handle, value], dtype=_HALF
                )
            )
        node.op = "NoOp"
        node.attr.clear()
        del node.input[:]
        node.input.extend(f"^{name}" for name in written)
        self._nodes.append(node)

    def _cast(self, node: Any) -> None:
        source = node.attr["SrcT"].type
        tensor, wide = f"{node.name}:y:0", node.input[0]
        if source != _FLOAT:
            node.attr["DstT"].type = _FLOAT
            self._nodes.append(node)
            wide = _AS_IT_IS + tensor
        rounded = self._rounded(wide, node.name, [wide])
        self._note(tensor, rounded)
        self._finite_ops.add(node.name)
        if source == _FLOAT:
            self._drop(node, rounded)

    def _make_integers(self, node: Any) -> None:
        """Makes the least integer of NaN, where XLA makes 0."""
        wide, dtype, tensor = node.input[0], node.attr["SrcT"].type, f"{node.name}:y:0"
        node.attr[LEFT_ALONE].b = True
        self._nodes.append(node)
        is_nan = self._new("IsNan", f"{node.name}/is_nan", [wide], T=dtype)
        least = self._constant(_INT32_LEAST, _INT32)
        given = [f"{is_nan}:y:0", least, _AS_IT_IS + tensor]
        chosen = self._new("SelectV2", f"{node.name}/integers", given, T=_INT32)
        self._instead[tensor] = f"{chosen}:output:0"

    def _drop(self, node: Any, instead: str) -> None:
        """Leaves out a cast, but for its name if other operations wait for that."""
        if node.name in self._awaited:
            node.op, node.input[0] = "NoOp", f"^{instead.removeprefix(_AS_IT_IS).partition(':')[0]}"
            node.attr.clear()
            self._nodes.append(node)

    def _note(self, tensor: str, rounded: str) -> None:
        """Notes what takes the place of a tensor that was a half."""
        self._instead[tensor] = rounded

    def _rounded(
        self, wide: str, name: str, operands: Sequence[str], is_bounded: bool = False
    ) -> str:
        """Returns the half that a result in float32 becomes: NaN where an operand is not finite."""
        if self._at_random:
            return self._rounded_at_random(wide, name, operands)
        if is_bounded:
            return self._cast_to(_HALF, wide, f"{name}/half")
        if not self._nanoo:
            return self._cast_to(_HALF, self._saturated(wide, name, operands), f"{name}/half")
        half = self._cast_to(_HALF, wide, f"{name}/half")
        return self._finite(half, _HALF, [half], _HALF, f"{name}/kept")

    def _rounded_at_random(self, wide: str, name: str, operands: Sequence[str]) -> str:
        # Of whatever shape, as that is in no definition.
        flat = self._reshaped(wide, self._constant([-1], _INT32), _FLOAT, f"{name}/flat")
        module = module_that_rounds(next(self._salts), self._overflow(wide, operands))
        halves = self._module(
            f"{name}/drawn",
            [flat, self._key()],
            module,
            takes=[_FLOAT, _INT64],
            returns=_HALF,
            rank=1,
        )
        shape = self._new("Shape", f"{name}/shape", [wide], T=_FLOAT, out_type=_INT32)
        half = self._reshaped(halves, f"{shape}:output:0", _HALF, f"{name}/half")
        others = self._looked_at(wide, operands)
        return self._finite(half, _HALF, others, _FLOAT, f"{name}/kept")

    def _reshaped(self, tensor: str, shape: str, dtype: int, name: str) -> str:
        return f"{self._new('Reshape', name, [tensor, shape], T=dtype, Tshape=_INT32)}:output:0"

    def _overflow(self, wide: str, operands: Sequence[str]) -> int:
        """Returns what functions of ours make of numbers that are too large."""
        if self._nanoo:
            return _NEVER_FINITE
        return _SATURATED_IF_FINITE if wide in operands else _SATURATED

    def _looked_at(self, wide: str, operands: Sequence[str]) -> list[str]:
        """Returns the operands that are left to be looked at for infinities where they round."""
        return [] if self._nanoo else [operand for operand in operands if operand != wide]

    def _saturated(self, wide: str, name: str, operands: Sequence[str]) -> str:
        limits = [self._constant(value, _FLOAT) for value in (-_LARGEST, _LARGEST)]
        clipped = self._new("ClipByValue", f"{name}/clipped", [wide, *limits], T=_FLOAT)
        # Clipping keeps NaN.
        return self._finite(f"{clipped}:output:0", _FLOAT, operands, _FLOAT, f"{name}/kept")

    def _finite(
        self, value: str, dtype: int, operands: Sequence[str], type_of_operands: int, name: str
    ) -> str:
        """Returns a value where operands are finite, and NaN elsewhere."""
        nan = self._constant(float("nan"), dtype) if operands else ""
        for k, operand in enumerate(operands):
            finite = self._new("IsFinite", f"{name}/finite_{k}", [operand], T=type_of_operands)
            chosen = self._new(
                "SelectV2", f"{name}/chosen_{k}", [f"{finite}:y:0", value, nan], T=dtype
            )
            value = f"{chosen}:output:0"
        return value

    def _cast_to(self, dtype: int, tensor: str, name: str) -> str:
        source = _HALF if dtype == _FLOAT else _FLOAT
        cast = self._new("Cast", name, [tensor], SrcT=source, DstT=dtype)
        self._nodes[-1].attr[LEFT_ALONE].b = True
        return f"{cast}:y:0"

    def _constant(self, value: Any, dtype: int) -> str:
        # By text, as NaN is not equal to itself.
        key = (repr(value), dtype)
        if key not in self._constants:
            name = f"ipu_halves/constant_{len(self._constants)}"
            self._new("Const", name, [], dtype=dtype)
            tensor = tf.make_tensor_proto(value, tf.as_dtype(dtype))
            self._nodes[-1].attr["value"].tensor.CopyFrom(tensor)
            self._constants[key] = f"{name}:output:0"
        return self._constants[key]

    def _new(self, kind: str, name: str, inputs: Sequence[str], **types: int) -> str:
        node = self._new_node(kind, name, inputs)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype
        return name

    def _new_node(self, kind: str, name: str, inputs: Sequence[str]) -> Any:
        node = type(self._definition).FromString(b"").node_def.add()
        node.name, node.op, node.device = name, kind, self._device
        node.input.extend(inputs)
        self._nodes.append(node)
        return node


class _RewritingForExecutor(_Rewriting):
    """Rounds by kernels of our own: TensorFlow would go over each result several times.

    What is rounded stays float32 as long as only float32 of it is needed, and what moves or
    chooses such numbers, for which TensorFlow's kernels take longer with halves.
    """

    _in_xla = False

    def __init__(self, *given: Any):
        super().__init__(*given)
        register_kernels()
        # Halves in float32, by the name of the half.
        self._wide: dict[str, str] = {}
        # Those of which nothing is a half, unless it is asked for, and their devices.
        self._only_wide: dict[str, str] = {}

    def _half_of(self, tensor: str) -> str:
        if tensor in self._only_wide and tensor not in self._instead:
            name = f"{tensor.replace(':', '/')}/half"
            self._device = self._only_wide[tensor]
            self._round("IpuRound", name, self._wide[tensor], _INFINITE)
            self._instead[tensor] = f"{name}:halves:0"
        return super()._half_of(tensor)

    def _note(self, tensor: str, rounded: str) -> None:
        self._wide[tensor] = rounded
        self._only_wide[tensor] = self._device

    def _as_noted(self, found: str, name: str) -> str:
        return found

    def _move(self, node: Any) -> None:
        if is_widening(node):
            wide = self._cast_to(_FLOAT, node.input[0], node.name)
            self._instead[f"{node.name}:y:0"] = wide
            self._drop(node, wide)
        elif self._moves_wide(node):
            self._widen(node, positions_of(node, ["T"]), ["T"])
            tensor = f"{node.name}:{definition_of(node.op).output_arg[0].name}:0"
            self._note(tensor, _AS_IT_IS + tensor)
        else:
            super()._move(node)

    def _moves_wide(self, node: Any) -> bool:
        """Whether halves that a node moves are in float32 already, and what it returns may be."""
        if node.op not in MOVING or "T" not in node.attr or node.attr["T"].type != _HALF:
            return False
        results = definition_of(node.op).output_arg
        is_one = len(results) == 1 and not results[0].number_attr
        return is_one and any(node.input[k] in self._wide for k in positions_of(node, ["T"]))

    def _rounded(
        self, wide: str, name: str, operands: Sequence[str], is_bounded: bool = False
    ) -> str:
        overflow = self._overflow(wide, operands)
        if self._at_random:
            node = self._new_node("IpuRoundRandomly", f"{name}/rounded", [wide, self._key()])
            node.attr["own"].i = own_number(next(self._salts), overflow)
        else:
            self._round("IpuRoundWide", f"{name}/rounded", wide, overflow)
        others = self._looked_at(wide, operands)
        return self._finite(f"{name}/rounded:rounded:0", _FLOAT, others, _FLOAT, f"{name}/kept")

    def _drawn_key(self) -> str:
        self._new_node("IpuRoundingKey", _KEY, []).attr["stream"].i = self._way.stream
        return f"{_KEY}:key:0"

    def _round(self, kind: str, name: str, wide: str, overflow: int) -> None:
        self._new_node(kind, name, [wide]).attr["overflow"].i = overflow

    def _cast_to(self, dtype: int, tensor: str, name: str) -> str:
        assert dtype == _FLOAT
        if tensor not in self._wide:
            self._wide[tensor] = f"{self._new('IpuWiden', f'{name}/wide', [tensor])}:wide:0"
        return self._wide[tensor]
