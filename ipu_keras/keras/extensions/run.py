"""What one call of `fit`, `evaluate` or `predict` has open."""

from collections.abc import Callable
from typing import Any

from ipu_keras.feeds.dataset_feed import ElementFormat
from ipu_keras.internals.keras.data import DataAdapter, PyDatasetAdapter
from ipu_keras.internals.keras.training import TFEpochIterator
from ipu_keras.keras.extensions import data_checks
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList
from ipu_keras.keras.extensions.dataset_feeds import (
    Check,
    DatasetFeeds,
    DatasetSource,
    PyDatasetSource,
)
from ipu_keras.keras.extensions.model_pipeline import StagedCalls
from ipu_keras.keras.extensions.options import ExtensionOptions
from ipu_keras.runtime import Engine


class Run:
    """The feeds of one call, and the thread of its callbacks, until it returns or raises.

    Args:
        options: Of the model.
        engine: Of the device that runs the model.
        replicas_for: Returns how many replicas the model has, each of which takes a batch per
            step; the format of the batches is what it may have to be built for.
        epochs: Epochs that share one pass over the data if `steps_per_epoch` is given.
        trains: Whether it is `fit`.
        callbacks: The callbacks, if they run on a thread of their own.
    """

    def __init__(
        self,
        options: ExtensionOptions,
        engine: Engine,
        *,
        replicas_for: Callable[[ElementFormat], int] = lambda element: 1,
        epochs: int = 1,
        trains: bool = False,
        callbacks: AsyncCallbackList | None = None,
    ):
        self.trains = trains
        # What the model has found out of its pipeline stages during the call: a tuple of one.
        self.staged_calls: tuple[StagedCalls | None] | None = None
        self._options = options
        self._engine = engine
        self._replicas_for = replicas_for
        self._epochs = epochs
        self._callbacks = callbacks
        self._feeds: list[DatasetFeeds] = []

    def open_feeds(
        self,
        epoch_iterator: TFEpochIterator,
        check_for: Callable[[ElementFormat], Check | None],
    ) -> ElementFormat:
        """Makes Keras's iterator give feeds, if the data fits a static program.

        Args:
            epoch_iterator: Keras's iterator over the data, before its first pass.
            check_for: Returns how to check batches of a format.

        Returns:
            The format of the batches.

        Raises:
            ValueError: The data does not fit.
        """
        # Keras has no method that exchanges what is iterated in each epoch.
        feeds = epoch_iterator._distributed_dataset
        if not isinstance(feeds, DatasetFeeds):  # else the validation data of earlier epochs
            feeds = self._feeds_of(epoch_iterator, check_for)
            epoch_iterator._distributed_dataset = feeds
        self._feeds.append(feeds)
        return feeds.element

    def close(self) -> None:
        """Stops every thread that the call has started."""
        for feeds in self._feeds:
            feeds.close()
        if self._callbacks is not None:
            self._callbacks.close()

    def _feeds_of(self, epoch_iterator: TFEpochIterator, check_for) -> DatasetFeeds:
        self._num_steps(epoch_iterator, 1)
        source = _source_of(epoch_iterator)
        replicas = self._replicas_for(source.element)
        steps = self._num_steps(epoch_iterator, replicas)
        self._refuse_shortage(epoch_iterator, replicas)
        epoch_iterator.steps_per_execution = self._executed_steps(epoch_iterator, steps)
        if replicas > 1:
            adapter = _StepsOfReplicas(epoch_iterator.data_adapter, replicas)
            epoch_iterator.data_adapter = adapter
            epoch_iterator._num_batches = adapter.num_batches
        if self._callbacks is not None:
            # They were made before the number of steps was known.
            self._callbacks.set_params({**self._callbacks.params, "steps": steps})
        return DatasetFeeds(
            source,
            num_batches=epoch_iterator.steps_per_execution * replicas,
            prefetch_depth=self._options.prefetch_depth,
            check=check_for(source.element),
            name=self._options.infeed_name or "infeed",
            memory=self._engine.feed_memory,
        )

    # What differs between kinds of models.

    def _num_steps(self, epoch_iterator: TFEpochIterator, replicas: int) -> int:
        return data_checks.num_steps(epoch_iterator, replicas)

    def _refuse_shortage(self, epoch_iterator: TFEpochIterator, replicas: int) -> None:
        data_checks.refuse_shortage(epoch_iterator, self._epochs, replicas)

    def _executed_steps(self, epoch_iterator: TFEpochIterator, num_steps: int) -> int:
        return data_checks.executed_steps(
            epoch_iterator.steps_per_execution,
            num_steps,
            per_epoch=epoch_iterator.steps_per_epoch is not None,
        )


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


def _source_of(epoch_iterator: TFEpochIterator) -> DatasetSource | PyDatasetSource:
    adapter = epoch_iterator.data_adapter
    if isinstance(adapter, PyDatasetAdapter):
        return PyDatasetSource(adapter)
    return DatasetSource(adapter, epoch_iterator._distributed_dataset)
