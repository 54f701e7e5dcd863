"""Makes the function of all replicas from the trace of one.

The trace is split at its collectives: what comes before all of them, what needs the first,
and so on. Each of these segments is one function, called once for each replica; between
them, the collectives are computed from the values of all replicas.
"""

import dataclasses
import functools
import graphlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

import tensorflow as tf

from ipu_keras.host.inlining import inlined, leads_to
from ipu_keras.internals.tensorflow.functions import call_with_captures, read_only_inputs
from ipu_keras.internals.tensorflow.variables import contents_of
from ipu_keras.tracing.concrete import called_functions
from ipu_keras.tracing.extraction import Part, extract, feeds_of
from ipu_keras.tracing.replication import (
    Collective,
    collective_of,
    is_assumed_equal,
    is_marked_alone,
    is_replica_index,
)

# By reference of a captured tensor, another one to take instead.
Captures = Mapping[Any, tf.Tensor]

# Part of every segment that uses them.
_REPEATED = frozenset({"Const", "VarHandleOp"})

_BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})

_REDUCTIONS: Mapping[str, Callable[[Sequence[tf.Tensor]], tf.Tensor]] = {
    "add": tf.add_n,
    "and": functools.partial(functools.reduce, tf.logical_and),
    "maximum": functools.partial(functools.reduce, tf.maximum),
    "minimum": functools.partial(functools.reduce, tf.minimum),
    "multiply": functools.partial(functools.reduce, tf.multiply),
    "or": functools.partial(functools.reduce, tf.logical_or),
}


def _share(replica: int) -> Captures:
    return MappingProxyType({})


def replicate(
    concrete: Any,
    num_replicas: int,
    captures_of: Callable[[int], Captures] = _share,
    equal_feeds: Collection[int] = (),
) -> Callable[[Sequence[Sequence[tf.Tensor]]], list]:
    """Makes the function that all replicas of a traced function are together.

    Args:
        concrete: A `tf.ConcreteFunction`, traced in `replicated(num_replicas)`.
        num_replicas: How many replicas there are.
        captures_of: Takes the number of a replica; returns what it has of its own instead of
            captured tensors, such as the handles of variables, by `ref()` of these. Without
            it, all replicas have the same variables.
        equal_feeds: Which of the inputs, by position, replicas are promised to have equal.

    Returns:
        A function that takes a list of tensors for each replica, and returns the results of
        each, in the structure of the traced function. It may be called in a graph, for XLA
        or not, and as often as one likes.

    Raises:
        ValueError: The function was traced for another number of replicas, or has a
            collective in a loop, or in a branch whose condition is not promised to be equal.

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
    flat = inlined(concrete, lambda op: _needs_all(op) or is_assumed_equal(op))
    feeds = feeds_of(flat)
    equal = {feeds[position].op for position in equal_feeds}
    _check_control_flow(flat, equal)
    split = _Split(flat)
    segments = list(split.segments())
    results = tf.nest.flatten(flat.structured_outputs, expand_composites=True)
    branches = {
        op: _branches(op, num_replicas, equal)
        for segment in segments
        for op in segment.together
        if op.type in _BRANCHES
    }

    def run(inputs: Sequence[Sequence[tf.Tensor]]) -> list:
        replicas = [
            _Replica(flat, number, feeds, captures_of(number))
            for number, feeds in enumerate(_checked(inputs, num_replicas))
        ]
        for segment in segments:
            for replica in replicas:
                replica.run(segment)
            for op in segment.together:
                if op in branches:
                    _branch(op, branches[op], replicas)
                else:
                    _exchange(op, replicas)
        return [
            tf.nest.pack_sequence_as(
                concrete.structured_outputs, replica.look_up(results), expand_composites=True
            )
            for replica in replicas
        ]

    return run


def written_captures(concrete: Any) -> list[tf.Tensor]:
    """The handles of variables outside of a traced function that it writes.

    Args:
        concrete: A `tf.ConcreteFunction`.

    Returns:
        The captured handles, in the order of the captures.

    Example:

    >>> count, weights = tf.Variable(0.0), tf.Variable(1.0)
    >>> step = tf.function(lambda: count.assign_add(weights)).get_concrete_function()
    >>> [handle is count.handle for handle in written_captures(step)]
    [True]
    """
    read_only = set(read_only_inputs(concrete.graph))
    num_feeds = len(feeds_of(concrete))
    return [
        outer
        for index, (outer, _) in enumerate(concrete.graph.captures, start=num_feeds)
        if index not in read_only and _is_variable(outer)
    ]


def _is_variable(handle: tf.Tensor) -> bool:
    return handle.dtype == tf.resource and contents_of(handle) is not None


@dataclass(frozen=True)
class _Segment:
    """Operations that a replica runs without hearing from the others.

    Args:
        part: Computes them; `None` if there are none.
        given: What the part takes of other segments' results.
        results: What it returns.
        waits: Whether it must run after what the replica ran before.
        together: What all replicas do as one then: markers of collectives, and branches with
            collectives in them.
    """

    part: Part | None
    given: Sequence[tf.Tensor] = ()
    results: Sequence[tf.Tensor] = ()
    waits: bool = False
    together: Sequence[tf.Operation] = ()


class _Split:
    """Which operation of a traced function is in which of its segments.

    Args:
        concrete: A `tf.ConcreteFunction`.
    """

    def __init__(self, concrete: Any):
        self._concrete = concrete
        results = tf.nest.flatten(concrete.structured_outputs, expand_composites=True)
        self._results = [t for t in results if t is not None]
        self._writes = set(concrete.graph.control_outputs)
        self._outside = {tensor.op for tensor in concrete.inputs}
        needed = _sorted({*(t.op for t in self._results), *self._writes})
        self._together = {op: None for op in needed if _is_together(op)}
        self._levels = _levels(needed, self._together)
        once = [op for op in needed if op not in self._outside and op.type not in _REPEATED]
        self._names = {op.name for op in once}
        self._operations = [
            op for op in once if op not in self._together and not is_replica_index(op)
        ]
        self._returned = self._tensors_to_return()

    def segments(self) -> Iterator[_Segment]:
        """The segments in the order in which they run."""
        operations = _by_level(self._operations, self._levels)
        together = _by_level(self._together, self._levels)
        returned = _by_level({t.op: None for t in self._returned.values()}, self._levels)
        for level in range(max(self._levels.values(), default=0) + 1):
            part = self._part(operations.get(level, ()), returned.get(level, ()))
            yield dataclasses.replace(part, together=together.get(level, ()))

    def _part(
        self, operations: Sequence[tf.Operation], returned: Sequence[tf.Operation]
    ) -> _Segment:
        """The segment of some operations, some of which others need, without collectives."""
        results = [t for op in returned for t in op.outputs if t.ref() in self._returned]
        controls = [op for op in operations if op in self._writes]
        if not results and not controls:
            return _Segment(None)
        elsewhere = self._names - {op.name for op in operations}
        taken = {t.ref(): t for op in operations for t in op.inputs}
        given = [t for t in taken.values() if t.op.name in elsewhere]
        part = extract(self._concrete, results, given=given, controls=controls, without=elsewhere)
        before = {before for op in operations for before in op.control_inputs}
        waits = any(op.name in elsewhere and op not in self._together for op in before)
        return _Segment(part, given, results, waits)

    def _tensors_to_return(self) -> dict[Any, tf.Tensor]:
        """What a segment returns: what the others, the collectives, or all replicas return."""
        ends = [t for op in self._together for t in op.inputs] + self._results
        computed = set(self._operations)
        found = [t for t in ends if t.op in computed or t.op.type in _REPEATED]
        found += [
            t
            for op in self._operations
            for t in op.inputs
            if t.op in computed and self._levels[t.op] != self._levels[op]
        ]
        return {t.ref(): t for t in found}


class _Replica:
    """The values of one replica while all of them run.

    Args:
        concrete: The traced function.
        number: Which replica it is.
        feeds: What it is given.
        captures: What it has of its own instead of captured tensors.
    """

    def __init__(self, concrete: Any, number: int, feeds: Sequence[tf.Tensor], captures: Captures):
        placeholders = feeds_of(concrete)
        self._feeds = [
            tf.convert_to_tensor(feed, placeholder.dtype)
            for feed, placeholder in zip(feeds, placeholders, strict=True)
        ]
        self._captures = captures
        self._ran: list[tf.Operation] = []
        pairs = [(inner, self._own(outer)) for outer, inner in concrete.graph.captures]
        pairs += zip(placeholders, self._feeds, strict=True)
        index = tf.constant(number)
        indices = filter(is_replica_index, concrete.graph.get_operations())
        pairs += [(op.outputs[0], index) for op in indices]
        self._values = {inside.ref(): value for inside, value in pairs}

    def run(self, segment: _Segment) -> None:
        """Computes the replica's values of a segment."""
        if segment.part is None:
            return
        function = segment.part.function
        taken = [self._feeds[index] for index in segment.part.inputs]
        taken += self.look_up(segment.given)
        captured = [self._own(outer) for outer in function.captured_inputs]
        with tf.control_dependencies(self._ran if segment.waits else []):
            # The same trace serves all replicas; calling it as usual would take the captures
            # that it was traced with.
            results = call_with_captures(function, taken, captured)
        self._note_call(results, segment.waits)
        self._values.update((t.ref(), r) for t, r in zip(segment.results, results, strict=True))

    def _note_call(self, results: Sequence[tf.Tensor], waited: bool) -> None:
        """Remembers the call that was just made for those that have to wait for it."""
        if tf.executing_eagerly():
            return
        call = results[0].op if results else tf.compat.v1.get_default_graph().get_operations()[-1]
        # Whoever waits for this call waits for those that it waited for.
        self._ran = [call] if waited else [*self._ran, call]

    @property
    def ran(self) -> Sequence[tf.Operation]:
        """What others have to wait for, if they wait for all that ran before."""
        return self._ran

    def note_call(self, result: tf.Tensor) -> None:
        """Remembers that a call with this result was made, which waited for all before it."""
        if not tf.executing_eagerly():
            self._ran = [*self._ran, result.op]

    def look_up(self, tensors: Iterable[tf.Tensor]) -> list:
        """The replica's values of tensors of the trace."""
        return [None if t is None else self._values[t.ref()] for t in tensors]

    def set_value(self, tensor: tf.Tensor, value: tf.Tensor) -> None:
        """Notes what a tensor of the trace is to the replica."""
        self._values[tensor.ref()] = value

    def _own(self, captured: tf.Tensor) -> tf.Tensor:
        return self._captures.get(captured.ref(), captured)


def _exchange(op: tf.Operation, replicas: Sequence[_Replica]) -> None:
    """Computes a collective from the values of all replicas."""
    collective = collective_of(op)
    assert collective is not None
    for group in collective.groups:
        members = [replicas[number] for number in group]
        values = [value for replica in members for value in replica.look_up(op.inputs)]
        with tf.name_scope(op.name.rpartition("/")[2]):
            results = _results_of(collective, values)
        for replica, result in zip(members, results, strict=True):
            replica.set_value(op.outputs[0], result)


def _branches(
    op: tf.Operation, num_replicas: int, equal: Collection[tf.Operation]
) -> list[Callable]:
    """What all replicas do together in the branches of an operation."""
    functions = called_functions(op.graph)
    attributes = op.node_def.attr
    called = attributes["branches"].list.func or (
        attributes["then_branch"].func,
        attributes["else_branch"].func,
    )
    given = [k for k, tensor in enumerate(op.inputs[1:]) if _is_equal(tensor, equal)]
    return [
        replicate(_function_of(functions[f.name].graph), num_replicas, equal_feeds=given)
        for f in called
    ]


def _function_of(graph: Any) -> Any:
    """The function of a branch's graph, which has captures alone, with inputs instead."""
    branch = SimpleNamespace(graph=graph, inputs=graph.inputs)
    outputs = list(graph.outputs)
    return extract(branch, outputs, given=graph.inputs, controls=graph.control_outputs).function


def _branch(op: tf.Operation, branches: Sequence[Callable], replicas: Sequence[_Replica]) -> None:
    """Takes the branch that all replicas take, as they were promised to."""
    given = [replica.look_up(op.inputs) for replica in replicas]
    before = {call for replica in replicas for call in replica.ran} if op.control_inputs else ()

    def take(branch: Callable) -> Callable:
        def taken():
            results = branch([values[1:] for values in given])
            # Of a branch for its effects alone there would be nothing to wait for.
            return [*itertools.chain(*results), tf.constant(0)]

        return taken

    with tf.control_dependencies(before), tf.name_scope(op.name.rpartition("/")[2]):
        choice, functions = given[0][0], [take(branch) for branch in branches]
        if op.type in ("Case", "StatelessCase"):
            *results, done = tf.switch_case(choice, functions)
        else:
            *results, done = tf.cond(choice, *functions)
    for replica in replicas:
        own, results = results[: len(op.outputs)], results[len(op.outputs) :]
        for tensor, value in zip(op.outputs, own, strict=True):
            replica.set_value(tensor, value)
        replica.note_call(done)


def _results_of(collective: Collective, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """What each member of a group gets."""
    if collective.kind == "all-to-all":
        split, concat = collective.dimensions
        blocks = [tf.split(value, len(values), axis=split) for value in values]
        return [tf.concat(received, axis=concat) for received in zip(*blocks, strict=True)]
    if collective.kind == "all-gather":
        return [tf.stack(values)] * len(values)
    reduced = _REDUCTIONS[collective.operation](values)
    if collective.kind == "reduce-scatter":
        return tf.split(reduced, len(values))
    return [reduced] * len(values)


def _sorted(ends: Iterable[tf.Operation]) -> list[tf.Operation]:
    """Operations and all that they need, each after what it needs."""
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
    """How often replicas do something together, one after the other, before each operation.

    Args:
        operations: Each after what it needs.
        together: Which of them replicas do together.
    """
    levels: dict[Any, int] = {}
    for op in operations:
        before = itertools.chain(op.control_inputs, (t.op for t in op.inputs))
        levels[op] = max((levels[b] + (b in together) for b in before), default=0)
    return levels


def _by_level(
    operations: Iterable[tf.Operation], levels: Mapping[tf.Operation, int]
) -> dict[int, list[tf.Operation]]:
    found: dict[int, list[tf.Operation]] = {}
    for op in operations:
        found.setdefault(levels[op], []).append(op)
    return found


def _needs_all(op: tf.Operation) -> bool:
    """Whether an operation is not the same in every replica, or needs the other ones."""
    return collective_of(op) is not None or is_replica_index(op)


def _is_together(op: tf.Operation) -> bool:
    """Whether all replicas do an operation as one."""
    is_branch = op.type in _BRANCHES and leads_to(op, _needs_all)
    return is_branch or collective_of(op) is not None


def _is_equal(tensor: tf.Tensor, equal: Collection[tf.Operation]) -> bool:
    """Whether a tensor is computed of nothing but what replicas are promised to have equal.

    Args:
        tensor: The tensor.
        equal: Inputs of which that is known.
    """
    pending, seen = [tensor.op], set()
    while pending:
        op = pending.pop()
        if op in seen or op in equal or is_assumed_equal(op) or op.type == "Const":
            continue
        if not op.inputs or op.op_def.is_stateful:
            return False
        seen.add(op)
        pending += [given.op for given in op.inputs]
    return True


def _check_traced_for(concrete: Any, num_replicas: int) -> None:
    graphs = {concrete.graph.name: concrete.graph}
    pending = [concrete.graph]
    while pending:
        found = {name: f.graph for name, f in called_functions(pending.pop()).items()}
        pending += [graph for name, graph in found.items() if name not in graphs]
        graphs.update(found)
    for name, graph in graphs.items():
        collectives = filter(None, map(collective_of, graph.get_operations()))
        numbers = {collective.groups.num_replicas for collective in collectives}
        numbers |= {1} if is_marked_alone(graph) else set()
        if numbers - {num_replicas}:
            raise ValueError(
                f"The collectives of a function must be traced for the replicas that run it. "
                f"Received: {name!r}, traced for {min(numbers - {num_replicas})} of them and "
                f"used with {num_replicas}. TensorFlow keeps the trace of a `tf.function`: "
                "take that decorator off the function, or use it with one number of replicas."
            )


def _check_control_flow(concrete: Any, equal: Collection[tf.Operation]) -> None:
    for op in concrete.graph.get_operations():
        if _needs_all(op) or not leads_to(op, _needs_all):
            continue
        if op.type not in _BRANCHES or not _is_equal(op.inputs[0], equal):
            raise ValueError(
                "A collective in a loop or a branch hangs an IPU when not all replicas reach it, "
                f"and must be outside of it. Received: one in {op.name!r}, of type {op.type}. "
                "Exchange the values before it or after it, or unroll the loop; of a `tf.cond`, "
                "promise that its condition is equal in all replicas, with "
                "`assume_equal_across_replicas`."
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
