"""What datasets and their iterators are made from.

A public dataset tells the types of its elements and how many there are, but not where they come
from.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.internals.forms import Class, Function, PrivateName

_DATASET = PrivateName("tensorflow", "data.Dataset", Class("_variant_tensor"))
_BATCH = PrivateName(
    "tensorflow.python.data.ops.batch_op",
    "_BatchDataset",
    Class(assigned=("_input_dataset", "_batch_size", "_drop_remainder")),
)
_OPTIONS = PrivateName(
    "tensorflow.python.data.ops.dataset_ops", "_OptionsDataset", Class(assigned=("_input_dataset",))
)
_PREFETCH = PrivateName(
    "tensorflow.python.data.ops.prefetch_op",
    "_PrefetchDataset",
    Class(assigned=("_input_dataset",)),
)
_REPEAT = PrivateName(
    "tensorflow.python.data.ops.repeat_op",
    "_RepeatDataset",
    Class(assigned=("_input_dataset", "_count")),
)
_SHUFFLE = PrivateName(
    "tensorflow.python.data.ops.shuffle_op",
    "_ShuffleDataset",
    Class(
        assigned=("_input_dataset", "_buffer_size", "_seed", "_seed2", "_reshuffle_each_iteration")
    ),
)
_SLICES = PrivateName(
    "tensorflow.python.data.ops.from_tensor_slices_op",
    "_TensorSliceDataset",
    Class(assigned=("_tensors",)),
)
# TensorFlow has it publicly from 2.20 on.
_NONE = PrivateName("tensorflow.python.framework.none_tensor", "NoneTensorSpec", Class())
_UNCHANGED_STRUCTURE = PrivateName(
    "tensorflow.python.data.ops.dataset_ops",
    "UnaryUnchangedStructureDataset",
    Class(members={"__init__": Function("self", "input_dataset", "variant_tensor")}),
)
_ITERATOR = PrivateName(
    "tensorflow.python.data.ops.iterator_ops",
    "OwnedIterator",
    Class(
        members={"_next_internal": Function("self")},
        assigned=("_dataset", "_flat_output_shapes", "_flat_output_types", "_iterator_resource"),
    ),
)


@dataclass(frozen=True)
class ChainedDataset:
    """A transformation or a source in a chain of datasets, and the dataset that it makes."""

    dataset: Any


class Batched(ChainedDataset):
    """The transformation `batch`."""

    @property
    def size(self) -> int:
        """The number of elements in a batch."""
        return int(self.dataset._batch_size)

    @property
    def samples(self) -> int:
        """The number of elements that are batched; negative if they are endless or not counted."""
        return int(self.dataset._input_dataset.cardinality())

    @property
    def drops_remainder(self) -> bool:
        """Whether a last smaller batch is left out."""
        return bool(self.dataset._drop_remainder)


class Repeated(ChainedDataset):
    """The transformation `repeat`."""

    @property
    def count(self) -> int:
        """How often the data is repeated; -1 for without end."""
        return int(self.dataset._count)


class Shuffled(ChainedDataset):
    """The transformation `shuffle`."""

    @property
    def buffer_size(self) -> int:
        """The number of elements that it draws from; below one for all."""
        return int(self.dataset._buffer_size)

    @property
    def seeds(self) -> tuple[int, int]:
        """The two seeds, which are zeros if none was set."""
        return int(self.dataset._seed), int(self.dataset._seed2)

    @property
    def reshuffles(self) -> bool:
        """Whether each pass over the data has an order of its own."""
        return bool(self.dataset._reshuffle_each_iteration)


class Sliced(ChainedDataset):
    """The source `from_tensor_slices`."""

    @property
    def tensors(self) -> list[tf.Tensor]:
        """The tensors whose rows are the elements."""
        return self.dataset._tensors


def steps_of(dataset: tf.data.Dataset) -> Iterator[ChainedDataset]:
    """Yields how a dataset is made, the last step first.

    `prefetch` and `with_options`, which leave the elements alone, are not among the steps.
    """
    kinds = {
        _BATCH.get(): Batched,
        _REPEAT.get(): Repeated,
        _SHUFFLE.get(): Shuffled,
        _SLICES.get(): Sliced,
    }
    step: Any = dataset
    while step is not None:
        step = without_read_ahead(step)
        yield kinds.get(type(step), ChainedDataset)(step)
        step = getattr(step, "_input_dataset", None)


def without_read_ahead(dataset: Any) -> Any:
    """Returns a dataset as it was before the `prefetch` and `with_options` that come last."""
    kinds = (_OPTIONS.get(), _PREFETCH.get())
    while isinstance(dataset, kinds):
        dataset = dataset._input_dataset
    return dataset


def is_none(spec: Any) -> bool:
    """Whether a part of an element's format stands for `None`."""
    return spec is None or isinstance(spec, _NONE.get())


def is_eager(dataset: tf.data.Dataset) -> bool:
    """Whether a dataset was made outside of functions, so that the tensors in it have values."""
    _DATASET.get()
    return hasattr(dataset._variant_tensor, "numpy")


def unchanged_structure_dataset() -> Any:
    """Returns the base of datasets that are structured like the one dataset they are made from."""
    return _UNCHANGED_STRUCTURE.get()


def eager_iterator() -> Any:
    """Returns the class of iterators outside of functions; the public one is an abstract base."""
    return _ITERATOR.get()


def flat_elements(iterator: Any) -> tuple[list[tf.DType], list[tf.TensorShape]]:
    """Returns the types and the shapes of the tensors in an eager iterator's elements."""
    _ITERATOR.get()
    return iterator._flat_output_types, iterator._flat_output_shapes


def resource_of(iterator: Any) -> tf.Tensor:
    """Returns the resource of an eager iterator; `flat_elements` has compared the forms before."""
    return iterator._iterator_resource
