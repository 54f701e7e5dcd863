"""Replicas of a program, as the trace of one of them sees the others.

A program is traced once, for all of its replicas. Where these exchange values, the trace has
a marker: an operation that neither TensorFlow nor XLA can run. `segments` takes its place
when the host runs all replicas, and `hlo_attributes` tells the cost model what it stands for.
"""

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import attribute_scope, is_branch_or_loop, is_trace
from ipu_keras.internals.tensorflow.xla import custom_call, replica_id
from ipu_keras.tracing.concrete import called_functions

# XLA lowers a custom call of any name, of tensors of any type, and keeps its text; its own
# collectives lack types, and all-to-all and all-gather have no operation in TensorFlow that
# XLA compiles for a CPU.
_MARKER = "XlaCustomCall"
_TARGET = "ipu.collective"
_REPLICA_INDEX = "XlaReplicaId"

# What only replicas that run together can compute.
EXCHANGES = frozenset({_MARKER, _REPLICA_INDEX})

# Of an identity: whether an IPU makes no copy to say that replicas have the same value.
_EQUAL = "_ipu_equal_across_replicas"

# The graphs that were traced for one replica though they have collectives say so.
_ALONE = "ipu_collectives_of_one_replica"

# In the graphs of functions: how many shards scopes have asked for there.
_SHARDS = "ipu_shards"

Shards = Literal["counted", "shared", "refused"]


@dataclass
class _Replicas:
    """Those that a function is traced for.

    Args:
        count: How many there are.
        shards: As of `replicated`.
        ipus_each: How many each needs.
        is_known: Whether something in the trace depends on how many there are.
    """

    count: int
    shards: Shards
    ipus_each: int = 1
    is_known: bool = False


@dataclass
class Needs:
    """What traces of a function have shown it to need, and only a trace from the start can have.

    Args:
        num_ipus: At least, for the replicas that its collectives name.
        ipus_each: Of each replica, for shards that come after replicas have exchanged values.
    """

    num_ipus: int = 1
    ipus_each: int = 1


_replicas: ContextVar[_Replicas | None] = ContextVar("replicas", default=None)
_needs: ContextVar[Needs | None] = ContextVar("needs", default=None)


@contextlib.contextmanager
def needing(needs: Needs) -> Iterator[None]:
    """While a function is traced, notes in `needs` what it needs, and takes what is there already.

    Args:
        needs: It changes where the trace fails as it was made for less.
    """
    token = _needs.set(needs)
    try:
        yield
    finally:
        _needs.reset(token)


def needed_ipus() -> int:
    """How many IPUs a device would have that is not configured, for what is being traced."""
    needs = _needs.get()
    return 1 if needs is None else needs.num_ipus


def need_replicas(count: int) -> None:
    """Notes that what is being traced is for a multiple of some replicas.

    Args:
        count: How many.
    """
    needs, replicas = _needs.get(), _replicas.get()
    if needs is not None and replicas is not None:
        needs.num_ipus = math.lcm(needs.num_ipus, count * replicas.ipus_each)


@contextlib.contextmanager
def replicated(num_replicas: int, *, shards: Shards = "counted") -> Iterator[None]:
    """While a function is traced, says how many replicas will run it together.

    Args:
        num_replicas: Copies of the program, each on data of its own.
        shards: Of a trace with shards there are fewer, with as many IPUs together, if that is
            `"shared"`; `num_replicas` of them if that has been `"counted"` already. With
            `"refused"`, each replica has one IPU, and shards are an error.

    Raises:
        ValueError: `num_replicas` is not a positive integer.

    Example:

    >>> with replicated(4):
    ...     current_replicas()
    4
    >>> current_replicas()
    1
    """
    if not isinstance(num_replicas, int) or num_replicas < 1:
        raise ValueError(
            f"`num_replicas` must be a positive integer. Received: num_replicas={num_replicas!r}"
        )
    needs = _needs.get()
    ipus_each = 1 if needs is None or shards != "shared" else needs.ipus_each
    token = _replicas.set(_Replicas(num_replicas, shards, ipus_each))
    try:
        yield
    finally:
        _replicas.reset(token)


def current_replicas() -> int:
    """How many replicas the function that is being traced is for; 1 outside of `replicated`."""
    replicas = _replicas.get()
    if replicas is None:
        return 1
    replicas.is_known = True
    return max(1, replicas.count // replicas.ipus_each)


def note_shards(graph: Any, count: int) -> None:
    """Notes in the graph of a function that it has shards.

    Args:
        graph: That is being traced.
        count: How many there are at least.

    Raises:
        ValueError: Replicas have one IPU each, or what was traced before was for more replicas
            than there are then.
    """
    replicas, ipus_each = _replicas.get(), ipus_of_shards(count)
    if replicas is not None and replicas.shards != "counted" and ipus_each > replicas.ipus_each:
        _check_shards(replicas, count)
        replicas.ipus_each = ipus_each
    shards = graph.get_collection_ref(_SHARDS)
    shards[:] = [max(count, *shards, 1)]


def _check_shards(replicas: _Replicas, count: int) -> None:
    if replicas.shards == "refused":
        raise ValueError(
            "Replicas of a Keras model have one IPU each, and the stages of a pipeline are on the "
            "IPUs of `device_mapping`. Leave out `ipu_shard`: give the model pipeline stages, or "
            "train it in a function for `strategy.run` or `ipu_compiler.compile`. Received: "
            f"`ipu_shard({count - 1})`"
        )
    if replicas.is_known and replicas.count > 1:
        needs = _needs.get()
        if needs is not None:
            needs.ipus_each = max(needs.ipus_each, ipus_of_shards(count))
        raise ValueError(
            "Replicas with shards are fewer than those of one IPU each, so how many IPUs a replica "
            "has must be known before its replicas exchange values or send results: enter "
            f"`ipu_shard({count - 1})` before that, also for the stages of a pipeline. Received: "
            f"`ipu_shard({count - 1})`, or stages on as many IPUs, after what was traced for "
            f"{replicas.count // replicas.ipus_each} replicas"
        )


def num_shards_of(graph: Any) -> int:
    """How many shards scopes ask for in a function, and in those that it calls: at least 1.

    Args:
        graph: Of the function.
    """
    pending, seen, most = [graph], set(), 1
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            most = max(most, *one.get_collection(_SHARDS), 1)
            pending += [function.graph for function in called_functions(one).values()]
    return most


def num_shards_so_far() -> int:
    """As `num_shards_of`, of the functions that are being traced."""
    graph, most = tf.compat.v1.get_default_graph(), 1
    while is_trace(graph):
        most = max(most, num_shards_of(graph))
        graph = graph.outer_graph
    return most


def ipus_of_shards(num_shards: int) -> int:
    """How many IPUs a replica has for its shards: systems hand out 1, 2, 4, ...

    Args:
        num_shards: How many there are.
    """
    return 1 << (num_shards - 1).bit_length()


@dataclass(frozen=True)
class ReplicaGroups:
    """Replicas in groups of neighbours, which exchange values among themselves.

    Args:
        num_replicas: How many there are in all groups.
        size: How many are in a group. It divides their number.

    Example:

    >>> list(ReplicaGroups(4, 2))
    [range(0, 2), range(2, 4)]
    """

    num_replicas: int
    size: int

    def __iter__(self) -> Iterator[range]:
        starts = range(0, self.num_replicas, self.size)
        return iter(range(start, start + self.size) for start in starts)


@dataclass(frozen=True)
class Collective:
    """What replicas do together with a tensor that each of them has.

    Args:
        kind: XLA's name of it: `"all-gather"` (stacks along a new first axis), `"all-reduce"`,
            `"all-to-all"`, or `"reduce-scatter"` (along the first axis).
        groups: Which replicas exchange values with each other.
        operation: XLA's name of how they reduce: `"add"`, `"multiply"`, `"minimum"`,
            `"maximum"`, `"and"` or `"or"`; empty if they do not.
        dimensions: The axis along which tensors are put together or taken apart; of an
            all-to-all, the one to split along and the one to concatenate along.
    """

    kind: str
    groups: ReplicaGroups
    operation: str = ""
    dimensions: tuple[int, ...] = ()

    def to_json(self) -> str:
        """The text that a marker carries."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Collective":
        """The collective of a marker's text."""
        fields = json.loads(text)
        fields["groups"] = ReplicaGroups(**fields["groups"])
        fields["dimensions"] = tuple(fields["dimensions"])
        return cls(**fields)


def mark(
    x: tf.Tensor, collective: Collective, shape: Sequence[int], name: str | None = None
) -> tf.Tensor:
    """Puts a collective into the graph that is being traced.

    Args:
        x: What each replica has.
        collective: What they do with it.
        shape: Of the result.
        name: Of the operation.

    Raises:
        ValueError: No graph is being traced, or the shape of `x` is not fully known.
    """
    if tf.executing_eagerly():
        raise ValueError(
            "Replicas exchange values only in a program, which is traced for all of them. Move "
            f"the operation into the function that they run. Received: {name or collective.kind} "
            f"in eager mode, for {collective.groups.num_replicas} replicas"
        )
    return custom_call([x], _TARGET, collective.to_json(), shape=shape, dtype=x.dtype, name=name)


def mark_alone() -> None:
    """Notes in the graph that is being traced that its collectives are those of one replica."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    # The graph of a session is no trace, and has no name.
    if graph is not None and is_trace(graph):
        graph.add_to_collection(_ALONE, graph.name)


def is_marked_alone(graph: Any) -> bool:
    """Whether a graph has collectives and was traced for one replica."""
    return graph.name in graph.get_collection(_ALONE)


def replica_index(name: str | None = None) -> tf.Tensor:
    """Which replica runs the operation: a scalar of type int32."""
    if current_replicas() == 1:
        mark_alone()
        return tf.constant(0, name=name)
    graph = tf.compat.v1.get_default_graph()
    # Outside of loops and branches, which then get it as any other value.
    while is_branch_or_loop(graph):
        graph = graph.outer_graph
    with graph.as_default():
        return replica_id(name)


def collective_of(op: tf.Operation) -> Collective | None:
    """The collective that an operation stands for; `None` if it is none."""
    if op.type != _MARKER or op.get_attr("target_name").decode() != _TARGET:
        return None
    return Collective.from_json(op.get_attr("backend_config").decode())


def collective_of_instruction(instruction: Any) -> Collective | None:
    """The collective that an instruction of XLA stands for; `None` if it is none."""
    if instruction.opcode != "custom-call" or instruction.custom_call_target != _TARGET:
        return None
    return Collective.from_json(instruction.backend_config.decode())


def is_replica_index(op: tf.Operation) -> bool:
    """Whether an operation is the number of the replica."""
    return op.type == _REPLICA_INDEX


def is_assumed_equal(op: tf.Operation) -> bool:
    """Whether an operation is the promise that replicas have equal values."""
    return _EQUAL in op.node_def.attr


def assumed_equal(x: Any, *, inplace: bool) -> tf.Tensor:
    """A tensor of which replicas are promised to have equal values.

    Args:
        x: The tensor.
        inplace: Whether it is marked itself, or a copy.
    """
    graph = tf.compat.v1.get_default_graph()
    mark = {_EQUAL: tf.compat.v1.AttrValue(b=inplace)}
    with contextlib.nullcontext() if tf.executing_eagerly() else attribute_scope(graph, mark):
        return tf.identity(x)
