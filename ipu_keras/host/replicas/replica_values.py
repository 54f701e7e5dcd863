"""Keeps the values that each of several replicas has while a function of all of them is built."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import call_with_captures
from ipu_keras.tracing.extraction import ExtractedPart, feeds_of
from ipu_keras.tracing.frontend_attributes import ReplicaPart, note_replica_part
from ipu_keras.tracing.replication import is_replica_index

# The tensors to take in place of captured ones, by `ref()` of these.
Captures = Mapping[Any, tf.Tensor]

CONSTANT = "Const"


@dataclass(frozen=True)
class Segment:
    """Operations that a replica runs without hearing from the others.

    Args:
        part: Computes the operations; `None` if there are none.
        given: Results of other segments that the part takes.
        waits: Whether it must run after all that the replica ran before.
        together: What is done after it by all replicas as one, or left to TensorFlow by XLA.
    """

    part: ExtractedPart | None
    given: Sequence[tf.Tensor] = ()
    results: Sequence[tf.Tensor] = ()
    waits: bool = False
    together: Sequence[tf.Operation] = ()
    is_for_xla: bool = False


class ReplicaValues:
    """Maps the tensors of a trace to the values that one replica has for them.

    These are symbolic while a graph is built, and values when the function runs eagerly. A
    replica takes its own `captures` in place of those of the trace, and has a `name` in common
    with the others that run the trace with it.
    """

    def __init__(
        self,
        concrete: Any,
        number: int,
        feeds: Sequence[tf.Tensor],
        captures: Captures,
        name: str,
    ):
        placeholders = feeds_of(concrete)
        self._feeds = [
            tf.convert_to_tensor(feed, placeholder.dtype)
            for feed, placeholder in zip(feeds, placeholders, strict=True)
        ]
        self._captures = captures
        self._number, self._name, self._num_parts = number, name, 0
        self._ran: list[tf.Operation] = []
        pairs = [(inner, self._own(outer)) for outer, inner in concrete.graph.captures]
        pairs += zip(placeholders, self._feeds, strict=True)
        index = tf.constant(number)
        indices = filter(is_replica_index, concrete.graph.get_operations())
        pairs += [(op.outputs[0], index) for op in indices]
        self._values = {inside.ref(): value for inside, value in pairs}

    def run(self, segment: Segment) -> None:
        """Computes the replica's values of a segment."""
        if segment.part is None:
            return
        function = segment.part.function
        taken = [self._feeds[index] for index in segment.part.inputs]
        taken += self.look_up(segment.given)
        captured = [self._own(outer) for outer in function.captured_inputs]

        # One trace serves all replicas. Calling it as usual would take the captures of the
        # trace, which are those of replica 0.
        def compute(*tensors: tf.Tensor) -> Any:
            return call_with_captures(function, tensors, captured)

        if segment.is_for_xla:
            jitted = tf.function(compute, autograph=False, jit_compile=True)
            compute = jitted.get_concrete_function(*taken)
        with tf.control_dependencies(self._ran if segment.waits else []):
            results = compute(*taken)
        self.note_part(results, waited=segment.waits)
        for tensor, result in zip(segment.results, results, strict=True):
            # The gradient of a convolution takes the shape of a kernel as a tensor, and does not
            # know its own if an earlier segment has made that one.
            result.set_shape(tensor.shape)
            self.set_value(tensor, result)

    def note_part(self, results: Sequence[tf.Tensor], *, waited: bool) -> None:
        """Does as `note_call` for what this replica calls by itself, as all others do in turn."""
        self.note_call(results, waited=waited)
        self._num_parts += 1
        mark_part(results, ReplicaPart(self._number, f"{self._name}/{self._num_parts}"))

    def note_call(self, results: Sequence[tf.Tensor], *, waited: bool) -> None:
        """Remembers the call that was just made, for those that have to wait for it.

        If it has `waited` itself for all calls before, nobody else has to.
        """
        if tf.executing_eagerly():
            return
        call = _call_of(results)
        # Whoever waits for this call waits for those that it waited for.
        self._ran = [call] if waited else [*self._ran, call]

    @property
    def ran(self) -> Sequence[tf.Operation]:
        """What others have to wait for, if they wait for all that ran before."""
        return self._ran

    def look_up(self, tensors: Iterable[tf.Tensor]) -> list:
        """Returns the replica's values of tensors of the trace."""
        return [None if t is None else self._value(t) for t in tensors]

    def set_value(self, tensor: tf.Tensor, value: tf.Tensor) -> None:
        self._values[tensor.ref()] = value

    def _value(self, tensor: tf.Tensor) -> tf.Tensor:
        # Constants are made where they are asked for: no segment returns them (`_Split`).
        if tensor.ref() not in self._values and tensor.op.type == CONSTANT:
            value = tf.make_ndarray(tensor.op.get_attr("value"))
            self.set_value(tensor, tf.constant(value, tensor.dtype))
        return self._values[tensor.ref()]

    def _own(self, captured: tf.Tensor) -> tf.Tensor:
        return self._captures.get(captured.ref(), captured)


def mark_part(results: Sequence[tf.Tensor], part: ReplicaPart) -> None:
    """Marks the call that was just made, and what it returned, as one of a replica."""
    if not tf.executing_eagerly():
        note_replica_part(_call_of(results), part)


def _call_of(results: Sequence[tf.Tensor]) -> tf.Operation:
    # A call without results can be found only as the operation that was added last.
    return results[0].op if results else tf.compat.v1.get_default_graph().get_operations()[-1]
