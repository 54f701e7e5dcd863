"""TensorFlow datasets as sources of feeds: element formats and dtype rules."""

import atexit
import contextlib
import copy
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.feeds.sliced_datasets import BatchedRows, sliced_dataset
from ipu_keras.internals.fallbacks import fallbacks
from ipu_keras.internals.tensorflow.datasets import (
    flat_elements,
    is_none,
    resource_of,
    without_read_ahead,
)
from ipu_keras.internals.tensorflow.shapes import static_sizes
from ipu_keras.ir import TensorSpec
from ipu_keras.program import FEED_DTYPES
from ipu_keras.runtime import Feed, FeedMemory, SuperBatch
from ipu_keras.settings.arguments import noted
from ipu_keras.settings.flags import PoplarFlags
from ipu_keras.settings.synthetic_data import infeed_array

# As on hardware, a super-batch for the running execution and two behind it.
PREFETCH_DEPTH = 3

# A thread takes longer than to copy as many bytes: to wake up, and to have Python's lock in turns.
_BYTES_WORTH_A_THREAD = 1 << 19

_LEAVES = (np.ndarray, tf.Tensor, tf.TensorSpec)

# How long the interpreter's exit waits for an iterator that is being deleted.
_DELETE_SECONDS = 5.0


@dataclass(frozen=True)
class ElementFormat:
    """How the elements of a dataset travel through a feed, as a row of arrays.

    Args:
        specs: The tensors of an element in the order of `tf.nest.flatten`.
        structure: The element's structure with, at each leaf, the tensor's position in `specs`,
            or `None` where the element has no tensor.
    """

    specs: tuple[TensorSpec, ...]
    structure: Any

    @functools.cached_property
    def key(self) -> tuple:
        """A value that formats have in common if their elements look the same."""
        return self.specs, repr(self.structure)

    @functools.cached_property
    def _positions(self) -> list[int | None]:
        return tf.nest.flatten(self.structure)

    def flatten(self, element: Any) -> list[np.ndarray]:
        is_flat = type(element) is tuple and len(element) == len(self.specs)
        if is_flat and all(type(leaf) is np.ndarray for leaf in element):
            # As mostly, and `tf.nest` takes 10 us to find that out.
            return list(element)
        leaves = zip(self._positions, tf.nest.flatten(element), strict=True)
        return [_array(leaf) for position, leaf in leaves if position is not None]

    def unflatten(self, tensors: Sequence[Any]) -> Any:
        return tf.nest.map_structure(
            lambda position: None if position is None else tensors[position], self.structure
        )


def mapped(function: Callable[[Any], Any], structure: Any) -> Any:
    """Does what `tf.nest.map_structure` does, which takes 20 us to find that an array is a leaf.

    Args:
        function: Called with the leaves in the order of `tf.nest.flatten`.

    Example:

    >>> mapped(len, {"b": (np.zeros(2), np.zeros(3)), "a": np.zeros(1)})
    {'b': (2, 3), 'a': 1}
    """
    if structure is None or isinstance(structure, _LEAVES):
        return function(structure)
    if type(structure) in (tuple, list):
        return type(structure)(mapped(function, part) for part in structure)
    if type(structure) is dict:
        # `tf.nest` visits keys in sorted order, and keeps the order of the dictionary in the
        # result.
        parts = {key: mapped(function, structure[key]) for key in sorted(structure)}
        return {key: parts[key] for key in structure}
    return tf.nest.map_structure(function, structure)


def element_format(element_spec: Any) -> ElementFormat:
    """Finds the format of a dataset's elements; float64 becomes float32, which is what feeds carry.

    Raises:
        ValueError: A shape is not fully defined.
        tf.errors.InvalidArgumentError: A tensor has no elements.
        tf.errors.FailedPreconditionError: A feed cannot carry the dtype.
        TypeError: A leaf is not a dense tensor.
    """
    specs: list[TensorSpec] = []

    def position(leaf):
        if is_none(leaf) or isinstance(leaf, tf.OptionalSpec):
            return None
        specs.append(_tensor_spec(leaf, len(specs)))
        return len(specs) - 1

    structure = mapped(position, element_spec)
    return ElementFormat(tuple(specs), structure)


def dtype_of(leaf: Any) -> tf.DType:
    return tf.as_dtype(getattr(leaf, "dtype", None) or np.asarray(leaf).dtype)


class ElementFeed(Feed):
    """A feed whose batches are rows of arrays, in the order of `element`, from any source."""

    def __init__(
        self,
        open_source: Callable[[], Iterable[Sequence[np.ndarray]]],
        element: ElementFormat,
        **options: Any,
    ):
        super().__init__(open_source, element.specs, **options)
        self.element = element


class SyntheticFeed(ElementFeed):
    """A feed without an end, whose super-batches are one and the same, of synthetic data.

    The source of the data is never read.
    """

    def __init__(self, element: ElementFormat, flags: PoplarFlags, **options: Any):
        batch = synthetic_element(element.specs, flags)
        super().__init__(lambda: itertools.repeat(batch), element, ahead=False, **options)
        self._super_batch: SuperBatch | None = None

    def __next__(self) -> SuperBatch:
        """Returns the super-batch, which is copied once."""
        if self._super_batch is None:
            self._super_batch = super().__next__()
        return self._super_batch


def synthetic_element(specs: Sequence[TensorSpec], flags: PoplarFlags) -> list[np.ndarray]:
    """Returns the arrays of the one element that infeeds give in place of a dataset's."""
    return [
        infeed_array(flags, spec.shape, spec.dtype, number) for number, spec in enumerate(specs)
    ]


class DatasetFeed(ElementFeed):
    """A feed over one pass of a dataset, whose elements are batches.

    Args:
        num_steps: Number of batches per super-batch.
        check: Called with the arrays of each batch before they can reach a program;
            raises on what the program must not see.
        memory: The memory of super-batches, if they share it with other feeds.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        element: ElementFormat,
        *,
        num_steps: int,
        prefetch_depth: int = PREFETCH_DEPTH,
        check: Callable[[list[np.ndarray]], None] | None = None,
        name: str = "infeed",
        memory: FeedMemory | None = None,
    ):
        sliced = _sliced(dataset)
        # Reading from TensorFlow waits, so it is done ahead on a thread, whatever the size.
        is_read = sliced is None or sliced.is_read
        super().__init__(
            lambda: checked(_opened(dataset, element), check),
            element,
            num_steps=num_steps,
            prefetch_depth=prefetch_depth,
            name=name,
            memory=memory,
            ahead=is_read or worth_a_thread(element, num_steps),
        )


def checked(
    batches: Iterable[list[np.ndarray]], check: Callable[[list[np.ndarray]], None] | None
) -> Iterable[list[np.ndarray]]:
    """Returns the same batches, each checked before it is given; `None` is no check."""
    if check is None:
        return batches

    def checking() -> Iterator[list[np.ndarray]]:
        for arrays in batches:
            check(arrays)
            yield arrays

    return checking()


def worth_a_thread(element: ElementFormat, num_steps: int) -> bool:
    """Whether copying super-batches of arrays at hand takes long enough for a thread."""
    return num_steps * sum(spec.nbytes for spec in element.specs) >= _BYTES_WORTH_A_THREAD


def tensors_of(super_batch: SuperBatch) -> list[tf.Tensor]:
    """Returns the tensors of a super-batch on the host, without a copy."""
    return [tf.experimental.dlpack.from_dlpack(capsule) for capsule in super_batch.capsules()]


def without_prefetch(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the same elements without a thread of the dataset's own that reads ahead.

    A feed's thread does that. TensorFlow's would hand each batch over to it, which takes as long
    as making a small one. All calls return one dataset: a new one costs TensorFlow some 10 ms
    when it is first iterated.

    Args:
        dataset: Ends in `prefetch`, or TensorFlow appends it, or not. Other sources are returned.
    """
    if not isinstance(dataset, tf.data.Dataset):
        return dataset
    owner = _owner(dataset)
    if not hasattr(owner, "_ipu_without_prefetch"):
        # A copy of the Python object, as what is kept must not keep its keeper.
        kept = copy.copy(owner)
        inner = fallbacks().attempt("datasets without prefetch", without_read_ahead, kept)
        inner = kept if inner is None else inner
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        owner._ipu_without_prefetch = inner.with_options(owner.options().merge(options))
    return owner._ipu_without_prefetch


def _opened(dataset: tf.data.Dataset, element: ElementFormat) -> Iterator[list[np.ndarray]]:
    """Returns the elements of a dataset as rows of arrays; the dataset is open then.

    That counts: each opening of a shuffled dataset takes the seeds of a pass, and Keras opens
    one that it does not read after every epoch.
    """
    batches = _batches(dataset, element)
    next(batches, None)
    return _ended_with_the_last(batches, int(dataset.cardinality()))


def _ended_with_the_last(
    batches: Iterator[list[np.ndarray]], num_batches: int
) -> Iterator[list[np.ndarray]]:
    """Yields the same batches, the last one once it is known that none follows.

    A repeated dataset is opened once more to find out. Whoever has the last batch may open it
    for another epoch, which has to come after that.
    """
    for index, batch in enumerate(batches, start=1):
        beyond = next(batches, None) if index == num_batches else None
        yield batch
        if beyond is not None:  # the dataset has more than it said
            yield beyond


def _batches(dataset: tf.data.Dataset, element: ElementFormat) -> Iterator[list[np.ndarray]]:
    """Yields nothing when the dataset is open, then the rows of its elements."""
    sliced = _sliced(dataset)
    if sliced is None:
        with _rows(without_prefetch(dataset), element) as rows:
            yield []
            yield from rows
        return
    passes = itertools.count() if sliced.num_passes < 0 else range(sliced.num_passes)
    for index in passes:
        read = _rows(sliced.one_pass, element) if sliced.is_read else contextlib.nullcontext()
        with read as rows:
            if index == 0:
                yield []
            yield from sliced.batches(rows)
    if sliced.num_passes > 1 and sliced.is_read:
        # TensorFlow opens the dataset once more when the last repetition ends, which takes
        # seeds.
        with _rows(sliced.one_pass, element):
            pass


def _sliced(dataset: tf.data.Dataset) -> BatchedRows | None:
    """Returns the arrays of a dataset, in every call the same object: it counts the passes."""
    if not isinstance(dataset, tf.data.Dataset) or not _is_flat(dataset.element_spec):
        return None
    owner = _owner(dataset)
    if not hasattr(owner, "_ipu_sliced"):
        owner._ipu_sliced = sliced_dataset(without_prefetch(owner))
    return owner._ipu_sliced


def _owner(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset that keeps what is found out: a strategy makes copies of it."""
    return getattr(dataset, "_ipu_copy_of", dataset)


@contextlib.contextmanager
def _rows(dataset: tf.data.Dataset, element: ElementFormat) -> Iterator[Iterator[list[np.ndarray]]]:
    """Opens the elements of a dataset as rows of arrays, as TensorFlow reads them.

    The dataset's iterator is not waited for when it ends: TensorFlow deletes it only when its
    autotuner next wakes up, which takes up to the time that the iterator has lived. That happens
    on a thread of its own, for which only the interpreter's exit waits; once it is exiting,
    whoever stops the feed does.
    """
    iterators = [iter(dataset)]
    flat = None
    if _is_flat(dataset.element_spec):
        flat = fallbacks().attempt("flat elements", flat_elements, iterators[0])
    try:
        yield _read(iterators, element) if flat is None else _read_flat(iterators, *flat)
    finally:
        if threading.main_thread().is_alive():
            deleting = threading.Thread(target=_delete, args=(iterators,), daemon=True)
            atexit.register(deleting.join, _DELETE_SECONDS)
            deleting.start()
        else:
            iterators.clear()


def _delete(iterators: list[Any]) -> None:
    iterators.clear()
    atexit.unregister(threading.current_thread().join)


# Both readers look the iterator up for every element, and so hold no reference
# to it when they are left.


def _read(iterators: list[Any], element: ElementFormat) -> Iterator[list[np.ndarray]]:
    with contextlib.suppress(StopIteration):
        while True:
            yield element.flatten(next(iterators[0]))


def _read_flat(
    iterators: list[Any], types: list[tf.DType], shapes: list[tf.TensorShape]
) -> Iterator[list[np.ndarray]]:
    """Reads tensors with the op itself.

    `next` of TensorFlow's iterator takes more than twice as long, to rebuild structures that are
    flattened here. Joining batches in tf.data would be as fast, but a new dataset costs 10 ms in
    every epoch.
    """
    with contextlib.suppress(tf.errors.OutOfRangeError):
        while True:
            tensors = tf.raw_ops.IteratorGetNext(
                iterator=resource_of(iterators[0]), output_types=types, output_shapes=shapes
            )
            # Arrays of the tensors' own memory; their method `numpy` makes copies.
            yield [np.asarray(tensor) for tensor in tensors]


def _is_flat(element_spec: Any) -> bool:
    """Whether a dataset's tensors are those of the element, in the same order."""
    return all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(element_spec))


def _array(leaf: Any) -> np.ndarray:
    if isinstance(leaf, np.ndarray):
        return leaf
    return leaf.numpy() if tf.is_tensor(leaf) else np.asarray(leaf)


def _how_to_cast(dtype: tf.DType) -> str:
    if dtype == tf.string:
        return "which for texts is what the layer or function does that makes numbers of them."
    wanted = "float32" if dtype.is_floating or dtype.is_complex else "int32"
    return f"or cast the array before passing it, for instance to {wanted}."


def _tensor_spec(leaf: Any, index: int) -> TensorSpec:
    if not isinstance(leaf, tf.TensorSpec):
        raise TypeError(
            f"An IPU feed carries dense tensors. Received: {type(leaf).__name__} at index {index}; "
            "convert it, for instance with `to_tensor()` or `tf.sparse.to_dense`."
        )
    if not leaf.shape.is_fully_defined():
        raise noted(
            ValueError(
                f"The provided set of data contains a shape {leaf.shape} which is not fully "
                "defined. Executing on IPU requires all shapes to be known when the program is "
                "compiled: batch with `drop_remainder=True` or give the shape."
            ),
            f"Received: index {index} of the element",
        )
    if 0 in leaf.shape:
        raise noted(
            tf.errors.InvalidArgumentError(
                None,
                None,
                "Detected an input tensor to an infeed queue with a dimension of size 0. "
                "Please remove it from the inputs.",
            ),
            f"Received: shape {leaf.shape} at index {index} of the element",
        )
    dtype = "float32" if leaf.dtype == tf.float64 else leaf.dtype.name
    if dtype not in FEED_DTYPES:
        raise tf.errors.FailedPreconditionError(
            None,
            None,
            f"Unsupported datatype {dtype} on index {index} of feed operation. An IPU feed carries "
            f"{', '.join(FEED_DTYPES)}. You should use a tf.data.Dataset.map() operation to cast "
            f"the element, {_how_to_cast(leaf.dtype)}",
        )
    return TensorSpec(static_sizes(leaf), dtype)
