"""Shows the trace of one replica the others.

A program is traced once, for all of its replicas. Where these exchange values, the trace has a
marker: an operation that neither TensorFlow nor XLA can run. `host.replicas` takes its place when
the host runs all replicas, and `hlo_attributes` tells the cost model what it stands for.
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
from ipu_keras.machine.system import SYSTEM
from ipu_keras.machine.world import ALONE, World
from ipu_keras.tracing.concrete import called_functions

# XLA lowers a custom call of any name and of tensors of any type, and keeps its text. XLA's own
# collectives lack types, and for all-to-all and all-gather TensorFlow has no operation that XLA
# compiles for a CPU.
_MARKER = "XlaCustomCall"
_TARGET = "ipu.collective"
_REPLICA_INDEX = "XlaReplicaId"

# Kinds of operations that only replicas which run together can compute.
EXCHANGES = frozenset({_MARKER, _REPLICA_INDEX})

# An attribute of an identity that promises equal values in all replicas; its value says whether
# an IPU marks the tensor in place, without a copy.
_EQUAL = "_ipu_equal_across_replicas"

# Collection of graphs that have collectives but were traced for one replica, so that using them
# with more is an error, and not a wrong result.
_ALONE = "ipu_collectives_of_one_replica"

# Collection of a function's graph: how many shards scopes have asked for in it.
_SHARDS = "ipu_shards"

Shards = Literal["counted", "shared", "refused"]


@dataclass
class _Replicas:
    """The replicas that a function is traced for.

    Args:
        shards: What shards mean, as for `replicated`.
        world: The processes that have as many each.
        is_known: Whether something in the trace depends on how many replicas there are.
    """

    count: int
    shards: Shards
    world: World
    ipus_each: int = 1
    is_known: bool = False


@dataclass
class Needs:
    """What traces of a function have shown it to need, and only a trace from the start can have.

    Args:
        num_ipus: How many IPUs the replicas need at least that collectives name.
        ipus_each: How many each replica needs for shards behind an exchange of replicas.
        has_norms: Whether batches are normalized, which groups of replicas may do together.
    """

    num_ipus: int = 1
    ipus_each: int = 1
    has_norms: bool = False


_replicas: ContextVar[_Replicas | None] = ContextVar("replicas", default=None)
_needs: ContextVar[Needs | None] = ContextVar("needs", default=None)


@contextlib.contextmanager
def needing(needs: Needs) -> Iterator[None]:
    """While a function is traced, takes `needs`, and adds to them what a trace fails without."""
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
    """Notes that what is being traced is for a multiple of `count` replicas."""
    needs, replicas = _needs.get(), _replicas.get()
    if needs is not None and replicas is not None:
        needs.num_ipus = math.lcm(needs.num_ipus, count * replicas.ipus_each)


def note_norm() -> None:
    """Notes that what is being traced normalizes a batch."""
    needs = _needs.get()
    if needs is not None:
        needs.has_norms = True


@contextlib.contextmanager
def replicated(
    num_replicas: int, *, shards: Shards = "counted", world: World | None = None
) -> Iterator[None]:
    """While a function is traced, says how many replicas will run it together.

    Args:
        shards: `"shared"` if a trace with shards has fewer replicas, on as many IPUs together;
            `"counted"` if `num_replicas` takes shards into account already; `"refused"` if each
            replica has one IPU, so that shards are an error.
        world: The processes that have as many each; `None` for those of the configuration.

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
    world = SYSTEM.joint_world if world is None else world
    token = _replicas.set(_Replicas(num_replicas, shards, world, ipus_each))
    try:
        yield
    finally:
        _replicas.reset(token)


def current_replicas() -> int:
    """Returns how many replicas are being traced for; 1 outside of `replicated`."""
    replicas = _replicas.get()
    if replicas is None:
        return 1
    # From now on the trace depends on the number, so that shards may no longer change it.
    replicas.is_known = True
    return max(1, replicas.count // replicas.ipus_each)


def all_replicas() -> int:
    """Returns how many replicas exchange values in what is traced: those of all processes.

    Outside of `replicated` it is 1, as nothing is known of those that will run it.
    """
    return current_replicas() * _world().size


def _world() -> World:
    replicas = _replicas.get()
    return ALONE if replicas is None else replicas.world


def is_for_all_replicas() -> bool:
    """Whether a user's function is traced, in which each replica says what they exchange."""
    replicas = _replicas.get()
    return replicas is not None and replicas.shards == "shared"


def note_shards(graph: Any, count: int) -> None:
    """Notes in the graph of a function that it has at least `count` shards.

    A `ValueError` says that replicas have one IPU each, or that what was traced before was for
    more replicas than there are with so many shards.
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
    """Returns how many shards scopes ask for in a function and those that it calls; at least 1."""
    pending, seen, most = [graph], set(), 1
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            most = max(most, *one.get_collection(_SHARDS), 1)
            pending += [function.graph for function in called_functions(one).values()]
    return most


def num_shards_so_far() -> int:
    """Returns `num_shards_of` all functions that are being traced."""
    graph, most = tf.compat.v1.get_default_graph(), 1
    while is_trace(graph):
        most = max(most, num_shards_of(graph))
        graph = graph.outer_graph
    return most


def ipus_of_shards(num_shards: int) -> int:
    """Returns how many IPUs a replica has for its shards: systems hand out 1, 2, 4, ..."""
    return 1 << (num_shards - 1).bit_length()


@dataclass(frozen=True)
class ReplicaGroups:
    """Replicas in groups of neighbours, whose `size` divides their number, that exchange values.

    They are those of all processes.

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
        kind: XLA's name: `"all-gather"` (stacks along a new first axis), `"all-reduce"`,
            `"all-to-all"`, or `"reduce-scatter"` (along the first axis).
        operation: XLA's name of the reduction: `"add"`, `"multiply"`, `"minimum"`, `"maximum"`,
            `"and"` or `"or"`; empty if there is none.
        dimensions: The axis along which tensors are put together or taken apart; for an
            all-to-all, the axis to split along and the one to concatenate along.
    """

    kind: str
    groups: ReplicaGroups
    operation: str = ""
    dimensions: tuple[int, ...] = ()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Collective":
        fields = json.loads(text)
        fields["groups"] = ReplicaGroups(**fields["groups"])
        fields["dimensions"] = tuple(fields["dimensions"])
        return cls(**fields)


def mark(
    x: tf.Tensor, collective: Collective, shape: Sequence[int], name: str | None = None
) -> tf.Tensor:
    """Puts a collective, whose result has the given shape, into the graph that is being traced."""
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
    return graph.name in graph.get_collection(_ALONE)


def replica_index(name: str | None = None) -> tf.Tensor:
    """Returns the number of the replica that runs this, among those of all processes, as int32."""
    first = _world().rank * current_replicas()
    if all_replicas() == 1:
        mark_alone()
    if current_replicas() == 1:
        return tf.constant(first, name=name)
    graph = tf.compat.v1.get_default_graph()
    # It is made outside of loops and branches, which get it as any other value; so only
    # outermost graphs have to be searched for it.
    while is_branch_or_loop(graph):
        graph = graph.outer_graph
    with graph.as_default():
        index = replica_id(name)
        # Processes have equal operations, by which they know that they run the same.
        return index + first if _world().size > 1 else index


def has_exchanges(graph: Any) -> bool:
    """Whether a function, or one that it calls, has what only replicas together can compute.

    What nothing needs counts as well: TensorFlow looks for kernels before it leaves that out.
    """
    pending, seen = [graph], set()
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            if any(op.type in EXCHANGES for op in one.get_operations()):
                return True
            pending += [function.graph for function in called_functions(one).values()]
    return False


def collective_of(op: tf.Operation) -> Collective | None:
    """Returns the collective that an operation stands for, or `None`."""
    if op.type != _MARKER or op.get_attr("target_name").decode() != _TARGET:
        return None
    return Collective.from_json(op.get_attr("backend_config").decode())


def collective_of_instruction(instruction: Any) -> Collective | None:
    """Returns the collective that an instruction of XLA stands for, or `None`."""
    if instruction.opcode != "custom-call" or instruction.custom_call_target != _TARGET:
        return None
    return Collective.from_json(instruction.backend_config.decode())


def is_replica_index(op: tf.Operation) -> bool:
    return op.type == _REPLICA_INDEX


def is_assumed_equal(op: tf.Operation) -> bool:
    """Whether an operation is the promise that replicas have equal values."""
    return _EQUAL in op.node_def.attr


def assumed_equal(x: Any, *, inplace: bool) -> tf.Tensor:
    """Returns a tensor whose values are promised to be equal in all replicas.

    An IPU marks the tensor itself if this is `inplace`, and a copy otherwise.
    """
    graph = tf.compat.v1.get_default_graph()
    mark = {_EQUAL: tf.compat.v1.AttrValue(b=inplace)}
    with contextlib.nullcontext() if tf.executing_eagerly() else attribute_scope(graph, mark):
        return tf.identity(x)
