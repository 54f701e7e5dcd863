"""Queues of results that programs write while they run, in graphs of sessions or without."""

from collections.abc import Sequence

import tensorflow as tf

from ipu_keras.feeds.session_graphs import SessionGraph
from ipu_keras.internals.tensorflow.functions import unused_number
from ipu_keras.program import OutfeedMode

# No result has to wait for another to be taken.
_UNLIMITED = 2**31 - 1


class ResultQueue:
    """What a function writes results to, and others take them from.

    It is made with TensorFlow's own queues: a program may write while another thread takes.

    Args:
        specs: A `tf.TensorSpec` for each tensor of a result.
        mode: Whether all results are kept, or the last one only.
        name: What errors call it.
    """

    def __init__(self, specs: Sequence[tf.TensorSpec], mode: OutfeedMode, name: str):
        self.specs = tuple(specs)
        self.mode = mode
        self._graph = SessionGraph(name)
        with tf.init_scope(), tf.device("/device:CPU:0"):
            self._queue = tf.queue.FIFOQueue(
                _UNLIMITED,
                [spec.dtype for spec in specs],
                [spec.shape for spec in specs],
                name=f"outfeed_{unused_number()}",
            )

    def write(self, results: Sequence[tf.Tensor]) -> tf.Operation | None:
        """Writes results, each tensor `(results, ...)`.

        Args:
            results: The tensors of as many results as they have in their first axis.

        Returns:
            The operation that does it, in a graph.
        """
        self._graph.check()
        if self.mode is OutfeedMode.ALL:
            return self._queue.enqueue_many(list(results))
        gone = self._queue.dequeue_many(self._queue.size())
        with tf.control_dependencies(tf.nest.flatten(gone)):
            return self._queue.enqueue([tensor[-1] for tensor in results])

    @property
    def handle(self) -> tf.Tensor:
        """Of TensorFlow's queue."""
        return self._queue.queue_ref

    def take(self) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Takes all results that are there.

        Returns:
            Their tensors, each `(results, ...)`, and how many they are.
        """
        self._graph.check()
        size = self._queue.size()
        return tf.nest.flatten(self._queue.dequeue_many(size)), size

    def last(self) -> list[tf.Tensor]:
        """The last result, which stays."""
        tensors, _ = self.take()
        result = [tensor[-1] for tensor in tensors]
        with tf.control_dependencies(result):
            kept = self._queue.enqueue(result)
        with tf.control_dependencies([] if kept is None else [kept]):
            return [tf.identity(tensor) for tensor in result]

    def close(self) -> tf.Operation | None:
        """Drops what is there."""
        tensors, _ = self.take()
        return None if tf.executing_eagerly() else tf.group(*tensors)
