"""Infeeds: datasets as loops and pipelines within functions read them."""

import warnings
from typing import Any

import tensorflow as tf

from ipu_keras.feeds.dataset_iterators import DatasetIterator
from ipu_keras.functions.graph_programs import note_infeed
from ipu_keras.functions.replicas import note_read
from ipu_keras.functions.sessions import SessionStep, mark
from ipu_keras.internals.tensorflow.functions import unused_number
from ipu_keras.program.data_types import FEED_DTYPES
from ipu_keras.settings.arguments import (
    MOST,
    checked_switch,
    integer_in,
    name_or_none,
    noted,
    positive_integer,
)
from ipu_keras.tracing.infeeds import infeed_of

_MAX_PREFETCH_DEPTH = 255
_DEFAULT_PREFETCH_DEPTH = 3


class IPUInfeedQueue:
    """A dataset of which `loops` and `pipelining_ops.pipeline` read one element in each step.

    Give it to them, and initialize it before they run: in a session by running `initializer`,
    else by reading that property. The elements become arguments of a loop's body: the parts of a
    tuple one after the other, those of a dict by name.

    Args:
        dataset: A `tf.data.Dataset` whose elements are structures of dense tensors of fully
            defined shapes.
        feed_name: Deprecated: what errors call the queue.
        device_ordinal: Which device reads the queue, the k of `/device:IPU:k`.
        replication_factor: Deprecated: the device says how many replicas there are. Element k is
            for replica k modulo their number.
        data_to_prefetch: Deprecated: `prefetch_depth` says it.
        prefetch_depth: How many elements are read ahead, 1 to 255. Defaults to 3.
        optimise_latency: An argument of later releases: whether small elements are sent faster,
            by a further copy. It changes no result, and the cost model has one way to send them.

    Later releases have `device_ordinal` and `prefetch_depth` after the dataset: they are taken in
    this order if a number comes first.

    Raises:
        TypeError: `dataset` is no dataset, or a part of its elements is no dense tensor.
        ValueError: A shape is not fully defined, or a number is out of its range.

    Example:

    >>> import tensorflow as tf
    >>> from ipu_keras import ipu_strategy, loops
    >>> queue = IPUInfeedQueue(tf.data.Dataset.range(4).map(lambda k: tf.cast(k, tf.float32)))
    >>> queue.initializer
    >>> @tf.function
    ... def total():
    ...     return loops.repeat(4, lambda sum, x: sum + x, [0.0], queue)
    >>> float(ipu_strategy.IPUStrategy().run(total))
    6.0
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        feed_name: str | int | None = None,
        device_ordinal: int = 0,
        replication_factor: int = 1,
        data_to_prefetch: int = 1,
        prefetch_depth: int | None = None,
        *,
        optimise_latency: bool = False,
    ):
        if integer_in(feed_name) is not None:  # the order of later releases
            prefetch_depth = device_ordinal or prefetch_depth
            device_ordinal, feed_name = feed_name, None  # type: ignore[assignment]
        checked_switch("optimise_latency", optimise_latency)
        if not isinstance(dataset, tf.data.Dataset | tf.compat.v1.data.Dataset):
            raise TypeError(
                "`dataset` must be a tf.data.Dataset. "
                f"Received: dataset={dataset!r} of type {type(dataset).__name__}"
            )
        _check_shapes(dataset.element_spec)
        name = name_or_none("feed_name", feed_name)
        self._device_ordinal = checked_ordinal(device_ordinal)
        _warn_of_deprecated(
            feed_name=name is not None,
            replication_factor=positive_integer("replication_factor", replication_factor) != 1,
            data_to_prefetch=positive_integer("data_to_prefetch", data_to_prefetch) != 1,
        )
        depth = _prefetch_depth(prefetch_depth)
        self._iterator = DatasetIterator(dataset, name or unused_feed_name("infeed"), depth)
        self._dequeued = False
        self._initializer: tf.Operation | None = None

    @property
    def dequeued(self) -> bool:
        """Whether a loop or a pipeline reads the queue."""
        return self._dequeued

    @property
    def number_of_tuple_elements(self) -> int:
        """How many tensors an element has."""
        return len(tf.nest.flatten(self._iterator.element_spec))

    @property
    def initializer(self) -> tf.Operation | None:
        """Begins with the first element of the dataset.

        Returns:
            In a graph of a session, the operation that does it. Else it is done whenever this
            property is read, and `None` returned.

        Raises:
            ValueError: In a graph, the property was read before.
            tf.errors.FailedPreconditionError: The dataset has elements of a type that an IPU's
                feeds do not carry, such as int64. In a session, when the operation is run.
        """
        if tf.executing_eagerly():
            self._check_dtypes()
            self._iterator.begin()
            return None
        if self._initializer is not None:
            raise noted(
                ValueError("The IPUInfeedQueue `initializer` function can only be accessed once."),
                f"Keep the operation that it returned. Received: {self._iterator.name!r}",
            )
        self._initializer = self._iterator.begin()
        mark(self._initializer, SessionStep(before=lambda _: self._check_dtypes()))
        return self._initializer

    @property
    def deleter(self) -> tf.Operation | None:
        """Forgets the elements; in a graph of a session, returns the operation that does it."""
        if tf.executing_eagerly() and not self._iterator.began:
            self._refuse_deletion()
        deleter = self._iterator.delete()
        if deleter is not None:
            mark(deleter, SessionStep(explain=self._explain_deletion))
        return deleter

    def get_next(self) -> Any:
        """Obsolete: give the queue to a loop or a pipeline.

        Raises:
            NotImplementedError: Whenever it is called.
        """
        raise NotImplementedError(
            "`IPUInfeedQueue.get_next` is obsolete: pass the queue as `infeed_queue` to "
            "`ipu.loops.repeat`, `ipu.loops.while_loop` or `ipu.pipelining_ops.pipeline`."
        )

    @property
    def _elements(self) -> DatasetIterator:
        """The iterator that programs read; whoever asks for it makes the queue `dequeued`."""
        self._dequeued = True
        return self._iterator

    def _dequeue(self) -> Any:
        """Returns the next element, read in the function that is being traced."""
        elements = self._elements
        instead = infeed_of(elements)
        if instead is not None:
            return next(instead)
        note_read()
        note_infeed(elements)
        return elements.read()

    def _check_dtypes(self) -> None:
        for index, spec in enumerate(tf.nest.flatten(self._iterator.element_spec)):
            if spec.dtype.name not in FEED_DTYPES:
                raise tf.errors.FailedPreconditionError(
                    None,
                    None,
                    f"Unsupported datatype {spec.dtype.name} on index {index} of feed operation "
                    f"{self._iterator.name}. You should use a tf.data.Dataset.map() operation to "
                    f"cast the element to one of {', '.join(FEED_DTYPES)}.",
                )
            if 0 in spec.shape:
                raise noted(
                    tf.errors.InvalidArgumentError(
                        None,
                        None,
                        "Detected an input tensor to an infeed queue with a dimension of size "
                        "0. Please remove it from the inputs.",
                    ),
                    f"Received: shape {spec.shape} at index {index} of {self._iterator.name}",
                )

    def _refuse_deletion(self) -> None:
        raise tf.errors.NotFoundError(
            None,
            None,
            f"Infeed with id='{self._iterator.name}' not found: there is nothing to delete before "
            "its `initializer` has run.",
        )

    def _explain_deletion(self, error: Exception) -> None:
        if isinstance(error, tf.errors.NotFoundError):
            self._refuse_deletion()


def check_infeed(infeed_queue: Any) -> None:
    """Raises a `TypeError` for anything but an `IPUInfeedQueue` or `None`."""
    if infeed_queue is not None and not isinstance(infeed_queue, IPUInfeedQueue):
        raise TypeError(
            "`infeed_queue` must be an IPUInfeedQueue. "
            f"Received: infeed_queue={infeed_queue!r} of type {type(infeed_queue).__name__}"
        )


def checked_ordinal(device_ordinal: Any) -> int:
    """Returns the number of a device, or raises a `ValueError`."""
    ordinal = integer_in(device_ordinal)
    if ordinal is None or not 0 <= ordinal <= MOST:
        raise noted(
            ValueError("Device ordinal must be >= 0"),
            "`device_ordinal` is the k of '/device:IPU:k'. Received: "
            f"device_ordinal={device_ordinal!r}",
        )
    return ordinal


def unused_feed_name(kind: str) -> str:
    """Returns a name that begins with `kind` and that no other feed of the process has."""
    return f"{kind}_{unused_number()}"


def _prefetch_depth(prefetch_depth: Any) -> int:
    if prefetch_depth is None:
        return _DEFAULT_PREFETCH_DEPTH
    depth = integer_in(prefetch_depth)
    if depth is None or depth < 1:
        raise noted(
            ValueError(f"prefetch_depth must be greater than zero, but it is {prefetch_depth}"),
            "It is the number of elements that are read ahead. "
            f"Received: prefetch_depth={prefetch_depth!r}",
        )
    if depth > _MAX_PREFETCH_DEPTH:
        raise ValueError(
            f"prefetch_depth must be less than {_MAX_PREFETCH_DEPTH + 1}, but it is {depth}"
        )
    return depth


def _check_shapes(element_spec: Any) -> None:
    for spec in tf.nest.flatten(element_spec):
        if not isinstance(spec, tf.TensorSpec):
            raise TypeError(
                "An IPU feed carries dense tensors; convert it in the dataset, for instance with "
                f"`tf.sparse.to_dense`. Received: {spec}"
            )
        if not spec.shape.is_fully_defined():
            raise ValueError(
                f"Output shape {spec.shape} is not fully defined. If using tf.Dataset.batch, set "
                "`drop_remainder=True`."
            )


def _warn_of_deprecated(**given: bool) -> None:
    names = [f"`{name}`" for name, is_given in given.items() if is_given]
    if names:
        warnings.warn(
            f"{', '.join(names)} of feeds is deprecated: names are made, the device says how many "
            "replicas there are, and `prefetch_depth` how much is read ahead.",
            DeprecationWarning,
            stacklevel=3,
        )
