"""What one call of `fit`, `evaluate` or `predict` has open."""

from collections.abc import Callable

from keras.src.backend.tensorflow.trainer import TFEpochIterator
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

from ipu_keras.feeds import ElementFormat
from ipu_keras.keras.extensions import data_checks
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList
from ipu_keras.keras.extensions.dataset_feeds import (
    Check,
    DatasetFeeds,
    DatasetSource,
    PyDatasetSource,
)
from ipu_keras.keras.extensions.options import ExtensionOptions
from ipu_keras.runtime import Engine


class Run:
    """The feeds of one call, and the thread of its callbacks, until it returns or raises.

    Args:
        options: Of the model.
        engine: Of the device that runs the model.
        epochs: Epochs that share one pass over the data if `steps_per_epoch` is given.
        callbacks: The callbacks, if they run on a thread of their own.
    """

    def __init__(
        self,
        options: ExtensionOptions,
        engine: Engine,
        *,
        epochs: int = 1,
        callbacks: AsyncCallbackList | None = None,
    ):
        self._options = options
        self._engine = engine
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
        batches = data_checks.num_batches(epoch_iterator)
        data_checks.refuse_shortage(epoch_iterator, self._epochs)
        epoch_iterator.steps_per_execution = data_checks.executed_steps(
            epoch_iterator.steps_per_execution,
            batches,
            per_epoch=epoch_iterator.steps_per_epoch is not None,
        )
        source = _source_of(epoch_iterator)
        if self._callbacks is not None:
            # They were made before the number of steps was known.
            self._callbacks.set_params({**self._callbacks.params, "steps": batches})
        return DatasetFeeds(
            source,
            num_steps=epoch_iterator.steps_per_execution,
            prefetch_depth=self._options.prefetch_depth,
            check=check_for(source.element),
            name=self._options.infeed_name or "infeed",
            memory=self._engine.feed_memory,
        )


def _source_of(epoch_iterator: TFEpochIterator) -> DatasetSource | PyDatasetSource:
    adapter = epoch_iterator.data_adapter
    if isinstance(adapter, PyDatasetAdapter):
        return PyDatasetSource(adapter)
    return DatasetSource(adapter, epoch_iterator._distributed_dataset)
