"""The data of one call of `fit`, `evaluate` or `predict`; only this module changes Keras's
iterator."""

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
    """Reads Keras's iterator for checks and feeds, and makes it iterate feeds instead of its
    data.

    The iterator must not have begun its first pass. Arrays with a partial last batch are
    refused.
    """

    def __init__(self, iterator: TFEpochIterator):
        self._iterator = iterator
        adapter = iterator.data_adapter
        if isinstance(adapter, ArrayDataAdapter):
            refuse_partial_batch(adapter.batch_size, adapter.partial_batch_size)

    @property
    def num_batches(self) -> int | None:
        """How many batches the data has; `None` if nobody knows."""
        return self._iterator.data_adapter.num_batches

    @property
    def steps_per_epoch(self) -> int | None:
        """The steps that the user gave; `None` if they gave none."""
        return self._iterator.steps_per_epoch

    @property
    def steps_per_execution(self) -> int:
        """Steps that each replica takes in one execution."""
        return self._iterator.steps_per_execution

    @property
    def feeds(self) -> DatasetFeeds | None:
        """The feeds that each epoch iterates; `None` before `replace`."""
        feeds = self._iterator._distributed_dataset
        return feeds if isinstance(feeds, DatasetFeeds) else None

    def is_endless(self) -> bool:
        """Whether the batches never end, as far as the data says."""
        dataset = self._iterator.data_adapter.get_tf_dataset()
        return bool(dataset.cardinality() == tf.data.INFINITE_CARDINALITY)

    def source(self) -> Source:
        """Returns where feeds get the batches from, or raises if no feed can carry them."""
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
        """Makes Keras iterate feeds, each item of which is the data of one execution.

        Args:
            steps_per_execution: The increment by which Keras counts steps.
            steps_per_epoch: Steps of each replica, which Keras uses only if the user gave a
                number.
            batches_per_step: Batches that all replicas together take in one step.
        """
        iterator = self._iterator
        # Keras takes the number of batches for the number of steps in an epoch.
        if batches_per_step > 1:
            iterator.data_adapter = _StepsOfReplicas(iterator.data_adapter, batches_per_step)
            iterator._num_batches = iterator.data_adapter.num_batches
        if iterator.steps_per_epoch is not None:
            iterator.steps_per_epoch = steps_per_epoch
        iterator.steps_per_execution = steps_per_execution
        # Keras has no method that exchanges what is iterated in each epoch.
        iterator._distributed_dataset = feeds


class _StepsOfReplicas:
    """A data adapter whose "batches" are steps, in each of which every replica takes a batch."""

    def __init__(self, adapter: DataAdapter, num_replicas: int):
        self._adapter = adapter
        self._num_replicas = num_replicas

    @property
    def num_batches(self) -> int | None:
        batches = self._adapter.num_batches
        return None if batches is None else batches // self._num_replicas

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)
