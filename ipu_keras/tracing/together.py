"""Labels operations of a trace that all replicas of a function do together.

The trace of one replica has such an operation as this replica would do it alone: the write of
one result, where several are to be written at once, or a call of a program of all replicas. By
its label, whoever builds what all replicas do knows what to do instead.
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import attribute_scope

_LABEL = "_ipu_together"
# Attributes of new operations also reach the placeholders of captures, which must not count.
_KINDS = frozenset({"PartitionedCall", "QueueEnqueueV2", "StatefulPartitionedCall"})


@contextlib.contextmanager
def labelled(label: str) -> Iterator[None]:
    """While this is open, calls and writes that are traced are done by all replicas together."""
    mark = {_LABEL: tf.compat.v1.AttrValue(s=label.encode())}
    with attribute_scope(tf.compat.v1.get_default_graph(), mark):
        yield


def label_of(op: tf.Operation) -> str | None:
    """Returns the label of an operation that replicas do together; `None` for any other."""
    found = op.node_def.attr.get(_LABEL) if op.type in _KINDS else None
    return None if found is None else found.s.decode()
