"""Parses the names that TensorFlow gives operations back into layers, stages and passes.

XLA's instructions have the name of the operation that they come from, a path of scopes with the
operation at its end. Scopes of layers come first; those that TensorFlow's functions open inside
a layer follow.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from ipu_keras.internals.tensorflow.operations import definition_of
from ipu_keras.ir import Op
from ipu_keras.program import WEIGHT_UPDATE_SCOPE, stage_scope
from ipu_keras.tracing.poplar_operation import is_poplar_operation, poplar_operation_of

# The parts of `while/StatefulPartitionedCall/gradient_tape/pipeline_stage_1/model/dense/MatMul/Sum`
#
#     while/StatefulPartitionedCall   calls around the operation, which `operation_path` drops
#     gradient_tape                   the operation belongs to a gradient
#     pipeline_stage_1                its stage
#     model/dense                     its layer
#     MatMul                          the operation whose gradient it is, where the layer ends
#     Sum                             the operation itself, which is not looked at
#
# A scope that no rule below knows is taken for a layer, since users may call layers anything.

# What calls of a function put in front of the names in it, and what XLA calls the values that
# enter and leave a computation.
_CALL = re.compile(r"(?:Stateful|Stateless)?PartitionedCall(?:_\d+)?")
_XLA_NAMES = frozenset({"", "XLA_Args", "XLA_Retvals"})

_TAPE = "gradient_tape"
# The gradients of loops are made by `tf.gradients`, which opens a scope of this name and
# appends `_grad` to the operation's name. The tape does neither: it opens `gradient_tape`.
_GRADIENTS = re.compile(r"gradients(?:_\d+)?")
_GRADIENT_SUFFIX = "_grad"
# More than one number may follow: the gradient of `Tanh_1` in a loop is in `Tanh_1_0_grad`.
_NUMBER = re.compile(r"(?:_\d+)+$")

# TensorFlow numbers a scope that is entered several times, and each layer enters that of its
# stage.
_STAGE = re.compile(re.escape(stage_scope(0)).replace("0", r"(\d+)") + r"(?:_\d+)*")

# Scopes that are skipped, as layers may stand within them: the cell of a recurrent layer is in
# `rnn/while/cell`.
_CONTROL_FLOW = frozenset({"case", "cond", "switch_case", "while"})

# Scopes that functions of TensorFlow's Python side open. They end the layer. Scopes named after
# a registered operation need no entry. None of these is the default name of a Keras layer, for
# which it would hide the layer: hence no `add` or `softmax` here.
_FUNCTION_SCOPES = frozenset(
    {
        "RaggedFromRowSplits",
        "ReduceLogSumExp",
        "Tensordot",
        "TensorArrayUnstack",
        "TensorArrayV2Read",
        "TensorArrayV2Stack",
        "TensorArrayV2Write",
        "batchnorm",
        "clip_by_global_norm",
        "clip_by_norm",
        "clip_by_value",
        "einsum",
        "embedding_lookup",
        "global_norm",
        "in_top_k",
        "l2_normalize",
        "log_softmax",
        "logistic_loss",
        "moments",
        "ones_like",
        "reduce_std",
        "reduce_variance",
        "sigmoid_cross_entropy_with_logits",
        "softmax_cross_entropy_with_logits",
        "stateless_dropout",
        "strided_slice",
        "truediv",
        "zeros_like",
    }
)


_ANNOTATIONS = ("shard", "partials_dtype", "memory_proportion")


@dataclass(frozen=True)
class LayerPlace:
    """Where in the model an operation belongs.

    Args:
        layer: Path of the layer or name scope; empty if the name has none.
        stage: The pipeline stage whose scope the operation is in, if any.
        poplar_operation: Path to the scope of the operation of Poplar's libraries that it is a
            part of; empty if there is none.
        shard: The IPU that a scope says it is on, if any.
    """

    layer: str = ""
    backward: bool = False
    stage: int | None = None
    weight_update: bool = False
    poplar_operation: str = ""
    shard: int | None = None
    partials_dtype: str = ""
    memory_proportion: float | None = None

    @classmethod
    def of(cls, op: Op) -> "LayerPlace":
        """Returns where an operation belongs, as far as it knows itself."""
        return cls(*_FIELDS_OF(op))

    @property
    def is_known(self) -> bool:
        """Whether the operation's name said anything."""
        return bool(self.layer) or self.stage is not None or self.weight_update

    @property
    def is_annotated(self) -> bool:
        """Whether anything besides the name says more."""
        return any(each is not None and each != "" for each in self.annotations.values())

    @property
    def annotations(self) -> dict[str, Any]:
        """What texts say of the operation itself, and not its name."""
        return {name: getattr(self, name) for name in _ANNOTATIONS}


# As a tuple, for the places of all operations of a trace are looked at several times.
_FIELDS_OF = attrgetter(*(field.name for field in fields(LayerPlace)))


def is_call(scope: str) -> bool:
    """Whether one scope of a name is the call of a function that TensorFlow traced."""
    return _CALL.fullmatch(scope) is not None


def forward_path(path: str) -> str:
    """Returns the name of the operation whose gradient has this name, as far as it tells.

    The gradient's own last part stays. Names are as `operation_path` returns them.

    Example:

    >>> forward_path("gradient_tape/model/dense/MatMul/MatMul_1")
    'model/dense/MatMul/MatMul_1'
    >>> forward_path("gradients/model/Tanh_grad/TanhGrad")
    'model/Tanh/TanhGrad'
    """
    parts = [p for p in path.split("/") if p != _TAPE and not _GRADIENTS.fullmatch(p)]
    return "/".join(_without_repetition([p.removesuffix(_GRADIENT_SUFFIX) for p in parts]))


def operation_path(op_name: str) -> str:
    """Returns the name of an operation without the calls of functions around it.

    It is empty for values that XLA made up itself. Merged operations have several names in
    XLA's metadata, of which the first counts.

    Example:

    >>> operation_path("while/StatefulPartitionedCall/model/dense/MatMul")
    'model/dense/MatMul'
    """
    name = op_name.partition(";")[0]
    if name in _XLA_NAMES:
        return ""
    parts = name.split("/")
    for index in range(len(parts) - 1, -1, -1):
        # A call at the very end is the operation itself. Only what follows the last call is
        # kept: names in a function do not depend on where it is called.
        if is_call(parts[index]) and index + 1 < len(parts):
            return "/".join(parts[index + 1 :])
    return name


class LayerNames:
    """Tells the scopes of layers from those of operations.

    Args:
        operations: Names of all traced operations. The tape opens a scope of the same name for
            the gradient of each.
        functions: Names of the functions that they call. A loop of TensorFlow 1's `Defun`, as
            losses of sequences have, is lowered by XLA with the function's name before the
            names in it.

    Example:

    >>> names = LayerNames({"model/dense/MatMul"})
    >>> place = names.place("gradient_tape/model/dense/MatMul/MatMul_1")
    >>> place.layer, place.backward
    ('model/dense', True)

    Scopes of the parts of a step, and of operations of Poplar's libraries, are no layers:

    >>> place = names.place("gradient_tape/pipeline_stage_1/norm/poplar.GroupNorm/mul")
    >>> place.layer, place.backward, place.stage, place.poplar_operation
    ('norm', True, 1, 'gradient_tape/pipeline_stage_1/norm/poplar.GroupNorm')
    """

    def __init__(self, operations: Collection[str], functions: Collection[str] = ()):
        self._operations = operations
        self._functions = functions
        self._places: dict[str, LayerPlace] = {}
        self._is_kind: dict[str, bool] = {}

    def place(self, path: str) -> LayerPlace:
        """Returns where the operation of a path, as `operation_path` returns it, belongs."""
        if path not in self._places:
            self._places[path] = self._read(path)
        return self._places[path]

    def _read(self, path: str) -> LayerPlace:
        parts = path.split("/")
        forward = [p for p in parts if p != _TAPE and not _GRADIENTS.fullmatch(p)]
        backward = len(forward) < len(parts)
        if backward:
            forward = _without_repetition([p.removesuffix(_GRADIENT_SUFFIX) for p in forward])
        scopes: list[str] = []
        # An operation of the trace is known by its whole path, since a layer may have the name
        # of an operation elsewhere: `model/add` is a layer although `model/dense/add` is an
        # operation.
        for index, scope in enumerate(forward[:-1]):
            if _kind(scope) in _CONTROL_FLOW or scope in self._functions:
                continue
            if is_poplar_operation(scope):
                break
            if self._is_operation(scope) or "/".join(forward[: index + 1]) in self._operations:
                break
            if not _is_part(scope):
                scopes.append(scope)
        return LayerPlace(
            "/".join(scopes),
            backward,
            stage=_stage_of(parts[:-1]),
            weight_update=any(_kind(scope) == WEIGHT_UPDATE_SCOPE for scope in parts[:-1]),
            poplar_operation=poplar_operation_of(path),
        )

    def _is_operation(self, scope: str) -> bool:
        """Whether TensorFlow opens a scope of this name around the parts of an operation."""
        if scope not in self._is_kind:
            kind = _kind(scope)
            # Registered operations begin with a capital letter, and default names of layers
            # with a small one. A layer `Conv1` is none either, as no operation has that name.
            is_registered = kind[:1].isupper() and definition_of(kind) is not None
            self._is_kind[scope] = is_registered or kind in _FUNCTION_SCOPES
        return self._is_kind[scope]


def _kind(scope: str) -> str:
    return _NUMBER.sub("", scope)


def _is_part(scope: str) -> bool:
    """Whether a scope says only which part of a step an operation is in."""
    return _STAGE.fullmatch(scope) is not None or _kind(scope) == WEIGHT_UPDATE_SCOPE


def _stage_of(scopes: Sequence[str]) -> int | None:
    """Returns the stage of the innermost scope that names one."""
    found = [match[1] for match in map(_STAGE.fullmatch, scopes) if match]
    return int(found[-1]) if found else None


def _without_repetition(parts: list[str]) -> list[str]:
    """Drops the first copy of a loop's path where a gradient repeats it."""
    # In `model/rnn/while/model/rnn/while/cell/Tanh` the gradient of a loop, made by
    # `tf.gradients` in a graph of its own, repeats the whole path of the forward loop that it
    # differentiates.
    for index, part in enumerate(parts):
        if _kind(part) in _CONTROL_FLOW:
            if index and parts[index + 1 : 2 * index + 1] == parts[:index]:
                return _without_repetition(parts[index + 1 :])
            return parts
    return parts


def with_inherited_places(ops: Sequence[Op], unnamed: Collection[str]) -> tuple[Op, ...]:
    """Gives operations without a name the layer that their neighbours agree on.

    XLA makes such operations for conversions, broadcasts and the like. Operands are asked
    first, then users. A parameter belongs to its first user, which is the layer for its weights
    and the optimizer for its own state. Operations come after those whose results they take.
    """
    own = ((op.name, LayerPlace.of(op)) for op in ops)
    places = {name: place for name, place in own if place.is_known}
    waiting = [op for op in ops if op.name in unnamed and op.name not in places]
    # Forwards for operands and backwards for users, so that a chain of unnamed operations is
    # settled in one pass from either end.
    for op in waiting:
        if op.kind != "parameter":
            _settle(places, op, [operation_of_reference(value) for value in op.inputs])
    users: dict[str, list[str]] = {op.name: [] for op in waiting}
    for op in ops:
        for producer in map(operation_of_reference, op.inputs):
            if producer in users:
                users[producer].append(op.name)
    for op in reversed(waiting):
        if op.kind == "parameter":
            found = [places[user] for user in users[op.name] if user in places]
            backward = all(place.backward for place in found)
            # A weight is in memory for all that uses it, so what holds of one operation alone
            # is not taken over.
            place = replace(
                found[0] if found else LayerPlace(),
                backward=backward and bool(found),
                poplar_operation="",
                partials_dtype="",
                memory_proportion=None,
            )
            places.setdefault(op.name, place)
        elif op.name not in places:
            _settle(places, op, users[op.name])
    return tuple(_placed(op, places) for op in ops)


def with_place_of_caller(ops: Sequence[Op], caller: Op) -> tuple[Op, ...]:
    """Gives operations the layer, stage and shard of their graph's caller where they have none."""
    places = {}
    for op in ops:
        layer, backward = (op.layer, op.backward) if op.layer else (caller.layer, caller.backward)
        places[op.name] = replace(
            LayerPlace.of(op),
            layer=layer,
            backward=backward,
            stage=caller.stage if op.stage is None else op.stage,
            weight_update=caller.weight_update or op.weight_update,
            shard=caller.shard if op.shard is None else op.shard,
            partials_dtype=op.partials_dtype or caller.partials_dtype,
            memory_proportion=(
                caller.memory_proportion if op.memory_proportion is None else op.memory_proportion
            ),
        )
    return tuple(_placed(op, places) for op in ops)


def operation_of_reference(value: str) -> str:
    """Returns the name of the operation that makes a value.

    Example:

    >>> operation_of_reference("model/while:3")
    'model/while'
    """
    return value.partition(":")[0]


def _settle(places: dict[str, LayerPlace], op: Op, neighbours: Sequence[str]) -> None:
    found = [places[name] for name in neighbours if name in places]
    if len({place.layer for place in found}) == 1:
        stages = {place.stage for place in found}
        places[op.name] = LayerPlace(
            found[0].layer,
            # A value that the forward pass needs too is a part of it.
            all(place.backward for place in found),
            stage=found[0].stage if len(stages) == 1 else None,
            weight_update=all(place.weight_update for place in found),
        )


def _placed(op: Op, places: Mapping[str, LayerPlace]) -> Op:
    place = places.get(op.name)
    if place is None:
        return op
    own = LayerPlace.of(op)
    if own.is_annotated:
        # Neighbours cannot overrule what texts say of the operation itself.
        place = replace(place, **own.annotations)
    return op if place == own else replace(op, **vars(place))
