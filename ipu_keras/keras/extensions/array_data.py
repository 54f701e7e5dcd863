"""The arrays that `fit`, `evaluate` and `predict` are given, in place of a `tf.data` pipeline."""

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

# Booleans, integers and floating point numbers, as NumPy calls their kinds.
_NUMBERS = "biuf"


class ArrayData(ArrayDataAdapter):
    """Keras's adapter of arrays, from which feeds take the batches.

    Keras makes a pipeline of `tf.data` of them. Checks, errors and weights of samples are Keras's.
    """

    def get_tf_dataset(self) -> Any:
        """An `ArraySource`; Keras's dataset of arrays that are sparse, ragged or no numbers."""
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
    """Arrays of which a pass leaves out what is no whole batch."""

    @property
    def num_left_out(self) -> int:
        """Rows that are no whole batch; of arrays from which Keras makes the batches none."""
        return (super().partial_batch_size or 0) if self._are_dense else 0

    @property
    def num_batches(self) -> int:
        """How many batches a pass has."""
        return super().num_batches - bool(self.num_left_out)

    @property
    def partial_batch_size(self) -> int | None:
        """Rows of a last batch that is no whole one, where it is not left out."""
        return None if self.num_left_out else super().partial_batch_size


class ArraySource:
    """Batches from arrays.

    Args:
        structure: That of a batch, with whole arrays at its leaves.
        leaves: These arrays.
        batch_size: Rows of a batch.
        shuffle: Their order, if it is not that of the arrays.
    """

    def __init__(self, structure: Any, leaves: list, batch_size: int, shuffle: Shuffle | None):
        self._structure = structure
        self._batch_size = batch_size
        # As in stock Keras, a callback that changes an array changes the next call only.
        self._batches = ArrayBatches([_kept(leaf) for leaf in leaves], batch_size, shuffle)

    @functools.cached_property
    def element(self) -> ElementFormat:
        """The format of the batches.

        Raises:
            tf.errors.InvalidArgumentError: A tensor is empty.
            tf.errors.FailedPreconditionError: A feed cannot carry a dtype.
        """

        def spec(leaf: Any) -> tf.TensorSpec | None:
            if leaf is None:
                return None
            return tf.TensorSpec([self._batch_size, *leaf.shape[1:]], leaf.dtype)

        return element_format(mapped(spec, self._structure))

    def feed(self, check: Check | None, **options: Any) -> ElementFeed:
        """A feed over one pass."""
        num_steps = options["num_steps"]
        # Nothing computes yet while the first super-batch is made.
        ahead = len(self._batches) > num_steps and worth_a_thread(self.element, num_steps)
        return ElementFeed(
            lambda: checked(self._batches, check), self.element, ahead=ahead, **options
        )

    def close(self) -> None:
        """Does nothing: arrays are not opened."""


def with_array_data(
    call: Mapping[str, Any], steps: int | None, adapter_class: type[ArrayData] = ArrayData
) -> dict[str, Any]:
    """The arguments of a call, in which arrays are the `x` that Keras takes as it is.

    Args:
        call: The arguments of `fit`, `evaluate` or `predict`, by name.
        steps: Of an epoch, as given by the user.
        adapter_class: What the arrays become.

    Raises:
        ValueError: As Keras: the arrays do not fit each other.
    """
    data = tuple(call.get(name) for name in ("x", "y", "sample_weight"))
    if isinstance(data[0], DataAdapter) or not are_arrays(data):
        return dict(call)
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
    """An array that nobody changes."""
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    return np.asarray(leaf) if isinstance(leaf, tf.Tensor) else leaf.numpy()


def _shuffle(shuffle: bool | str) -> Shuffle | None:
    if not shuffle:
        return None
    return Shuffle(seeds_in_a_function(), of_batches=shuffle == "batch")
