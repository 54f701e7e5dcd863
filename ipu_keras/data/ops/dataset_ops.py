"""Datasets that are made of others."""

from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.datasets import unchanged_structure_dataset
from ipu_keras.settings.arguments import positive_integer

_Base: Any = unchanged_structure_dataset()


class BufferDataset(_Base):
    """A dataset whose number of elements is a multiple of a number.

    It reads `buffer_size` elements before it hands out the first of them. If there are fewer
    left, it ends: the last few elements of `input_dataset` may be left out.

    Args:
        input_dataset: A `tf.data.Dataset` of tensors.
        buffer_size: How many elements are read at a time.

    Raises:
        TypeError: `input_dataset` is no dataset, or has elements that are `None`.
        ValueError: `buffer_size` is no positive integer.

    Example:

    >>> dataset = BufferDataset(tf.data.Dataset.range(8), buffer_size=3)
    >>> [int(element) for element in dataset]
    [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, input_dataset: tf.data.Dataset, buffer_size: int):
        if not isinstance(input_dataset, tf.data.Dataset | tf.compat.v1.data.Dataset):
            raise TypeError(
                "`input_dataset` must be a tf.data.Dataset. Received: "
                f"input_dataset={input_dataset!r} of type {type(input_dataset).__name__}"
            )
        size = positive_integer("buffer_size", buffer_size)
        # TensorFlow cannot make elements that have None out of a window again.
        specs = tf.nest.flatten(input_dataset.element_spec)
        if any(spec.is_compatible_with(None) for spec in specs):
            raise TypeError(
                "`input_dataset` must have tensors in its elements, and nothing that is None: "
                f"leave it out with `map`. Received: elements of {input_dataset.element_spec}"
            )
        # Windows take elements of any kind, also those that cannot be stacked.
        self._buffered = input_dataset.window(size, drop_remainder=True).flat_map(_elements)
        if (count := _num_elements(input_dataset, size)) is not None:
            self._buffered = self._buffered.apply(tf.data.experimental.assert_cardinality(count))
        super().__init__(input_dataset, tf.data.experimental.to_variant(self._buffered))


def _num_elements(input_dataset: tf.data.Dataset, size: int) -> int | None:
    """Returns how many elements there will be, maybe infinitely many; `None` if unknown."""
    count = tf.get_static_value(input_dataset.cardinality())
    if count is None or count == tf.data.UNKNOWN_CARDINALITY:
        return None
    return int(count) if count == tf.data.INFINITE_CARDINALITY else int(count // size * size)


def _elements(*window: Any) -> tf.data.Dataset:
    """Returns the elements of a window, which has a dataset for each tensor of an element."""
    datasets = window[0] if len(window) == 1 else window
    return datasets if isinstance(datasets, tf.data.Dataset) else tf.data.Dataset.zip(datasets)
