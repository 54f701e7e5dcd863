"""Feeds that stand in place of the data that Keras iterates, and the sources of their batches."""

import contextlib
import copy
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from ipu_keras.feeds.dataset_feed import (
    DatasetFeed,
    ElementFeed,
    ElementFormat,
    checked,
    element_format,
)
from ipu_keras.internals.keras.data import ArrayDataAdapter, DataAdapter, PyDatasetAdapter
from ipu_keras.keras.extensions import data_checks
from ipu_keras.keras.extensions.batch_formats import batch_format
from ipu_keras.runtime import FeedMemory

# Called with the arrays of each batch; raises on values that no program must see.
Check = Callable[[list[np.ndarray]], None]


class Source(Protocol):
    """Where feeds get their batches from."""

    @property
    def element(self) -> ElementFormat:
        """The format of the batches."""

    def feed(self, check: Check | None, **options: Any) -> ElementFeed:
        """Returns a feed over one pass; `options` are the other arguments of `Feed`."""

    def close(self) -> None:
        """Stops what reads ahead."""


class DatasetFeeds:
    """What Keras iterates in place of a dataset: each pass gets a new feed.

    Args:
        num_batches: Batches in one execution, of all its steps and replicas.
        num_steps: Steps of each replica in a pass.
        prefetch_depth: Executions whose data is prepared ahead.
        name: Name of the feeds in errors.
        memory: Where the super-batches of the feeds lie.
    """

    def __init__(
        self,
        source: Source,
        *,
        num_batches: int,
        num_steps: int,
        prefetch_depth: int,
        check: Check | None,
        name: str,
        memory: FeedMemory,
    ):
        self.element = source.element
        self.num_steps = num_steps
        self._source = source
        self._check = check
        self._options = {
            "num_steps": num_batches,
            "prefetch_depth": prefetch_depth,
            "name": name,
            "memory": memory,
        }
        self._feed: ElementFeed | None = None

    def __iter__(self) -> ElementFeed:
        self._close_feed()
        self._feed = self._source.feed(self._check, **self._options)
        self._feed.open()
        return self._feed

    def close(self) -> None:
        """Stops the threads of the last pass."""
        # The source first: the feed may be waiting for a batch of the source's workers.
        self._source.close()
        self._close_feed()

    def _close_feed(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None


class DatasetSource:
    """Batches from the `tf.data.Dataset` that a data adapter of Keras has made."""

    def __init__(self, adapter: DataAdapter, dataset: tf.data.Dataset):
        spec = dataset.element_spec
        if isinstance(adapter, ArrayDataAdapter):
            # Keras leaves the batch axis open for a partial last batch, which has been refused
            # by now.
            spec = tf.nest.map_structure(
                lambda leaf: _with_batch_size(leaf, adapter.batch_size), spec
            )
        self.element = element_format(spec)
        self._dataset = dataset

    def feed(self, check: Check | None, **options: Any) -> ElementFeed:
        """Returns a feed over one pass."""
        return DatasetFeed(self._dataset, self.element, check=check, **options)

    def close(self) -> None:
        """Does nothing: the dataset's threads end with its iterator."""


class PyDatasetSource:
    """Batches from a `keras.utils.PyDataset`, without Keras's detour through `tf.data`.

    The detour would turn what the user's code raises into an error of TensorFlow, and hide the
    batch size.
    """

    def __init__(self, adapter: PyDatasetAdapter):
        self.element = self._format(adapter)
        # The copy takes the workers: Keras would stop them at the end of an epoch, when a feed
        # may already have read ahead into the next.
        self._adapter = copy.copy(adapter)
        adapter.enqueuer = None

    def feed(self, check: Check | None, **options: Any) -> ElementFeed:
        """Returns a feed over one pass."""

        def rows() -> Iterable[list[np.ndarray]]:
            batches = self._adapter.get_numpy_iterator()
            return checked(map(self.element.flatten, batches), check)

        return ElementFeed(rows, self.element, **options)

    def close(self) -> None:
        """Stops the workers."""
        enqueuer = self._adapter.enqueuer
        if enqueuer is not None:
            # `stop` raises what a worker raised on a batch that nobody will read.
            with contextlib.suppress(Exception):
                enqueuer.stop()

    @staticmethod
    def _format(adapter: PyDatasetAdapter) -> ElementFormat:
        def batch(index: int) -> Any:
            # Keras's method applies class weights and adds what users may leave out.
            return adapter._standardize_batch(adapter.py_dataset[index])

        element = batch_format(batch(0))
        if adapter.num_batches is not None:
            last = batch_format(batch(adapter.num_batches - 1))
            data_checks.refuse_partial_last(element, last)
        return element


def _with_batch_size(leaf: Any, batch_size: int) -> Any:
    if not isinstance(leaf, tf.TensorSpec):
        return leaf
    return tf.TensorSpec([batch_size, *leaf.shape[1:]], leaf.dtype)
