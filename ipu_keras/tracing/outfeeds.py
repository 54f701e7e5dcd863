"""Results that all replicas of a function send together, outside of programs of a fixed length."""

from collections.abc import Sequence

import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import attribute_scope

_OUTFEED = "_ipu_outfeed"
_WRITE = "QueueEnqueueV2"


def mark_results(queue: tf.Tensor, tensors: Sequence[tf.Tensor], label: str) -> tf.Operation:
    """Puts into the graph that is being traced that each replica sends a result.

    The operation writes to the queue what one replica has, which has another shape than what is in
    it: it has to be replaced by one for all replicas.

    Args:
        queue: The handle of a queue.
        tensors: Of the result.
        label: Says which outfeed it is for.
    """
    mark = {_OUTFEED: tf.compat.v1.AttrValue(s=label.encode())}
    with attribute_scope(tf.compat.v1.get_default_graph(), mark):
        return tf.raw_ops.QueueEnqueueV2(handle=queue, components=list(tensors))


def outfeed_of(op: tf.Operation) -> str | None:
    """The label of the outfeed that replicas send results to by an operation.

    Args:
        op: It.

    Returns:
        `None` if it is no such one.
    """
    # The placeholder of what the write captures is marked as well.
    found = op.node_def.attr.get(_OUTFEED) if op.type == _WRITE else None
    return None if found is None else found.s.decode()
