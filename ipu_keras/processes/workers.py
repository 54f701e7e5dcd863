"""The workers of a cluster of TensorFlow's, and how they add up values over gRPC."""

import hashlib
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.processes.joining import patience

_V1 = tf.compat.v1
# How many numbers say what a worker is about to exchange, and how many seconds pass between two
# looks at whether the others still answer.
_SIGN, _BETWEEN_LOOKS = 4, 1.0
# The one group of workers, as TensorFlow numbers groups.
_GROUP = 1


class Workers:
    """Adds up values over the workers of a cluster, of which this process is one.

    The first exchange starts a server of TensorFlow's at this worker's address, and waits for
    the others. It has sessions of its own, as TensorFlow's eager context cannot join a cluster
    any longer once an IPU is configured.

    Args:
        resolver: Says who is in the cluster, and which of them this process is.

    Raises:
        NotImplementedError: The cluster has parameter servers.
        ValueError: The resolver does not say which of several workers this is.
    """

    def __init__(self, resolver: Any):
        cluster = resolver.cluster_spec().as_dict()
        if cluster.get("ps"):
            raise NotImplementedError(
                "IPUMultiWorkerStrategy trains without parameter servers: give each worker the "
                f"same job, 'worker'. Received: a cluster with 'ps': {cluster}"
            )
        jobs = [job for job in ("chief", "worker") if cluster.get(job)]
        self._tasks = [(job, k) for job in jobs for k in range(len(cluster[job]))]
        self._addresses = [cluster[job][k] for job, k in self._tasks]
        own = (resolver.task_type, resolver.task_id)
        if own[0] == "evaluator":  # it is no part of the training
            self._tasks, self._addresses = [], []
        self.size = max(1, len(self._tasks))
        if self.size > 1 and own not in self._tasks:
            raise ValueError(
                "The cluster resolver must say which of several workers this process is, as the "
                "`task` of TF_CONFIG does. "
                f"Received: the task {own[1]} of the job {own[0]!r}, in {cluster}"
            )
        self.rank = self._tasks.index(own) if self.size > 1 else 0
        self._seconds = patience()
        self._lock = threading.Lock()
        self._server: Any = None
        # Whether all workers have been there: before, one that does not answer is only late.
        self._has_met = False
        self._sessions: dict[tuple[Any, ...], Callable[[np.ndarray], np.ndarray]] = {}

    def sums(self, tensors: Sequence[Any]) -> list[tf.Tensor]:
        """Returns the sums of tensors over all workers, the same in each of them."""
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if not tensors:
            return tensors
        if tf.executing_eagerly():
            return [tf.constant(total) for total in self._exchanged(*(t.numpy() for t in tensors))]
        totals = tf.numpy_function(
            self._exchanged, tensors, [tensor.dtype for tensor in tensors], stateful=True
        )
        for total, tensor in zip(totals, tensors, strict=True):
            total.set_shape(tensor.shape)
        return totals

    def of_first(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the tensor of the first worker, in all of them."""
        is_bool = tensor.dtype == tf.bool
        own = tf.cast(tensor, tf.int32) if is_bool else tensor
        (found,) = self.sums([own if self.rank == 0 else tf.zeros_like(own)])
        return tf.cast(found, tf.bool) if is_bool else found

    def _exchanged(self, *arrays: np.ndarray) -> list[np.ndarray]:
        # One exchange at a time, so that all workers have them in one order.
        with self._lock:
            self._agree(arrays)
            return [self._sum(array) for array in arrays]

    def _agree(self, arrays: Sequence[np.ndarray]) -> None:
        """Raises an error, in all workers, if they do not exchange values of the same shapes."""
        said = [f"{array.dtype.name}{list(array.shape)}" for array in arrays]
        digest = hashlib.sha256(" ".join(said).encode()).digest()
        own = np.zeros((self.size, _SIGN), np.int32)
        own[self.rank] = np.frombuffer(digest, np.int32, _SIGN)
        signs = self._sum(own)
        others = [k for k in range(self.size) if (signs[k] != signs[self.rank]).any()]
        if others:
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"{self._named(self.rank)} and {', '.join(map(self._named, others))} exchange "
                "different values. All workers have to run the same program, with batches of one "
                f"size. Here these are {', '.join(said)}",
            )

    def _sum(self, array: np.ndarray) -> np.ndarray:
        key = (array.dtype.name, array.shape)
        if key not in self._sessions:
            self._sessions[key] = self._session(array)
        return self._watched(self._sessions[key], array)

    def _session(self, array: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Returns what adds up arrays of one type and shape."""
        job, index = self._tasks[self.rank]
        leader, first = self._tasks[0]
        config = _V1.ConfigProto(device_filters=[f"/job:{job}/task:{index}"])
        config.experimental.collective_group_leader = f"/job:{leader}/replica:0/task:{first}"
        if self._server is None:
            jobs = dict.fromkeys(job for job, _ in self._tasks)
            pairs = list(zip(self._tasks, self._addresses, strict=True))
            spec = {name: [at for (its, _), at in pairs if its == name] for name in jobs}
            self._server = tf.distribute.Server(
                tf.train.ClusterSpec(spec), job_name=job, task_index=index, config=config
            )
        # The same sum has the same number in all workers, in whichever order they first come.
        digest = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode()).digest()
        graph = tf.Graph()
        with graph.as_default(), tf.device(f"/job:{job}/task:{index}/device:CPU:0"):
            given = _V1.placeholder(array.dtype, array.shape)
            total = tf.raw_ops.CollectiveReduceV2(
                input=given,
                group_size=self.size,
                group_key=_GROUP,
                instance_key=int.from_bytes(digest[:4], "little") >> 1,
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
                timeout_seconds=self._seconds,
            )
        # As a callable, which does not look at what it is fed anew in each call.
        session = _V1.Session(self._server.target, graph=graph, config=config)
        return session.make_callable(total, [given])

    def _watched(self, function: Callable[[np.ndarray], np.ndarray], array: Any) -> np.ndarray:
        """Calls a function, and raises an error when another worker does not answer any longer.

        gRPC waits for a worker that has ended as for one that has not begun yet.
        """
        found: list[Any] = []

        def call() -> None:
            try:
                found.append(function(array))
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(_BETWEEN_LOOKS)
        seen: set[int] = set()
        while thread.is_alive():
            self._look(seen)
            thread.join(_BETWEEN_LOOKS)
        (result,) = found
        if isinstance(result, Exception):
            raise result
        self._has_met = True
        return result

    def _look(self, seen: set[int]) -> None:
        """Raises an error if a worker has ended."""
        for rank, address in enumerate(self._addresses):
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), _BETWEEN_LOOKS).close()
            except OSError as error:
                if self._has_met or rank in seen:
                    raise tf.errors.UnavailableError(
                        None,
                        None,
                        f"{self._named(rank)} at {address} has ended, while "
                        f"{self._named(self.rank)} waits for values of it: it failed, was "
                        f"killed, or had fewer batches. Its address says: {error}",
                    ) from error
            else:
                seen.add(rank)

    def _named(self, rank: int) -> str:
        job, index = self._tasks[rank]
        return f"/job:{job}/replica:0/task:{index}"
