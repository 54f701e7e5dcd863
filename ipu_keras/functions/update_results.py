"""Sends what the weight update of a pipeline writes to outfeeds, once an update."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.feeds.result_queues import ResultQueue
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.tracing.accumulations import are_accumulators_hidden, note_accumulators


@dataclass(frozen=True)
class UpdateResults:
    """Rows that updates leave in variables, until the host has run a part and a queue gets them.

    Args:
        rows: A variable for each tensor, of shape `(updates, ...)`.
        count: A variable that counts the rows that are written.
        num_replicas: How many replicas there are, which all send the same.
    """

    queue: ResultQueue
    rows: Sequence[Any]
    count: Any
    num_replicas: int

    @classmethod
    def of(
        cls, queue: ResultQueue, tensors: Sequence[tf.Tensor], num_updates: int, num_replicas: int
    ) -> "UpdateResults":
        """Makes the rows for a program that is being traced, with so many updates."""
        is_hidden = are_accumulators_hidden()
        options = {"use_resource": True, "collections": []} if is_hidden else {}

        def zeros(sizes: Sequence[Any], dtype: tf.DType) -> Any:
            # If accumulators are hidden it is in no collection, so that scripts do not list,
            # initialize or save it.
            return tf.compat.v1.Variable(tf.zeros(sizes, dtype), trainable=False, **options)

        with tf.init_scope():
            rows = [zeros((num_updates, *static_sizes(one)), one.dtype) for one in tensors]
            count = zeros((), tf.int32)
        if is_hidden:
            note_accumulators([*rows, count])
        return cls(queue, rows, count, num_replicas)

    def write(self, tensors: Sequence[tf.Tensor], after: Sequence[tf.Tensor]) -> tf.Operation:
        """Writes the next row in the graph of an update, a part of which it becomes by `after`."""
        index = self.count.read_value()
        with tf.control_dependencies(list(after)):
            written = [
                tf.raw_ops.ResourceScatterUpdate(resource=row.handle, indices=index, updates=tensor)
                for row, tensor in zip(self.rows, tensors, strict=True)
            ]
        with tf.control_dependencies(written):
            return tf.raw_ops.AssignAddVariableOp(resource=self.count.handle, value=tf.constant(1))

    def send(self) -> None:
        """Has the queue get the rows that were written, and counts from zero again."""
        count = self.count.read_value()
        rows = [row.read_value()[:count] for row in self.rows]
        if self.num_replicas > 1:
            rows = [tf.repeat(row[:, None], self.num_replicas, axis=1) for row in rows]
        self.queue.write(rows)
        self.count.assign(tf.zeros_like(count), read_value=False)
