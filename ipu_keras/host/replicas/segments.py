"""Makes the function of all replicas from the trace of one.

The trace is cut into segments at its collectives. Each segment is one function, called once for
each replica; between segments, collectives are computed from the values of all replicas. If XLA
is to compile the segments, the trace is cut at what XLA lacks as well.
"""

import dataclasses
import graphlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from ipu_keras.host.operation_kinds import is_left_by_xla
from ipu_keras.host.replicas.inlining import inlined, leads_to
from ipu_keras.host.replicas.joint_operations import check_control_flow, joint_operation, needs_all
from ipu_keras.host.replicas.replica_values import CONSTANT, Captures, ReplicaValues, Segment
from ipu_keras.host.replicas.together import Together
from ipu_keras.machine.system import SYSTEM
from ipu_keras.tracing.concrete import called_functions
from ipu_keras.tracing.extraction import extract, feeds_of
from ipu_keras.tracing.frontend_attributes import attributed_as
from ipu_keras.tracing.replication import (
    collective_of,
    is_assumed_equal,
    is_marked_alone,
    is_replica_index,
)

# A trace in which the collective B needs what A has exchanged becomes, for two replicas:
#
#     level 0   segment 0 of replica 0, segment 0 of replica 1   then A of both
#     level 1   segment 1 of replica 0, segment 1 of replica 1   then B of both
#     level 2   segment 2 of replica 0, segment 2 of replica 1
#
# The level of an operation is how many collectives come before it, one after the other. What is
# at one level needs no collective of that level, so it can be one function. That is made once,
# whatever the number of replicas, which differ in what it is given and what it captures
# (`ReplicaValues`); so tracing takes as long for 16 replicas as for one.
#
# Whoever changes this has to keep that (1) an operation with an effect is in one segment only,
# (2) segments of one replica run in the order of levels, and (3) a collective runs after the
# segments of its level of all replicas, as it takes the values of all of them.

# Every segment that uses one of these has its own. XLA needs the values of constants, such as
# shapes and axes, while it compiles, and its programs cannot return handles.
_REPEATED = frozenset({CONSTANT, "VarHandleOp"})

# Whether an operation is between segments, done by all replicas together or by each for itself.
_Wanted = Callable[[tf.Operation], bool]


def _share(replica: int) -> Captures:
    return MappingProxyType({})


def replicate(
    concrete: Any,
    num_replicas: int,
    captures_of: Callable[[int], Captures] = _share,
    equal_feeds: Collection[int] = (),
    *,
    parts_for_xla: bool = False,
    labelled: Mapping[str, Together] = MappingProxyType({}),
) -> Callable[[Sequence[Sequence[tf.Tensor]]], list]:
    """Makes the function that all replicas of a traced function are together.

    Args:
        concrete: A `tf.ConcreteFunction`, traced in `replicated(num_replicas)`.
        captures_of: Takes the number of a replica; returns what it has instead of captured
            tensors, such as handles of its own variables, by `ref()` of these. Without it, all
            replicas have the same variables.
        equal_feeds: Positions of the inputs that replicas are promised to have equal.
        parts_for_xla: Whether XLA compiles all but what it lacks, each part for itself.
        labelled: By the label of an operation (`together.label_of`), what does it for
            all replicas.

    Returns:
        A function that takes a list of tensors for each replica, and returns the results of
        each, in the structure of the traced function. It may be called in a graph, for XLA or
        not, and as often as one likes.

    Raises:
        ValueError: The function was traced for another number of replicas, or has a collective
            in a loop or a branch that replicas may not all reach.

    Example:

    >>> from ipu_keras.ops.cross_replica_ops import cross_replica_sum
    >>> from ipu_keras.tracing.replication import replicated
    >>> with replicated(2):
    ...     step = tf.function(cross_replica_sum).get_concrete_function(tf.TensorSpec(()))
    >>> together = tf.function(replicate(step, 2))
    >>> [float(result) for result in together([[1.0], [2.0]])]
    [3.0, 3.0]
    """
    _check_traced_for(concrete, num_replicas)

    def is_wanted(op: tf.Operation) -> bool:
        return needs_all(op) or (parts_for_xla and is_left_by_xla(op))

    def replicate_called(function: Any, equal: Collection[int]) -> Callable:
        return replicate(
            function,
            num_replicas,
            equal_feeds=equal,
            parts_for_xla=parts_for_xla,
            labelled=labelled,
        )

    # `is_equal` follows values within one graph, so promises that they are equal are brought
    # there too.
    flat = inlined(concrete, lambda op: is_wanted(op) or is_assumed_equal(op))
    feeds = feeds_of(flat)
    equal = {feeds[position].op for position in equal_feeds}
    # A single replica never waits for others, whatever branch it takes.
    if num_replicas > 1:
        check_control_flow(flat, equal)
    segments = list(_Split(flat, is_wanted, for_xla=parts_for_xla).segments())
    results = tf.nest.flatten(flat.structured_outputs, expand_composites=True)
    together = {
        op: joint_operation(
            op, equal, num_replicas, replicate_called, for_xla=parts_for_xla, labelled=labelled
        )
        for segment in segments
        for op in segment.together
    }

    def run(inputs: Sequence[Sequence[tf.Tensor]]) -> list:
        name = tf.compat.v1.get_default_graph().unique_name("replicas")
        replicas = [
            ReplicaValues(flat, number, feeds, captures_of(number), name)
            for number, feeds in enumerate(_checked(inputs, num_replicas))
        ]
        for segment in segments:
            for replica in replicas:
                replica.run(segment)
            for op in segment.together:
                with attributed_as(op):
                    together[op](replicas)
        return [
            tf.nest.pack_sequence_as(
                concrete.structured_outputs, replica.look_up(results), expand_composites=True
            )
            for replica in replicas
        ]

    return run


class _Split:
    """Decides which operation of a traced function is in which of its segments.

    What is `wanted`, and branches and loops that lead there, are between segments.
    """

    def __init__(self, concrete: Any, wanted: _Wanted, *, for_xla: bool):
        self._concrete = concrete
        self._for_xla = for_xla
        results = tf.nest.flatten(concrete.structured_outputs, expand_composites=True)
        self._results = [t for t in results if t is not None]
        self._writes = set(concrete.graph.control_outputs)
        self._outside = {tensor.op for tensor in concrete.inputs}
        # Operations that nothing needs are left out. Initial values of variables that a step
        # makes are lifted out of its trace, and leave such operations behind, which could keep
        # XLA from the step.
        needed = _sorted({*(t.op for t in self._results), *self._writes})
        self._together = {
            op: None for op in needed if leads_to(op, wanted) and not is_replica_index(op)
        }
        self._levels = _levels(needed, self._together)
        if for_xla:
            # What crosses from one program of XLA to another has to be written to memory, which
            # is spared if it is computed in the program that takes it.
            self._levels = _as_late_as_possible(needed, self._levels, self._together)
        once = [op for op in needed if op not in self._outside and op.type not in _REPEATED]
        self._names = {op.name for op in once}
        # The number of the replica is no operation of a segment: it is given, as a constant of
        # each replica.
        self._operations = [
            op for op in once if op not in self._together and not is_replica_index(op)
        ]
        self._returned = self._tensors_to_return()

    def segments(self) -> Iterator[Segment]:
        operations = _by_level(self._operations, self._levels)
        # In the order of the graph, as processes have to make their calls in the same order.
        order = {op: place for place, op in enumerate(self._concrete.graph.get_operations())}
        together = _by_level(sorted(self._together, key=order.__getitem__), self._levels)
        returned = _by_level({t.op: None for t in self._returned.values()}, self._levels)
        for level in range(max(self._levels.values(), default=0) + 1):
            part = self._part(operations.get(level, ()), returned.get(level, ()))
            yield dataclasses.replace(part, together=together.get(level, ()))

    def _part(
        self, operations: Sequence[tf.Operation], returned: Sequence[tf.Operation]
    ) -> Segment:
        """Makes the segment of some operations; others take the results of those `returned`."""
        results = [t for op in returned for t in op.outputs if t.ref() in self._returned]
        controls = [op for op in operations if op in self._writes]
        if not results and not controls:
            return Segment(None)
        elsewhere = self._names - {op.name for op in operations}
        taken = {t.ref(): t for op in operations for t in op.inputs}
        given = [t for t in taken.values() if t.op.name in elsewhere]
        part = extract(self._concrete, results, given=given, controls=controls, without=elsewhere)
        before = {before for op in operations for before in op.control_inputs}
        # A function cannot wait for an operation in another one. A segment that had to wait for
        # any operation of an earlier segment waits for all that its replica ran before. A
        # collective has no effect of its own, so what needs it takes its value.
        waits = any(op.name in elsewhere and collective_of(op) is None for op in before)
        return Segment(part, given, results, waits, is_for_xla=self._for_xla)

    def _tensors_to_return(self) -> dict[Any, tf.Tensor]:
        """Returns what segments return: what others, collectives, or the whole function take."""
        ends = [t for op in self._together for t in op.inputs] + self._results
        computed = set(self._operations)
        repeated = _REPEATED - {CONSTANT}  # `ReplicaValues` makes them without a function
        found = [t for t in ends if t.op in computed or t.op.type in repeated]
        found += [
            t
            for op in self._operations
            for t in op.inputs
            if t.op in computed and self._levels[t.op] != self._levels[op]
        ]
        return {t.ref(): t for t in found}


def _sorted(ends: Iterable[tf.Operation]) -> list[tf.Operation]:
    """Returns operations and all that they need, each after what it needs."""
    before: dict[Any, set] = {}
    pending = list(ends)
    while pending:
        op = pending.pop()
        if op not in before:
            before[op] = {*op.control_inputs, *(t.op for t in op.inputs)}
            pending += before[op]
    return list(graphlib.TopologicalSorter(before).static_order())


def _levels(
    operations: Iterable[tf.Operation], together: Collection[tf.Operation]
) -> dict[tf.Operation, int]:
    """Returns for each operation how many of `together` come before it, one after the other."""
    levels: dict[Any, int] = {}
    for op in operations:
        before = itertools.chain(op.control_inputs, (t.op for t in op.inputs))
        levels[op] = max((levels[b] + (b in together) for b in before), default=0)
    return levels


def _as_late_as_possible(
    operations: Sequence[tf.Operation],
    levels: Mapping[tf.Operation, int],
    together: Collection[tf.Operation],
) -> dict[tf.Operation, int]:
    """Moves each operation to the last level at which what needs it is in time."""
    late = dict.fromkeys(operations, max(levels.values(), default=0))
    # What replicas do together keeps its level, which says after which segment it is done.
    late.update((op, levels[op]) for op in together)
    for op in reversed(operations):
        for before in (*op.control_inputs, *(tensor.op for tensor in op.inputs)):
            if before not in together:
                late[before] = min(late[before], late[op])
    return late


def _by_level(
    operations: Iterable[tf.Operation], levels: Mapping[tf.Operation, int]
) -> dict[int, list[tf.Operation]]:
    found: dict[int, list[tf.Operation]] = {}
    for op in operations:
        found.setdefault(levels[op], []).append(op)
    return found


def _check_traced_for(concrete: Any, num_replicas: int) -> None:
    # A `tf.function` that was called in the trace may have been traced before, for other
    # replicas.
    graphs = {concrete.graph.name: concrete.graph}
    pending = [concrete.graph]
    while pending:
        found = {name: f.graph for name, f in called_functions(pending.pop()).items()}
        pending += [graph for name, graph in found.items() if name not in graphs]
        graphs.update(found)
    for name, graph in graphs.items():
        collectives = filter(None, map(collective_of, graph.get_operations()))
        numbers = {collective.groups.num_replicas for collective in collectives}
        # Those of all processes, or without other ones.
        numbers -= {num_replicas, num_replicas * SYSTEM.world.size}
        total = num_replicas * SYSTEM.joint_world.size
        numbers |= {1} - {total} if is_marked_alone(graph) else set()
        if numbers:
            raise ValueError(
                f"The collectives of a function must be traced for the replicas that run it. "
                f"Received: {name!r}, traced for {min(numbers)} of them and "
                f"used with {total}. TensorFlow keeps the trace of a `tf.function`: "
                "take that decorator off the function, or use it with one number of replicas."
            )


def _checked(
    inputs: Sequence[Sequence[tf.Tensor]], num_replicas: int
) -> Sequence[Sequence[tf.Tensor]]:
    if len(inputs) != num_replicas:
        raise ValueError(
            "There must be a list of tensors for each replica. "
            f"Received: {len(inputs)} lists for {num_replicas} replicas"
        )
    return inputs
