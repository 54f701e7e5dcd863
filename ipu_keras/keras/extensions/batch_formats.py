"""Finds out the formats of batches that users pass, each once."""

from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.feeds.dataset_feed import ElementFormat, dtype_of, element_format, mapped


class BatchFormats:
    """The formats of batches, each found out once.

    To find one out takes longer than a small step.
    """

    def __init__(self) -> None:
        self._known: dict[tuple, ElementFormat] = {}

    def of(self, batch: Any) -> ElementFormat:
        """Returns what `batch_format` does."""
        key = _flat_key(batch)
        if key is None:
            return batch_format(batch)
        if key not in self._known:
            self._known[key] = batch_format(batch)
        return self._known[key]

    def __contains__(self, batch: Any) -> bool:
        """Whether a batch is known to consist of arrays in types that programs take."""
        return _flat_key(batch) in self._known


def _flat_key(batch: Any) -> tuple | None:
    """Returns a key that batches of equal arrays share; None for batches of anything else."""
    if type(batch) is not tuple:
        return None
    if any(leaf is not None and type(leaf) is not np.ndarray for leaf in batch):
        return None
    return tuple(None if leaf is None else (leaf.shape, leaf.dtype) for leaf in batch)


def batch_format(batch: Any) -> ElementFormat:
    """Returns the format of one batch of arrays or tensors, in which `None` leaves stay."""

    def spec(leaf):
        if leaf is None:
            return None
        if isinstance(leaf, tf.SparseTensor | tf.RaggedTensor):
            return tf.type_spec_from_value(leaf)  # `element_format` refuses it
        return tf.TensorSpec(np.shape(leaf), dtype_of(leaf))

    return element_format(mapped(spec, batch))
