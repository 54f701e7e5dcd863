"""Adds up values over workers in the graphs of sessions, on the server that the sessions have."""

import threading
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ipu_keras.functions.sessions import SessionStep, mark
from ipu_keras.internals.tensorflow.functions import unused_number
from ipu_keras.internals.tensorflow.sessions import config_of
from ipu_keras.processes.workers import Exchange, Rounds, Workers


class WorkersOfSessions(Workers):
    """Workers that exchange values in the graphs of sessions, too, and in functions in them.

    A function of Python that waits would hold up a thread of the server that the exchange itself
    needs. So one function begins an exchange and another one takes what came out; between them a
    queue of the server's is waited for, which takes no thread. TensorFlow's collective operations
    would not need all that, but run in no function that a session calls.
    """

    def __init__(self, resolver: tf.distribute.cluster_resolver.ClusterResolver):
        super().__init__(resolver)
        # The graph of what ends the waiting, and its session.
        self._wakers = tf.Graph()
        self._waking: tf.compat.v1.Session | None = None
        self._waking_lock = threading.Lock()

    def _sums_in_graph(self, tensors: Sequence[tf.Tensor], num_replicas: int) -> list[tf.Tensor]:
        with tf.init_scope():
            in_session = None if tf.executing_eagerly() else self._queue(num_replicas)
        if in_session is None:
            return super()._sums_in_graph(tensors, num_replicas)
        queue, wake = in_session
        name = queue.queue_ref.op.name

        def begin(arrays: Sequence[np.ndarray]) -> Exchange:
            # TensorFlow may use the memory again when the function has returned.
            return self.begin(name, [array.copy() for array in arrays], wake)

        rounds = Rounds(begin, num_replicas)
        with tf.device(None):
            number = tf.numpy_function(rounds.begin, tensors, tf.int32, stateful=True)
            with tf.control_dependencies([number]):
                is_over = queue.dequeue()
            with tf.control_dependencies([is_over]):
                dtypes = [tensor.dtype for tensor in tensors]
                return tf.numpy_function(rounds.end, [number], dtypes, stateful=True)

    def _queue(self, num_replicas: int) -> tuple[tf.queue.FIFOQueue, Callable[[], None]]:
        """Makes a queue in the session's graph, and what puts an element for each replica in."""
        shared_name = f"worker_exchange_{unused_number()}"
        with tf.device(None):
            queue = _queue_of(shared_name)
        mark(queue.queue_ref.op, SessionStep(before=self._join))
        with self._wakers.as_default(), tf.device(self.placed("/device:CPU:0")):
            wake = _queue_of(shared_name).enqueue_many(tf.ones([num_replicas], tf.bool))

        def call() -> None:
            with self._waking_lock:
                if self._waking is None:
                    self._waking = self._own_session(self._wakers)
                self._waking.run(wake)

        return queue, call

    def _join(self, session: tf.compat.v1.Session) -> None:
        """Takes the server of a session that is about to exchange values."""
        target = tf.compat.as_text(session.sess_str)
        leader = config_of(session).experimental.collective_group_leader
        if not target or not leader:
            received = f"target={target!r}, with the collective_group_leader {leader!r}"
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Several workers exchange values in sessions of a server of TensorFlow's. Make "
                "`config = strategy.update_config_proto(tf.compat.v1.ConfigProto())`, give it to "
                "the `tf.distribute.Server` of this worker and to the session, and "
                f"`server.target` to the session. Received: a session of {received}",
            )
        if self._target is None:
            self._target = target


def _queue_of(shared_name: str) -> tf.queue.FIFOQueue:
    return tf.queue.FIFOQueue(-1, [tf.bool], [()], shared_name=shared_name, name="worker_exchange")
