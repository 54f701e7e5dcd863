"""Keeps what an execution reads and sends, so that it can be looked at, and run once more.

A dataset is at its next element when an execution is over, and a queue has what was sent. So
operations are added beside those that read, draw or send: each puts what it sees into a list of
TensorFlow's (`Stage`), in the order of the execution. They are in definitions of functions only, as
in `halves.py`, so that reports see nothing of them.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.host.exceptions import Again
from ipu_keras.host.half_operations import called_in
from ipu_keras.host.interpreter import RunningPlace
from ipu_keras.internals.tensorflow.contexts import function_definition
from ipu_keras.internals.tensorflow.functions import defined_like
from ipu_keras.internals.tensorflow.operations import definition_of, types_of

# What gives other values when it runs once more, and XLA does not compile.
_READING = frozenset(
    """
    AllCandidateSampler EagerPyFunc FixedUnigramCandidateSampler IteratorGetNext
    IteratorGetNextAsOptional LearnedUnigramCandidateSampler LogUniformCandidateSampler Multinomial
    NonDeterministicInts ParameterizedTruncatedNormal PyFunc QueueDequeueManyV2 QueueDequeueUpToV2
    QueueDequeueV2 QueueSizeV2 RandomGamma RandomPoissonV2 RandomShuffle RandomStandardNormal
    RandomUniform RandomUniformInt SampleDistortedBoundingBoxV2 ThreadUnsafeUnigramCandidateSampler
    Timestamp TruncatedNormal UniformCandidateSampler
    """.split()  # noqa: SIM905
)
# What others see, by how many of its inputs come before what is sent.
_SENDING = {"QueueEnqueueManyV2": 1, "QueueEnqueueV2": 1}
# What belongs to these, and to no number that is computed.
_SILENT = frozenset({"Assert", "ConsumeMutexLock", "MutexLock", "PrintV2"})

_HOST = "/device:CPU:0"

_numbers = itertools.count()


@dataclass(frozen=True)
class KeptTransfer:
    """The list of what one operation of a function has read or sent, each time that it ran.

    Args:
        name: What TensorFlow knows the list by.
        dtypes: The types of the tensors that it reads or sends at once.
        is_sent: Whether it sends them.
        elements: The types of the components of an element, if what is read is a `tf.data`
            optional of one.
    """

    name: str
    dtypes: tuple[tf.DType, ...]
    is_sent: bool
    elements: tuple[tf.DType, ...] | None = None

    def size(self) -> Any:
        return tf.raw_ops.StageSize(dtypes=self.dtypes, shared_name=self.name)

    def at(self, index: Any) -> list[Any]:
        """Returns the tensors that the operation read or sent when it ran for that time."""
        return tf.raw_ops.StagePeek(index=index, dtypes=self.dtypes, shared_name=self.name)

    def fetched_at(self, index: Any) -> list[Any]:
        """Returns what `at` does as tensors that a session can fetch, for `of_fetched`."""
        tensors = self.at(index)
        if self.elements is None:
            return tensors
        dtypes = self.elements
        [optional] = tensors
        has_value = tf.raw_ops.OptionalHasValue(optional=optional)
        shapes = [tf.TensorShape(None)] * len(dtypes)
        components = tf.cond(
            has_value,
            lambda: tf.raw_ops.OptionalGetValue(
                optional=optional, output_types=dtypes, output_shapes=shapes
            ),
            lambda: [tf.zeros([], dtype) for dtype in dtypes],
        )
        return [has_value, *components]

    def of_fetched(self, arrays: Sequence[Any]) -> list[Any]:
        """Returns eager tensors as `at` does, of what a session has fetched."""
        tensors = list(map(tf.constant, arrays))
        if self.elements is None:
            return tensors
        has_value, *components = tensors
        if not has_value:
            return [tf.raw_ops.OptionalNone()]
        return [tf.raw_ops.OptionalFromValue(components=components)]

    def clear(self) -> Any:
        return tf.raw_ops.StageClear(dtypes=self.dtypes, shared_name=self.name)


class KeptTransfers:
    """What the executions of a traced function read and send.

    Args:
        concrete: The trace whose definitions are changed, with those that it calls.

    Attributes:
        function: What does the same, and keeps what it reads and sends.
        kept: A list for each operation that does, in no order.
    """

    def __init__(self, concrete: Any):
        self._number = next(_numbers)
        self._lists: dict[tuple[str, str], KeptTransfer] = {}
        self._names: dict[str, str] = {}
        self._made: list[tuple[str, Any]] = []
        self._name = concrete.inference_fn.name.decode()
        is_changed = self._rewritten(self._name) != self._name
        self.function = defined_like(concrete, self._made) if is_changed else concrete
        self.kept = tuple(self._lists.values())

    def clear(self) -> None:
        """Forgets what was kept."""
        with tf.device(_HOST):
            for one in self.kept:
                one.clear()

    def values(self) -> dict[KeptTransfer, list[list[Any]]]:
        """Returns what was kept, on the host."""
        with tf.device(_HOST):
            return {one: [one.at(k) for k in range(int(one.size()))] for one in self.kept}

    def again(self, values: dict[KeptTransfer, list[list[Any]]]) -> Again:
        """Returns how an execution runs once more that read and sent these eager tensors."""
        each = [(one, tensor) for one, lists in values.items() for t in lists for tensor in t]
        return Again(
            read=[tensor for one, tensor in each if not one.is_sent],
            sent=[tensor for one, tensor in each if one.is_sent],
            instead=_Repetition({k: values[one] for k, one in self._lists.items()}, self._name),
        )

    def _rewritten(self, name: str) -> str:
        """Returns the name of what takes the place of a function: its own if it keeps nothing."""
        if name not in self._names:
            self._names[name] = name
            found = type(function_definition(name))()
            found.CopyFrom(function_definition(name))
            # XLA lacks these lists, and what reads or sends as well.
            in_xla = "_XlaMustCompile" in found.attr and found.attr["_XlaMustCompile"].b
            if not in_xla and self._keep_in(found, name):
                self._names[name] = found.signature.name = f"{name}_kept_{self._number}"
                self._made.append((name, found))
        return self._names[name]

    def _keep_in(self, definition: Any, name: str) -> bool:
        """Has a function keep what it and those that it calls read and send; whether it does."""
        is_changed = False
        for node in definition.node_def:
            for called in called_in(node):
                instead = self._rewritten(called.name)
                is_changed |= instead != called.name
                called.name = instead
        nodes = [n for n in definition.node_def if n.op in _READING or n.op in _SENDING]
        for node in nodes:
            tensors, types = _sent(node) if node.op in _SENDING else _read(node)
            dtypes = tuple(map(tf.as_dtype, types))
            elements = None
            if node.op == "IteratorGetNextAsOptional":
                elements = tuple(map(tf.as_dtype, node.attr["output_types"].list.type))
            one = KeptTransfer(
                f"ipu{name}/{node.name}/{self._number}", dtypes, node.op in _SENDING, elements
            )
            self._lists[name, node.name] = one
            kept = definition.node_def.add(
                name=f"{node.name}/kept", op="Stage", input=tensors, device=node.device
            )
            kept.attr["dtypes"].list.type.extend(types)
            kept.attr["shared_name"].s = one.name.encode()
            # What no result needs would be left out, were it not among these.
            definition.control_ret[kept.name] = kept.name
            definition.signature.control_output.append(kept.name)
        return is_changed or bool(nodes)


class _Repetition:
    """What operations return that read, while an execution runs once more, and sends nothing."""

    def __init__(self, values: dict[tuple[str, str], list[list[Any]]], main: str):
        self._left: dict[tuple[str, str], Iterator[list[Any]]]
        self._left = {key: iter(each) for key, each in values.items()}
        self._main = main

    def __call__(self, op: tf.Operation, place: RunningPlace) -> list[Any] | None:
        """Returns the outputs of an operation that is not to run, and `None` for others."""
        if op.type in _SENDING or op.type in _SILENT:
            return [None] * len(op.outputs)
        if op.type not in _READING:
            return None
        return next(self._left.get((place.function or self._main, op.name), iter(())), None)


def _sent(node: Any) -> tuple[Sequence[str], Sequence[int]]:
    """Returns the names of what a node sends, and their types."""
    data = [name for name in node.input if name[0] != "^"][_SENDING[node.op] :]
    return data, node.attr["Tcomponents"].list.type


def _read(node: Any) -> tuple[Sequence[str], Sequence[int]]:
    """Returns the names of what a node reads, and their types."""
    names: list[str] = []
    types: list[int] = []
    for output in definition_of(node.op).output_arg:
        found = types_of(output, node)
        names += [f"{node.name}:{output.name}:{k}" for k in range(len(found))]
        types += found
    return names, types
