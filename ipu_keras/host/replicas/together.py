"""Labels operations of a trace that all replicas of a function do together.

The trace of one replica has such an operation as this replica would do it alone: the write of
one result, where several are to be written at once, or a call of a program of all replicas. By
its label, `segments` finds what to do instead when it builds all replicas.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import attribute_scope, outermost_trace

# Does a labelled operation for all replicas: takes what each has for the operation's inputs,
# and returns what each has for its outputs.
Together = Callable[[Sequence[Sequence[tf.Tensor]]], Sequence[Sequence[tf.Tensor]]]

_COLLECTION = "ipu_done_together"
_LABEL = "_ipu_together"
# Attributes of new operations also reach the placeholders of captures, which must not count.
_KINDS = frozenset({"PartitionedCall", "QueueEnqueueV2", "StatefulPartitionedCall"})


@contextlib.contextmanager
def by_all_replicas(make: Callable[[Any], Together]) -> Iterator[None]:
    """While this is open, calls and writes that are traced are done by all replicas together.

    What is known only when the trace is complete, such as which variables each replica has for
    itself, decides what they do: `make` then takes the `ReplicaVariables`, and returns what does it
    for all.
    """
    graph = tf.compat.v1.get_default_graph()
    noted = (outermost_trace() or graph).get_collection_ref(_COLLECTION)
    noted.append(make)
    mark = {_LABEL: tf.compat.v1.AttrValue(s=str(len(noted) - 1).encode())}
    with attribute_scope(graph, mark):
        yield


def label_of(op: tf.Operation) -> str | None:
    """Returns the label of an operation that replicas do together; `None` for any other."""
    found = op.node_def.attr.get(_LABEL) if op.type in _KINDS else None
    return None if found is None else found.s.decode()


def done_together(graph: tf.Graph, variables: Any) -> dict[str, Together]:
    """Returns what the replicas of a traced function do together, by label."""
    return {str(k): make(variables) for k, make in enumerate(graph.get_collection(_COLLECTION))}
