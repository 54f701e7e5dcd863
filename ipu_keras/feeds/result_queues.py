"""Queues of results that programs write while they run, in graphs of sessions or without."""

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from ipu_keras.feeds.session_graphs import SessionGraph
from ipu_keras.internals.tensorflow.functions import unused_number
from ipu_keras.internals.tensorflow.operations import set_input
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.program import OutfeedMode
from ipu_keras.settings.enumerations import SyntheticDataCategory
from ipu_keras.settings.flags import current_flags

# A program must never wait for results to be taken, which may happen after it only.
_UNLIMITED = 2**31 - 1


class ResultQueue:
    """A queue that a function writes results to, and others take them from.

    It is made with TensorFlow's own queues: a program may write while other threads take. To
    take means to ask how many results there are and to take as many; that, and to replace the
    last result, is done by one thread at a time.

    With several replicas, the queue holds a row of each, one after the other. How many there are
    may be known only when a session runs. `specs` are of the tensors of one replica's result.
    """

    def __init__(
        self, specs: Sequence[tf.TensorSpec], mode: OutfeedMode, name: str, num_replicas: int = 1
    ):
        self.specs = tuple(specs)
        self.mode = mode
        self.num_replicas = num_replicas
        # In a session's graph, the operations to which `set_replicas` gives the number of
        # replicas.
        self._leading: list[tf.Operation] = []
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
        """Writes results, each tensor `(results, ...)`, or `(results, replicas, ...)`.

        Returns the operation that does it, in a graph.
        """
        self._graph.check()
        if current_flags().asks_for_synthetic(SyntheticDataCategory.Outfeed):
            # To enqueue no rows keeps what was computed from being dropped as unused.
            results = [tensor[:0] for tensor in results]
        if self.mode is OutfeedMode.ALL:
            return self._queue.enqueue_many(self._rows(results))
        with self._alone() as done:
            gone = self._queue.dequeue_many(self._queue.size())
            with tf.control_dependencies(tf.nest.flatten(gone)):
                written = self._queue.enqueue_many(self._rows([t[-1:] for t in results]))
            done += [] if written is None else [written]
        return done[0] if done else None

    def write_zeros(self, num_results: int) -> tf.Operation | None:
        """Writes results of zeros, in place of those of a program that did not run."""
        num_results = num_results if self.mode is OutfeedMode.ALL else 1
        leading = [num_results] if self.num_replicas == 1 else [num_results, self.num_replicas]
        with tf.device("/device:CPU:0"):
            return self.write(
                [tf.zeros([*leading, *static_sizes(spec)], spec.dtype) for spec in self.specs]
            )

    @property
    def is_of_current_graph(self) -> bool:
        return self._graph.is_current

    @property
    def handle(self) -> tf.Tensor:
        return self._queue.queue_ref

    def take(self) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Takes all results that are there.

        Returns their tensors, as `write` takes them, and how many rows the queue had.
        """
        self._graph.check()
        with self._alone() as done:
            size = self._queue.size()
            done += self._results(tf.nest.flatten(self._queue.dequeue_many(size)))
        return done, size

    def last(self) -> list[tf.Tensor]:
        """Returns the last result, which stays in the queue."""
        self._graph.check()
        with self._alone() as done:
            taken = tf.nest.flatten(self._queue.dequeue_many(self._queue.size()))
            result = [tensor[-1] for tensor in self._results(taken)]
            with tf.control_dependencies(result):
                kept = self._queue.enqueue_many(self._rows(result))
            done += [] if kept is None else [kept]
        with tf.control_dependencies(done):
            return [tf.identity(tensor) for tensor in result]

    def close(self) -> tf.Operation | None:
        tensors, _ = self.take()
        return None if tf.executing_eagerly() else tf.group(*tensors)

    def set_replicas(self, num_replicas: int) -> None:
        """Says how many replicas write a result, before a session has run anything of the graph."""
        self.num_replicas = num_replicas
        with tf.init_scope():
            for operation in self._leading:
                set_input(operation, self._leading_axes())

    def _rows(self, results: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns results as they are in the queue, one replica after the other."""
        pairs = zip(results, self.specs, strict=True)
        return [tf.reshape(tensor, (-1, *static_sizes(spec))) for tensor, spec in pairs]

    def _results(self, rows: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns results of rows that were in the queue."""
        if not self._graph.is_there:
            leading = () if self.num_replicas == 1 else (self.num_replicas,)
            pairs = zip(rows, self.specs, strict=True)
            return [tf.reshape(row, (-1, *leading, *static_sizes(spec))) for row, spec in pairs]
        axes = tf.identity(self._leading_axes())
        self._leading.append(axes.op)
        return [
            tf.reshape(row, tf.concat([[-1], axes, static_sizes(spec)], axis=0))
            for row, spec in zip(rows, self.specs, strict=True)
        ]

    def _leading_axes(self) -> tf.Tensor:
        """Returns the sizes of axes before those of one replica: none, or their number."""
        # A placeholder hides the length from shape inference, as `set_replicas` may change it.
        sizes = [] if self.num_replicas == 1 else [self.num_replicas]
        return tf.compat.v1.placeholder_with_default(tf.constant(sizes, tf.int32), [None])

    @contextlib.contextmanager
    def _alone(self) -> Iterator[list]:
        """Makes operations within it wait for their turn.

        Yields a list for the tensors and operations that must be done when the turn of others
        comes; afterwards it has them with that dependency.
        """
        done: list = []
        # The turn also ends when the lock's tensor is freed, whatever happens.
        turn = tf.raw_ops.MutexLock(mutex=self._turn)
        with tf.control_dependencies([turn]):
            yield done
        with tf.control_dependencies(done):
            over = tf.raw_ops.ConsumeMutexLock(mutex_lock=turn)
        # A session runs only what is asked for. If nothing depended on the end of the turn, the
        # lock would be freed at once, and with it the turn.
        with tf.control_dependencies([] if over is None else [over]):
            done[:] = [tf.identity(each) if tf.is_tensor(each) else over for each in done]
