"""Queues of results that programs write while they run, in graphs of sessions or without."""

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from ipu_keras.feeds.session_graphs import SessionGraph
from ipu_keras.internals.tensorflow.functions import unused_number
from ipu_keras.program import OutfeedMode

# No result has to wait for another to be taken.
_UNLIMITED = 2**31 - 1


class ResultQueue:
    """What a function writes results to, and others take them from.

    It is made with TensorFlow's own queues: a program may write while other threads take. Who takes
    asks how many there are, and takes as many; that, and to replace the last one, is done by one
    thread at a time.

    Args:
        specs: A `tf.TensorSpec` for each tensor of a result.
        mode: Whether all results are kept, or the last one only.
        name: What errors call it.
    """

    def __init__(self, specs: Sequence[tf.TensorSpec], mode: OutfeedMode, name: str):
        self.specs = tuple(specs)
        self.mode = mode
        self._graph = SessionGraph(name)
        number = unused_number()
        with tf.init_scope(), tf.device("/device:CPU:0"):
            self._queue = tf.queue.FIFOQueue(
                _UNLIMITED,
                [spec.dtype for spec in specs],
                [spec.shape for spec in specs],
                name=f"outfeed_{number}",
            )
            self._turn = tf.raw_ops.MutexV2(container="", shared_name=f"outfeed_{number}_turn")

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
        with self._alone() as done:
            gone = self._queue.dequeue_many(self._queue.size())
            with tf.control_dependencies(tf.nest.flatten(gone)):
                written = self._queue.enqueue([tensor[-1] for tensor in results])
            done += [] if written is None else [written]
        return written

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
        with self._alone() as done:
            size = self._queue.size()
            done += tf.nest.flatten(self._queue.dequeue_many(size))
        return done, size

    def last(self) -> list[tf.Tensor]:
        """The last result, which stays."""
        self._graph.check()
        with self._alone() as done:
            taken = tf.nest.flatten(self._queue.dequeue_many(self._queue.size()))
            result = [tensor[-1] for tensor in taken]
            with tf.control_dependencies(result):
                kept = self._queue.enqueue(result)
            done += [] if kept is None else [kept]
        with tf.control_dependencies(done):
            return [tf.identity(tensor) for tensor in result]

    def close(self) -> tf.Operation | None:
        """Drops what is there."""
        tensors, _ = self.take()
        return None if tf.executing_eagerly() else tf.group(*tensors)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[list]:
        """Has what is done within it wait for its turn.

        Yields:
            A list, for what has to be there, or done, when the turn of others comes. Its tensors
            are there after that.
        """
        done: list = []
        # Whatever happens, the turn ends when this is forgotten.
        turn = tf.raw_ops.MutexLock(mutex=self._turn)
        with tf.control_dependencies([turn]):
            yield done
        with tf.control_dependencies(done):
            over = tf.raw_ops.ConsumeMutexLock(mutex_lock=turn)
        # A session runs nothing but what is asked for.
        with tf.control_dependencies([] if over is None else [over]):
            done[:] = [tf.identity(each) if tf.is_tensor(each) else each for each in done]
