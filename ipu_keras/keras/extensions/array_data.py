"""Arrays given to `fit`, `evaluate` and `predict`, read without a `tf.data` pipeline."""

import functools
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import tree

from ipu_keras.feeds.array_batches import ArrayBatches, Shuffle
from ipu_keras.feeds.dataset_feed import (
    ElementFeed,
    ElementFormat,
    checked,
    element_format,
    mapped,
    worth_a_thread,
)
from ipu_keras.internals.keras.data import (
    ArrayDataAdapter,
    DataAdapter,
    are_arrays,
    shuffle_of,
    sliced_arrays,
)
from ipu_keras.internals.tensorflow.contexts import seeds_in_a_function
from ipu_keras.keras.extensions.dataset_feeds import Check

# NumPy's letters for the kinds that feeds carry: booleans, integers and floating point numbers.
_NUMBERS = "biuf"


class ArrayData(ArrayDataAdapter):
    """Keras's adapter of arrays, except that feeds cut the batches out of the arrays.

    Keras would make a `tf.data` pipeline, which costs more than the copy of a small batch. The
    checks, the errors and the sample weights remain Keras's.
    """

    def get_tf_dataset(self) -> Any:
        """Returns an `ArraySource`, or Keras's dataset where an array is sparse, ragged or not
        of numbers."""
        if not self._are_dense:
            return super().get_tf_dataset()
        shuffle = _shuffle(shuffle_of(self))
        return ArraySource(self._arrays, self._leaves, self.batch_size, shuffle)

    @functools.cached_property
    def _arrays(self) -> Any:
        return sliced_arrays(self)

    @property
    def _leaves(self) -> list:
        return [leaf for leaf in tree.flatten(self._arrays) if leaf is not None]

    @property
    def _are_dense(self) -> bool:
        return all(map(_is_dense, self._leaves))


class WholeBatches(ArrayData):
    """Arrays whose passes leave out the rows at the end that fill no batch."""

    @property
    def num_left_out(self) -> int:
        """Rows that fill no batch; 0 for arrays that Keras's own dataset batches."""
        return (super().partial_batch_size or 0) if self._are_dense else 0

    @property
    def num_batches(self) -> int:
        """How many batches a pass has."""
        return super().num_batches - bool(self.num_left_out)

    @property
    def partial_batch_size(self) -> int | None:
        """Rows of a smaller last batch that is not left out; `None` if there is none."""
        return None if self.num_left_out else super().partial_batch_size


class ArraySource:
    """Cuts batches from arrays, shuffled if `shuffle` is given.

    `structure` is that of a batch, whose leaves are the whole arrays or None; `leaves` has the
    arrays among these.
    """

    def __init__(self, structure: Any, leaves: list, batch_size: int, shuffle: Shuffle | None):
        self._structure = structure
        self._batch_size = batch_size
        # A copy: as in stock Keras, a callback that changes an array changes the next call only.
        self._batches = ArrayBatches([_kept(leaf) for leaf in leaves], batch_size, shuffle)

    @functools.cached_property
    def element(self) -> ElementFormat:
        """The format of the batches; an error if a tensor is empty or of a type that feeds
        cannot carry."""

        def spec(leaf: Any) -> tf.TensorSpec | None:
            if leaf is None:
                return None
            return tf.TensorSpec([self._batch_size, *leaf.shape[1:]], leaf.dtype)

        return element_format(mapped(spec, self._structure))

    def feed(self, check: Check | None, **options: Any) -> ElementFeed:
        """Returns a feed over one pass."""
        num_steps = options["num_steps"]
        # A single execution gains nothing from a thread that prepares the next: nothing computes
        # yet while the first super-batch is made.
        ahead = len(self._batches) > num_steps and worth_a_thread(self.element, num_steps)
        return ElementFeed(
            lambda: checked(self._batches, check), self.element, ahead=ahead, **options
        )

    def close(self) -> None:
        """Does nothing: arrays are not opened."""


def with_array_data(
    call: Mapping[str, Any], steps: int | None, adapter_class: type[ArrayData] = ArrayData
) -> dict[str, Any]:
    """Returns the arguments of a call, in which arrays have become an adapter that stands for
    `x`.

    Keras takes a data adapter as it is, and would wrap anything else anew. Its checks of the
    arrays have run then. `steps` are those of an epoch that the user gave, None for none.
    """
    data = tuple(call.get(name) for name in ("x", "y", "sample_weight"))
    if isinstance(data[0], DataAdapter) or not are_arrays(data):
        return dict(call)
    # The setting that Keras applies to the adapters that it makes itself.
    most = keras.config.max_steps_per_epoch()
    adapter = adapter_class(
        *data,
        batch_size=call["batch_size"],
        steps=min(most, steps or most) if most else steps,
        shuffle=call.get("shuffle", False),
        class_weight=call.get("class_weight"),
    )
    return {**call, "x": adapter, "y": None, "sample_weight": None}


def _is_dense(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray):
        return leaf.dtype.kind in _NUMBERS
    return isinstance(leaf, tf.Tensor | tf.Variable) and (
        leaf.dtype.is_numeric or leaf.dtype.is_bool
    )


def _kept(leaf: np.ndarray | tf.Tensor | tf.Variable) -> np.ndarray:
    """Returns a copy that nobody changes."""
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    return np.asarray(leaf) if isinstance(leaf, tf.Tensor) else leaf.numpy()


def _shuffle(shuffle: bool | str) -> Shuffle | None:
    if not shuffle:
        return None
    return Shuffle(seeds_in_a_function(), of_batches=shuffle == "batch")
