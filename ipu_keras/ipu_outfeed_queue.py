"""Outfeeds: results that loops, pipelines and other functions send to the host."""

import enum
import functools
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ipu_keras.device import DRIVER
from ipu_keras.feeds.result_queues import ResultQueue
from ipu_keras.functions.graph_programs import current_step_results
from ipu_keras.functions.place import outermost_graph
from ipu_keras.functions.replicas import send
from ipu_keras.functions.sessions import SessionStep, mark
from ipu_keras.functions.traces_again import is_traced_again
from ipu_keras.ipu_infeed_queue import checked_ordinal, unused_feed_name
from ipu_keras.program import OutfeedMode
from ipu_keras.settings.arguments import (
    checked_switch,
    converted,
    name_or_none,
    noted,
    positive_integer,
    positive_or_none,
)
from ipu_keras.settings.enumerations import SyntheticDataCategory
from ipu_keras.settings.flags import ENVIRONMENT_VARIABLE, current_flags
from ipu_keras.tracing.infeeds import is_traced_for_model


class IPUOutfeedMode(enum.Enum):
    """Which of the results that are sent reach the host.

    - `ALL`: all of them.
    - `LAST`: the one that was sent last.
    """

    ALL = "all"
    LAST = "get_last"


_MODES = {IPUOutfeedMode.ALL: OutfeedMode.ALL, IPUOutfeedMode.LAST: OutfeedMode.LAST}


class IPUOutfeedQueue:
    """What programs write results to, and the host takes them from.

    A function, or the body of a loop, calls `enqueue` once; `dequeue` gives what has arrived. With
    several replicas a result has an axis for them, before those of the tensor.

    Args:
        feed_name: Deprecated: what errors call the queue.
        outfeed_mode: `IPUOutfeedMode.ALL`, the default, or `IPUOutfeedMode.LAST`.
        device_ordinal: Which device writes to the queue, the k of `/device:IPU:k`.
        replication_factor: Deprecated: the device says how many replicas there are.
        io_batch_size: Deprecated: how many results an IPU sends at once. It changes no result,
            and the cost model counts each on its own.
        buffer_depth: An argument of later releases: how many results may wait for the host. It
            changes no result: the host has memory for all.
        optimise_latency: An argument of later releases: whether small results are sent faster, by
            a further copy. It changes no result, and the cost model has one way to send them.

    Later releases have their arguments in the order `outfeed_mode`, `device_ordinal`,
    `buffer_depth`, `optimise_latency`: they are taken in this order if a mode comes first.

    Raises:
        ValueError: `outfeed_mode` is no `IPUOutfeedMode`, or a number is out of its range.

    Example:

    >>> import tensorflow as tf
    >>> from ipu_keras import ipu_strategy, loops
    >>> queue = IPUOutfeedQueue()
    >>> def body(x):
    ...     return x + 1.0, queue.enqueue(x * x)
    >>> @tf.function
    ... def squares():
    ...     return loops.repeat(4, body, [0.0])
    >>> _ = ipu_strategy.IPUStrategy().run(squares)
    >>> queue.dequeue().numpy().tolist()
    [0.0, 1.0, 4.0, 9.0]
    """

    def __init__(
        self,
        feed_name: str | IPUOutfeedMode | None = None,
        outfeed_mode: IPUOutfeedMode | None = None,
        device_ordinal: int = 0,
        replication_factor: int | None = None,
        io_batch_size: int = 1,
        *,
        buffer_depth: int | None = None,
        optimise_latency: bool = False,
    ):
        if isinstance(feed_name, IPUOutfeedMode):  # the order of later releases
            later: list[Any] = [outfeed_mode, device_ordinal, replication_factor]
            feed_name, outfeed_mode, replication_factor = None, feed_name, None
            if later[0] is not None:
                device_ordinal, buffer_depth = later[0], later[1] or buffer_depth
                optimise_latency = optimise_latency if later[2] is None else later[2]
        positive_or_none("buffer_depth", buffer_depth)
        checked_switch("optimise_latency", optimise_latency)
        mode = IPUOutfeedMode.ALL if outfeed_mode is None else outfeed_mode
        if not isinstance(mode, IPUOutfeedMode):
            raise noted(
                ValueError(
                    "Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` "
                    f"type, but is {type(outfeed_mode)}."
                ),
                f"Received: outfeed_mode={outfeed_mode!r}",
            )
        name = name_or_none("feed_name", feed_name)
        self._device_ordinal = checked_ordinal(device_ordinal)
        _warn_of_deprecated(
            feed_name=name is not None,
            replication_factor=positive_or_none("replication_factor", replication_factor)
            is not None,
            io_batch_size=positive_integer("io_batch_size", io_batch_size) != 1,
        )
        self._mode = mode
        self._name = name or unused_feed_name("outfeed")
        self._structure: Any = None
        self._queue: ResultQueue | None = None
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def enqueued(self) -> bool:
        """Whether a program of the current graph, or eagerly of none, writes to the queue."""
        return self._queue is not None and self._queue.is_of_current_graph

    def enqueue(self, tensors: Any) -> tf.Operation:
        """Sends a result, from within a function or the body of a loop.

        Args:
            tensors: A tensor, or a tuple or dict of tensors.

        Returns:
            The operation that sends it.

        Raises:
            ValueError: The same function sends to the queue twice.
            RuntimeError: There is no function that is being traced.
        """
        if tf.executing_eagerly():
            raise RuntimeError(
                "An IPUOutfeedQueue gets results of programs: call `enqueue` in a function that "
                f"`strategy.run` or `ipu_compiler.compile` is given. Received: {tensors!r}"
            )
        graph = outermost_graph()
        if graph in self._graphs:
            raise noted(
                ValueError("An outfeed can only be enqueued once."),
                "Send a tuple or a dict, or use another IPUOutfeedQueue. Received: a second "
                f"result for {self._name!r}",
            )
        self._graphs.add(graph)
        return self._enqueue(tensors)

    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """Takes what has arrived.

        Args:
            wait_for_completion: Whether to wait until the program that is running has ended.

        Returns:
            With `IPUOutfeedMode.ALL`, all results since the last call, stacked: tensors of
            `(results, ...)`, or `(results, replicas, ...)` if there are several replicas. With
            `IPUOutfeedMode.LAST` the last one, `(...)` or `(replicas, ...)`. In the structure of
            what was sent. In a graph of a session, these are tensors to run.

        Raises:
            ValueError: No program writes to the queue.
            tf.errors.FailedPreconditionError: With `IPUOutfeedMode.LAST`, nothing has been sent.
                In a session, when the tensors are run.
        """
        if self._queue is None:
            raise noted(
                ValueError("Trying to dequeue an outfeed which has not been enqueued."),
                f"Trace a function that calls its `enqueue` before. Received: {self._name!r}",
            )
        engine = DRIVER.known_device(self._device_ordinal).engine
        wait = engine.wait if wait_for_completion else lambda: None
        step = SessionStep(before=lambda _: wait(), explain=self._explain)
        if tf.executing_eagerly():
            wait()
        with tf.device("/device:CPU:0"):
            if self._mode is IPUOutfeedMode.ALL:
                tensors, size = self._queue.take()
                if not tf.executing_eagerly():
                    mark(size.op, step)
            else:
                tensors = self._last(step)
        return tf.nest.pack_sequence_as(self._structure, tensors)

    @property
    def deleter(self) -> tf.Operation | None:
        """Drops the results that are there; in a session's graph, returns an operation for it."""
        return None if self._queue is None else self._queue.close()

    def __iter__(self) -> Iterator[Any]:
        """Iterates over the results that have arrived.

        Raises:
            RuntimeError: This is in a graph, or the mode is `IPUOutfeedMode.LAST`.
        """
        if not tf.executing_eagerly():
            raise noted(
                RuntimeError("IPUOutfeedQueue can only be iterated over in eager mode."),
                f"Run what `dequeue` returns instead. Received: {self._name!r}",
            )
        if self._mode is IPUOutfeedMode.LAST:
            raise noted(
                RuntimeError(
                    "IPUOutfeedQueue can not be iterated over if the `outfeed_mode` is set to "
                    "`IPUOutfeedMode.LAST`."
                ),
                f"Call `dequeue`. Received: {self._name!r}",
            )
        tensors = tf.nest.flatten(self.dequeue())
        rows = zip(*map(tf.unstack, tensors), strict=True)
        return (tf.nest.pack_sequence_as(self._structure, row) for row in rows)

    def _enqueue(self, tensors: Any) -> tf.Operation:
        structure = converted(
            "tensors", lambda given: tf.nest.map_structure(tf.convert_to_tensor, given), tensors
        )
        flat = tf.nest.flatten(structure)
        if not flat:
            raise ValueError(
                f"`tensors` must have a tensor that is sent. Received: tensors={tensors!r}"
            )
        found = current_step_results()
        if found is None:
            if is_traced_for_model():
                return tf.no_op()
            return send(lambda num_replicas: self._queue_for(structure, num_replicas), flat)
        done = found.write(functools.partial(self._queue_for, structure), flat)
        with tf.control_dependencies(done):
            # Not by the name of the feed, which need not be one of an operation.
            return tf.no_op(name="outfeed")

    def _queue_for(
        self, structure: Any, num_replicas: int, dtype_of: Callable[[Any], tf.DType] | None = None
    ) -> ResultQueue:
        specs = [
            tf.TensorSpec(tensor.shape, tensor.dtype if dtype_of is None else dtype_of(tensor))
            for tensor in tf.nest.flatten(structure)
        ]
        if self._queue is None:
            for spec in specs:
                if not spec.shape.is_fully_defined():
                    raise ValueError(
                        "What is sent to an outfeed must have a fully defined shape, as IPU "
                        f"programs are static. Received: {spec} for {self._name!r}"
                    )
            self._queue = ResultQueue(specs, _MODES[self._mode], self._name, num_replicas)
            self._structure = tf.nest.map_structure(lambda tensor: 0, structure)
        elif is_traced_again() and list(self._queue.specs) == specs:
            self._queue.set_replicas(num_replicas)
        elif list(self._queue.specs) != specs or self._queue.num_replicas != num_replicas:
            raise ValueError(
                "All that is sent to an outfeed must have the same shapes and types. Received: "
                f"{specs} of {num_replicas} replicas, after {list(self._queue.specs)} of "
                f"{self._queue.num_replicas}, for {self._name!r}"
            )
        return self._queue

    def _last(self, step: SessionStep) -> list[tf.Tensor]:
        assert self._queue is not None
        if not tf.executing_eagerly():
            tensors = self._queue.last()
            mark(tensors[0].op, step)
            return tensors
        try:
            return self._queue.last()
        except tf.errors.InvalidArgumentError as error:
            self._explain(error)
            raise

    def _explain(self, error: Exception) -> None:
        # What `ResultQueue.last` fails with when the queue is empty.
        if "slice index -1" in str(error) and self._mode is IPUOutfeedMode.LAST:
            raise noted(
                tf.errors.FailedPreconditionError(
                    None,
                    None,
                    "Trying to get the last value from an outfeed queue before it was executed.",
                ),
                f"Make sure that the program that writes to it has run{_if_synthetic()}. "
                f"Received: {self._name!r}",
            ) from error


def _if_synthetic() -> str:
    if not current_flags().asks_for_synthetic(SyntheticDataCategory.Outfeed):
        return ""
    return (
        f", and take synthetic data of outfeeds out of {ENVIRONMENT_VARIABLE}: with it they send "
        "nothing"
    )


def _warn_of_deprecated(**given: bool) -> None:
    names = [f"`{name}`" for name, is_given in given.items() if is_given]
    if names:
        warnings.warn(
            f"{', '.join(names)} of feeds is deprecated: names are made, the device says how many "
            "replicas there are, and what is sent is taken one by one.",
            DeprecationWarning,
            stacklevel=3,
        )
