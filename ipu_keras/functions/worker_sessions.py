"""Adds up values over workers in the graphs of sessions, on the server that the sessions have."""

import itertools
import threading
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ipu_keras.functions.sessions import SessionStep, mark
from ipu_keras.internals.tensorflow.functions import unused_number
from ipu_keras.internals.tensorflow.sessions import config_of
from ipu_keras.processes.workers import Exchange, Workers

_V1 = tf.compat.v1


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
        self._waking: _V1.Session | None = None
        self._waking_lock = threading.Lock()

    def _sums_in_graph(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        with tf.init_scope():
            is_in_session = not tf.executing_eagerly()
        return (self._sums_in_session if is_in_session else super()._sums_in_graph)(tensors)

    def _sums_in_session(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        with tf.init_scope(), tf.device(None):
            shared_name = f"worker_exchange_{unused_number()}"
            queue = tf.queue.FIFOQueue(
                -1, [tf.bool], [()], shared_name=shared_name, name="worker_exchange"
            )
            mark(queue.queue_ref.op, SessionStep(before=self._join))
        name, wake = queue.queue_ref.op.name, self._waker(shared_name)
        begun: dict[int, Exchange] = {}
        numbers = itertools.count()

        def begin(*arrays: np.ndarray) -> np.ndarray:
            number = next(numbers)
            # A session may use the memory again before the exchange has begun.
            begun[number] = self.begin(name, [array.copy() for array in arrays], wake)
            return np.int32(number)

        def end(number: np.ndarray) -> list[np.ndarray]:
            return begun.pop(int(number)).totals()

        with tf.device(None):
            number = tf.numpy_function(begin, tensors, tf.int32, stateful=True)
            with tf.control_dependencies([number]):
                is_over = queue.dequeue()
            with tf.control_dependencies([is_over]):
                dtypes = [tensor.dtype for tensor in tensors]
                return tf.numpy_function(end, [number], dtypes, stateful=True)

    def _waker(self, shared_name: str) -> Callable[[], object]:
        with self._wakers.as_default(), tf.device(self.placed("/device:CPU:0")):
            wake = tf.queue.FIFOQueue(-1, [tf.bool], [()], shared_name=shared_name).enqueue(True)

        def call() -> None:
            with self._waking_lock:
                if self._waking is None:
                    self._waking = self._own_session(self._wakers)
                self._waking.run(wake)

        return call

    def _join(self, session: _V1.Session) -> None:
        """Takes the server of a session that is about to exchange values."""
        target = session.sess_str
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
