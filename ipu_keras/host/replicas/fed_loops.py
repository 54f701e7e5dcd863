"""Runs loops of a known length that read datasets as one program of XLA.

All elements are read before the loop, so that within it they only have to be indexed.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from ipu_keras.host.operation_kinds import is_left_by_xla
from ipu_keras.host.replicas.inlining import inlined, leads_to
from ipu_keras.host.replicas.replica_values import ReplicaValues
from ipu_keras.internals.tensorflow.functions import call_with_captures
from ipu_keras.tracing.extraction import extract, feeds_of

# At most so many bytes of elements are read before a loop; `loops.repeat` reads as many at a
# time.
_MAX_BYTES = 1 << 26

# Turns are counted by running the loop without its body, and a loop may have no end but that of
# a dataset.
_MAX_TURNS = 100_000

_NO_NUMBERS = frozenset({tf.resource, tf.string, tf.variant})

_READING = "IteratorGetNext"


class FedLoop:
    """A loop that one replica runs, after all that it reads has been read.

    Its body takes all that the loop hands on, and returns what is `varying`, at these
    positions. The operations `reads` of the body read datasets.
    """

    def __init__(
        self,
        op: tf.Operation,
        body: Any,
        varying: Sequence[int],
        reads: Sequence[tf.Operation],
        count: int,
    ):
        self._op = op
        self._varying = varying
        self._reads = reads
        self._count = count
        handed_on = feeds_of(body)
        places = {tensor.ref(): k for k, tensor in enumerate(handed_on)}
        self._handles = [places[read.inputs[0].ref()] for read in reads]
        # XLA ends the process if it is given the handle of something else than a variable.
        others = [one for one in body.graph.get_operations() if one not in reads]
        used = {tensor.ref() for one in others for tensor in one.inputs}
        self._taken = [k for k, tensor in enumerate(handed_on) if tensor.ref() in used]
        elements = [tensor for read in reads for tensor in read.outputs]
        self._body = extract(
            body,
            list(body.structured_outputs),
            given=[*(handed_on[k] for k in self._taken), *elements],
            controls=[one for one in body.graph.control_outputs if one not in reads],
            without={read.name for read in reads},
        ).function

    @classmethod
    def of(
        cls, op: tf.Operation, condition: Any, body: Any, varying: Sequence[int]
    ) -> "FedLoop | None":
        """Returns the loop as a `FedLoop` if XLA lacks only the reading in it, else None."""
        if any(_is_left(inner) for inner in condition.graph.get_operations()):
            return None
        body = inlined(body, is_left_by_xla)
        left = [inner for inner in body.graph.get_operations() if _is_left(inner)]
        handed_on = {feed.ref() for feed in feeds_of(body)}
        known = all(one.type == _READING and one.inputs[0].ref() in handed_on for one in left)
        if not left or not known:
            return None
        elements = [tensor for read in left for tensor in read.outputs]
        handed = [tensor for k in varying for tensor in (op.inputs[k], feeds_of(body)[k])]
        if not all(t.shape.is_fully_defined() for t in elements + handed):
            return None
        if any(tensor.dtype in _NO_NUMBERS for tensor in elements + handed):
            return None
        nbytes = sum(tensor.dtype.size * tensor.shape.num_elements() for tensor in elements)
        most = min(_MAX_TURNS, _MAX_BYTES // max(1, nbytes))
        count = _number_of_turns(op, condition, body, varying, most)
        if not count or count > most:
            return None
        return cls(op, body, varying, left, count)

    def __call__(self, replicas: Sequence[ReplicaValues]) -> None:
        (replica,) = replicas
        op, varying = self._op, self._varying
        given = replica.look_up(op.inputs)
        waits = bool(op.control_inputs)
        with tf.control_dependencies(replica.ran if waits else []):
            # Elements are read outside of XLA, and in the order of the loop.
            elements = self._read([given[k] for k in self._handles])

        @tf.function(autograph=False, jit_compile=True)
        def loop(
            initial: Sequence[tf.Tensor],
            taken: Sequence[tf.Tensor],
            elements: Sequence[tf.Tensor],
        ) -> list[tf.Tensor]:
            outside = dict(zip(self._taken, taken, strict=True))

            def turn(index: tf.Tensor, *state: tf.Tensor) -> list[tf.Tensor]:
                values = {**outside, **dict(zip(varying, state, strict=True))}
                own = [*(values[k] for k in self._taken), *(each[index] for each in elements)]
                return [index + 1, *call_with_captures(self._body, own, [])]

            start = [tf.constant(0), *initial]
            # As a constant the length lets XLA know how many turns there are.
            return tf.while_loop(lambda index, *_: index < self._count, turn, start)[1:]

        with tf.control_dependencies(replica.ran if waits else []):
            parts = [given[k] for k in varying], [given[k] for k in self._taken], elements
            results = loop.get_concrete_function(*parts)(*parts)
        replica.note_call(results, waited=waits)
        for tensor, value in zip(op.outputs, given, strict=True):
            replica.set_value(tensor, value)
        for k, value in zip(varying, results, strict=True):
            replica.set_value(op.outputs[k], value)

    def _read(self, handles: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns what is read in all turns, `(count, ...)` each."""
        outputs = [tensor for read in self._reads for tensor in read.outputs]
        arrays = [tf.TensorArray(t.dtype, self._count, element_shape=t.shape) for t in outputs]

        def turn(index: tf.Tensor, *arrays: tf.TensorArray) -> list[Any]:
            found: list[tf.Tensor] = []
            for read, handle in zip(self._reads, handles, strict=True):
                types = {name: read.get_attr(name) for name in ("output_types", "output_shapes")}
                found += tf.raw_ops.IteratorGetNext(iterator=handle, **types)
            written = zip(arrays, found, strict=True)
            return [index + 1, *(array.write(index, tensor) for array, tensor in written)]

        _, *arrays = tf.while_loop(
            lambda index, *_: index < self._count,
            turn,
            [tf.constant(0), *arrays],
            parallel_iterations=1,
        )
        return [array.stack() for array in arrays]


def _is_left(op: tf.Operation) -> bool:
    return leads_to(op, is_left_by_xla)


def _number_of_turns(
    op: tf.Operation, condition: Any, body: Any, varying: Sequence[int], most: int
) -> int | None:
    """Returns how often a loop runs its body, if that depends on constants alone.

    Counting ends after one turn more than `most`.
    """
    goes_on = condition.structured_outputs[0]
    following = dict(zip(varying, body.structured_outputs, strict=True))
    # What the condition needs, what the body needs for the next value of that, and so on:
    # running only this much of the loop tells when it ends, and reads no dataset.
    counted: list[int] = []
    while True:
        results = [following[k] for k in counted if k in following]
        found = {*counted, *_needed_feeds(condition, [goes_on]), *_needed_feeds(body, results)}
        if len(found) == len(counted):
            break
        counted = sorted(found)
    whole = SimpleNamespace(graph=op.graph, inputs=op.graph.inputs)
    start = _part(whole, [op.inputs[k] for k in counted], [])
    is_going_on = _part(condition, [goes_on], counted)
    turn = _part(body, [following[k] for k in counted if k in following], counted)
    if start is None or is_going_on is None or turn is None:
        return None

    def following_state(state: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        changed = iter(turn(*state))
        pairs = zip(counted, state, strict=True)
        return [next(changed) if k in following else value for k, value in pairs]

    @tf.function(autograph=False)
    def count() -> tf.Tensor:
        return tf.while_loop(
            lambda number, *state: tf.logical_and(is_going_on(*state)[0], number <= most),
            lambda number, *state: [number + 1, *following_state(state)],
            [tf.constant(0), *start()],
        )[0]

    with tf.init_scope(), tf.device("/device:CPU:0"):
        return int(count.get_concrete_function()())


def _needed_feeds(concrete: Any, results: Sequence[tf.Tensor]) -> set[int]:
    """Returns the positions of the inputs that some results of a function need."""
    feeds = {feed.op: k for k, feed in enumerate(feeds_of(concrete))}
    return {feeds[op] for op in _before(results) if op in feeds}


def _part(concrete: Any, results: Sequence[tf.Tensor], taken: Sequence[int]) -> Any:
    """Makes a function of some inputs that computes results; `None` if they need, or do, more."""
    given = [feeds_of(concrete)[k] for k in taken]
    found = _before(results) - {feed.op for feed in given}
    outside = {tensor.op for tensor in concrete.inputs}
    if any(op in outside or op.op_def.is_stateful for op in found):
        return None
    # The results of a function wait for all of its effects, so these have to be left out by
    # name.
    others = {op.name for op in concrete.graph.get_operations() if op not in found}
    return extract(concrete, list(results), given=given, without=others).function


def _before(results: Sequence[tf.Tensor]) -> set[tf.Operation]:
    """Returns all operations that tensors need, with their own."""
    pending, found = [tensor.op for tensor in results], set()
    while pending:
        op = pending.pop()
        if op not in found:
            found.add(op)
            pending += [tensor.op for tensor in op.inputs]
    return found
