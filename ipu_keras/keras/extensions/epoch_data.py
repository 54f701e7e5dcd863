"""The data of one call of `fit`, `evaluate` or `predict`: Keras's iterator, and its one owner."""

from typing import Any

import tensorflow as tf

from ipu_keras.internals.keras.data import ArrayDataAdapter, DataAdapter, PyDatasetAdapter
from ipu_keras.internals.keras.training import TFEpochIterator
from ipu_keras.keras.extensions.array_data import ArraySource
from ipu_keras.keras.extensions.data_checks import refuse_partial_batch
from ipu_keras.keras.extensions.dataset_feeds import (
    DatasetFeeds,
    DatasetSource,
    PyDatasetSource,
    Source,
)


class EpochData:
    """What the checks and the feeds of a call need of Keras's iterator, and change of it.

    Args:
        iterator: Keras's iterator over the data, before its first pass.

    Raises:
        ValueError: Arrays whose last batch is a partial one.
    """

    def __init__(self, iterator: TFEpochIterator):
        self._iterator = iterator
        adapter = iterator.data_adapter
        if isinstance(adapter, ArrayDataAdapter):
            refuse_partial_batch(adapter.batch_size, adapter.partial_batch_size)

    @property
    def num_batches(self) -> int | None:
        """How many batches there are; `None` if nobody knows."""
        return self._iterator.data_adapter.num_batches

    @property
    def steps_per_epoch(self) -> int | None:
        """As given by the user; `None` if it was not."""
        return self._iterator.steps_per_epoch

    @property
    def steps_per_execution(self) -> int:
        """Steps of a replica in an execution."""
        return self._iterator.steps_per_execution

    @property
    def feeds(self) -> DatasetFeeds | None:
        """What is iterated in each epoch, once it has been replaced."""
        feeds = self._iterator._distributed_dataset
        return feeds if isinstance(feeds, DatasetFeeds) else None

    def is_endless(self) -> bool:
        """Whether the batches never end, as far as the data says."""
        dataset = self._iterator.data_adapter.get_tf_dataset()
        return bool(dataset.cardinality() == tf.data.INFINITE_CARDINALITY)

    def source(self) -> Source:
        """Where feeds have the batches from.

        Raises:
            ValueError: A shape is not fully defined, or the batches differ in shape.
            tf.errors.FailedPreconditionError: A feed cannot carry a dtype.
        """
        adapter = self._iterator.data_adapter
        if isinstance(adapter, PyDatasetAdapter):
            return PyDatasetSource(adapter)
        dataset = self._iterator._distributed_dataset
        return dataset if isinstance(dataset, ArraySource) else DatasetSource(adapter, dataset)

    def replace(
        self,
        feeds: DatasetFeeds,
        steps_per_execution: int,
        *,
        steps_per_epoch: int,
        batches_per_step: int,
    ) -> None:
        """Makes Keras iterate feeds, of which each gives the data of an execution.

        Args:
            feeds: In place of the dataset.
            steps_per_execution: What Keras counts on by.
            steps_per_epoch: Of each replica, which Keras counts if the user gave a number.
            batches_per_step: Batches that all replicas together take in a step. Keras takes
                the number of batches for the number of steps in an epoch.
        """
        iterator = self._iterator
        if batches_per_step > 1:
            iterator.data_adapter = _StepsOfReplicas(iterator.data_adapter, batches_per_step)
            iterator._num_batches = iterator.data_adapter.num_batches
        if iterator.steps_per_epoch is not None:
            iterator.steps_per_epoch = steps_per_epoch
        iterator.steps_per_execution = steps_per_execution
        # Keras has no method that exchanges what is iterated in each epoch.
        iterator._distributed_dataset = feeds


class _StepsOfReplicas:
    """A data adapter of Keras's that counts steps, in which every replica takes a batch.

    Keras takes the number of batches from it for the number of steps in an epoch.

    Args:
        adapter: Counts batches.
        num_replicas: How many a step takes.
    """

    def __init__(self, adapter: DataAdapter, num_replicas: int):
        self._adapter = adapter
        self._num_replicas = num_replicas

    @property
    def num_batches(self) -> int | None:
        batches = self._adapter.num_batches
        return None if batches is None else batches // self._num_replicas

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)
