"""The workers of a cluster of TensorFlow's, and how they add up values over gRPC."""

import hashlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.processes.joining import patience

_V1 = tf.compat.v1
# How many exchanges a worker offers at once, and how many seconds pass between two looks at
# whether the others still answer, or between two offers.
_OFFERS, _BETWEEN_LOOKS, _BETWEEN_OFFERS = 64, 1.0, 0.002
# A guess: far more than what lies between two exchanges of a program that need not wait for each
# other, as workers are about equally fast, and less than users wait.
_SECONDS_TO_AGREE = 20.0
_LOOKS_AFTER_AN_ERROR = 3
# The name of all exchanges of functions and of eager execution, which follow each other.
_IN_ORDER = "function"
# The one group of workers, as TensorFlow numbers groups.
_GROUP = 1


class Exchange:
    """Values that a worker adds to those of all others.

    Args:
        name: What the workers know it by, the same in all of them.
        arrays: The values of this worker.
        done: Called when there are totals, or an error.
    """

    def __init__(self, name: str, arrays: Sequence[np.ndarray], done: Callable[[], object]):
        self.name, self.arrays, self._done = name, arrays, done
        self.said = " ".join(f"{array.dtype.name}{list(array.shape)}" for array in arrays)
        self._found: list[np.ndarray] | Exception = []
        self._is_over = threading.Event()

    def end(self, found: list[np.ndarray] | Exception) -> None:
        self._found = found
        self._is_over.set()
        self._done()

    def totals(self) -> list[np.ndarray]:
        """Waits for the totals; raises the error if there is one."""
        self._is_over.wait()
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


class Rounds:
    """The exchanges of one place in a program, each of which all replicas of a worker share.

    Args:
        begin: Begins an exchange of arrays.
        num_replicas: How many times each exchange is begun and ended, with equal arrays.
    """

    def __init__(self, begin: Callable[[Sequence[np.ndarray]], Exchange], num_replicas: int):
        self._begin, self._num_replicas = begin, num_replicas
        self._lock = threading.Lock()
        self._number, self._num_begun = 0, num_replicas
        # By their numbers, with the replicas that have not ended them yet.
        self._open: dict[int, tuple[Exchange, int]] = {}

    def begin(self, *arrays: np.ndarray) -> np.int32:
        """Begins the present exchange, or the next one; returns its number, an int32."""
        with self._lock:
            if self._num_begun == self._num_replicas or not self._is_same(arrays):
                self._number, self._num_begun = self._number + 1, 0
                self._open[self._number] = self._begin(arrays), self._num_replicas
            self._num_begun += 1
            return np.int32(self._number)

    def _is_same(self, arrays: Sequence[np.ndarray]) -> bool:
        # A run that failed may have left an exchange that not all replicas have begun.
        exchange, _ = self._open.get(self._number, (None, 0))
        return exchange is not None and all(map(_has_same_bits, exchange.arrays, arrays))

    def end(self, number: np.int32) -> list[np.ndarray]:
        """Waits for the totals of an exchange."""
        with self._lock:
            exchange, count = self._open.pop(int(number))
            if count > 1:
                self._open[int(number)] = exchange, count - 1
        return exchange.totals()


class Workers:
    """Adds up values over the workers of a cluster, of which this process is one.

    The first exchange starts a server of TensorFlow's at this worker's address, unless sessions
    have one, and waits for the others. It has sessions of its own, as TensorFlow's eager context
    cannot join a cluster any longer once an IPU is configured.

    One exchange follows the other, as TensorFlow mixes up those that are under way together. The
    graphs of sessions begin them in any order. So workers first tell each other what they wait
    with, and then do what all wait with, in the order of the names.

    Args:
        resolver: Says who is in the cluster, and which of them this process is.
        seconds_to_agree: After how many seconds workers that wait with nothing that all others
            wait with run different programs.

    Raises:
        NotImplementedError: The cluster has parameter servers.
        ValueError: The resolver does not say which of several workers this is.
    """

    def __init__(self, resolver: Any, seconds_to_agree: float = _SECONDS_TO_AGREE):
        self._seconds_to_agree = seconds_to_agree
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
        self._waiting: dict[str, deque[Exchange]] = {}
        self._is_serving = False
        self._in_vain_since: float | None = None
        self._server: Any = None
        self._target: str | None = None
        # Whether all workers have been there: before, one that does not answer is only late.
        self._has_met = False
        self._sessions: dict[tuple[Any, ...], Callable[[np.ndarray], np.ndarray]] = {}

    def placed(self, device: str) -> str:
        """Returns the name that a device of this process has in a session of its server."""
        job, index = self._tasks[self.rank]
        spec = tf.DeviceSpec.from_string(device)
        return spec.replace(job=job, replica=0, task=index).to_string()

    def configured(self, config: Any) -> Any:
        """Returns a configuration of a server or a session, with what workers need to meet."""
        job, index = self._tasks[self.rank]
        leader, first = self._tasks[0]
        own = _V1.ConfigProto()
        own.CopyFrom(config)
        # Else a session would wait until all other workers have begun.
        del own.device_filters[:]
        own.device_filters.append(f"/job:{job}/task:{index}")
        own.experimental.collective_group_leader = f"/job:{leader}/replica:0/task:{first}"
        return own

    def sums(self, tensors: Sequence[Any], num_replicas: int = 1) -> list[tf.Tensor]:
        """Returns the sums of tensors over all workers, the same in each of them.

        In a graph that several replicas of this worker run, all of them have the same tensors.
        """
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if not tensors:
            return tensors
        if tf.executing_eagerly():
            exchange = self.begin(_IN_ORDER, [tensor.numpy() for tensor in tensors])
            return [tf.constant(total) for total in exchange.totals()]
        totals = self._sums_in_graph(tensors, num_replicas)
        for total, tensor in zip(totals, tensors, strict=True):
            total.set_shape(tensor.shape)
        return totals

    def _sums_in_graph(self, tensors: Sequence[tf.Tensor], num_replicas: int) -> list[tf.Tensor]:
        rounds = Rounds(lambda arrays: self.begin(_IN_ORDER, arrays), num_replicas)

        def exchange(*arrays: np.ndarray) -> list[np.ndarray]:
            return rounds.end(rounds.begin(*arrays))

        dtypes = [tensor.dtype for tensor in tensors]
        return tf.numpy_function(exchange, tensors, dtypes, stateful=True)

    def of_first(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the tensor of the first worker, in all of them."""
        is_bool = tensor.dtype == tf.bool
        own = tf.cast(tensor, tf.int32) if is_bool else tensor
        (found,) = self.sums([own if self.rank == 0 else tf.zeros_like(own)])
        return tf.cast(found, tf.bool) if is_bool else found

    def begin(
        self, name: str, arrays: Sequence[np.ndarray], done: Callable[[], object] = lambda: None
    ) -> Exchange:
        """Begins an exchange; those of one name follow each other."""
        exchange = Exchange(name, arrays, done)
        with self._lock:
            self._waiting.setdefault(name, deque()).append(exchange)
            if not self._is_serving:
                self._is_serving = True
                threading.Thread(target=self._serve, daemon=True).start()
        return exchange

    def _serve(self) -> None:
        """Does exchanges until none waits."""
        try:
            while self._serve_once():
                pass
        except BaseException:
            # Whoever begins the next exchange has to be served.
            with self._lock:
                self._is_serving = False
            raise

    def _serve_once(self) -> bool:
        with self._lock:
            offered = [self._waiting[name][0] for name in sorted(self._waiting)[:_OFFERS]]
            self._is_serving = bool(offered)
        if not offered:
            return False
        try:
            found: list[tuple[Exchange, Any]] = self._round(offered)
        except Exception as error:
            found = [(exchange, error) for exchange in offered]
        with self._lock:
            for exchange, _ in found:
                self._waiting[exchange.name].popleft()
                if not self._waiting[exchange.name]:
                    del self._waiting[exchange.name]
        for exchange, result in found:
            exchange.end(result)
        if not found:
            time.sleep(_BETWEEN_OFFERS)
        return True

    def _round(self, offered: Sequence[Exchange]) -> list[tuple[Exchange, list[np.ndarray]]]:
        """Does those exchanges that all workers offer; returns them with their totals."""
        own = np.zeros((self.size, _OFFERS + 1, 2), np.int64)
        own[self.rank, : len(offered)] = [[_digest(e.name), _digest(e.said)] for e in offered]
        own[self.rank, _OFFERS] = self._has_waited_in_vain()
        offers = self._sum(own)
        if offers[:, _OFFERS].any():  # so that all workers give up in the same round
            self._in_vain_since = None
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                "The workers wait with different exchanges: one has run something else, or "
                "fewer batches. All workers have to run the same program, equally often. "
                f"{self._named(self.rank)} waits with {[e.name for e in offered]}",
            )
        common = [e for e in offered if (offers[..., 0] == _digest(e.name)).any(axis=1).all()]
        if common:
            self._in_vain_since = None
        elif self._in_vain_since is None:
            self._in_vain_since = time.monotonic()
        for exchange in common:
            self._check_values(exchange, offers)
        arrays = [array for exchange in common for array in exchange.arrays]
        totals = iter(self._sums_of(arrays))
        return [(exchange, [next(totals) for _ in exchange.arrays]) for exchange in common]

    def _has_waited_in_vain(self) -> bool:
        """Whether workers wait with different exchanges, and will for ever."""
        since = self._in_vain_since
        return since is not None and time.monotonic() - since > self._seconds_to_agree

    def _check_values(self, exchange: Exchange, offers: np.ndarray) -> None:
        """Raises an error, in all workers, if they do not exchange values of the same shapes."""
        rows, columns = np.nonzero(offers[..., 0] == _digest(exchange.name))
        said = dict(zip(rows.tolist(), offers[rows, columns, 1].tolist(), strict=True))
        others = [rank for rank in said if said[rank] != said[self.rank]]
        if others:
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"{self._named(self.rank)} and {', '.join(map(self._named, others))} exchange "
                "different values. All workers have to run the same program, with batches of one "
                f"size. Here these are {exchange.said}",
            )

    def _sums_of(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the sums of arrays, those of one type by one collective operation."""
        found: dict[int, np.ndarray] = {}
        for dtype in sorted({array.dtype for array in arrays}, key=str):
            places = [k for k, array in enumerate(arrays) if array.dtype == dtype]
            own = [arrays[k] for k in places]
            total = self._sum(np.concatenate([array.ravel() for array in own]))
            ends = np.cumsum([array.size for array in own])
            parts = np.split(total, ends[:-1])
            for k, array, part in zip(places, own, parts, strict=True):
                found[k] = part.reshape(array.shape)
        return [found[k] for k in range(len(arrays))]

    def _sum(self, array: np.ndarray) -> np.ndarray:
        key = (array.dtype.name, array.shape)
        if key not in self._sessions:
            self._sessions[key] = self._session(array)
        return self._watched(self._sessions[key], array)

    def _session(self, array: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Returns what adds up arrays of one type and shape."""
        # The same sum has the same number in all workers, in whichever order they first come.
        number = _digest(f"{array.dtype.name}{array.shape}") & 0x7FFFFFFF
        graph = tf.Graph()
        with graph.as_default(), tf.device(self.placed("/device:CPU:0")):
            given = _V1.placeholder(array.dtype, array.shape)
            total = tf.raw_ops.CollectiveReduceV2(
                input=given,
                group_size=self.size,
                group_key=_GROUP,
                instance_key=number,
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
                timeout_seconds=self._seconds,
            )
        # As a callable, which does not look at what it is fed anew in each call.
        return self._own_session(graph).make_callable(total, [given])

    def _own_session(self, graph: tf.Graph) -> tf.compat.v1.Session:
        config = self.configured(_V1.ConfigProto())
        return _V1.Session(self.target(), graph=graph, config=config)

    def target(self) -> str:
        """Returns the address of the server of this worker, which is started if there is none."""
        if self._target is None:
            job, index = self._tasks[self.rank]
            jobs = dict.fromkeys(job for job, _ in self._tasks)
            pairs = list(zip(self._tasks, self._addresses, strict=True))
            spec = {name: [at for (its, _), at in pairs if its == name] for name in jobs}
            self._server = tf.distribute.Server(
                tf.train.ClusterSpec(spec),
                job_name=job,
                task_index=index,
                config=self.configured(_V1.ConfigProto()),
            )
            self._target = self._server.target
        return self._target

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
        if isinstance(result, tf.errors.OpError):
            # It does not name a worker that has ended, whose connections may break before its
            # address is gone.
            for _ in range(_LOOKS_AFTER_AN_ERROR):
                self._look(seen)
                time.sleep(_BETWEEN_LOOKS)
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


def _has_same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    # Values would not do, as what is not a number is not equal to itself.
    return np.array_equal(first.ravel().view(np.uint8), second.ravel().view(np.uint8))


def _digest(text: str) -> int:
    # Not zero, as an empty place of an offer is.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little") + 1
