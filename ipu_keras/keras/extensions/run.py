"""The feeds and the callback thread of one call of `fit`, `evaluate` or `predict`."""

from collections.abc import Callable
from typing import Any

from ipu_keras.feeds.dataset_feed import ElementFormat
from ipu_keras.keras.extensions import data_checks
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList
from ipu_keras.keras.extensions.dataset_feeds import Check, DatasetFeeds
from ipu_keras.keras.extensions.epoch_data import EpochData
from ipu_keras.keras.extensions.model_stages import StagedCalls
from ipu_keras.keras.extensions.option_checks import ExtensionOptions
from ipu_keras.runtime import Engine


class Run:
    """The feeds of one call, and the thread of its callbacks, until it returns or raises.

    Args:
        replicas_for: Returns how many replicas the model has, each of which takes a batch per
            step; it may have to build the model for the format of the batches first.
        epochs: Epochs that share one pass over the data if `steps_per_epoch` is given.
        callbacks: The callbacks, if they run on a thread of their own; else `None`.
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
        # The format of the batches, once it is known.
        self.element: ElementFormat | None = None
        # The most steps that the call will run, once its data is known.
        self.num_steps = 0
        # Makes Keras's iterator over the validation data of `fit`, if there is any.
        self.validation_iterator: Callable[[], Any] | None = None
        # The model's pipeline stages as found during the call, in a tuple of one; `None` if not
        # looked for yet.
        self.staged_calls: tuple[StagedCalls | None] | None = None
        self._options = options
        self._engine = engine
        self._replicas_for = replicas_for
        self._epochs = epochs
        self._callbacks = callbacks
        self._feeds: list[DatasetFeeds] = []

    def open_feeds(
        self, data: EpochData, check_for: Callable[[ElementFormat], Check | None]
    ) -> ElementFormat:
        """Makes Keras's iterator give feeds, and returns the format of its batches.

        In `fit` this is called for the validation data, too, once for each epoch. `check_for`
        returns how to check batches of a format, or None for no check.
        """
        feeds = data.feeds
        if feeds is None:
            feeds = self._made_feeds(data, check_for)
        self._feeds.append(feeds)
        self.num_steps += feeds.num_steps * self._epochs
        return feeds.element

    def close(self) -> None:
        """Stops every thread that the call has started."""
        for feeds in self._feeds:
            feeds.close()
        if self._callbacks is not None:
            self._callbacks.close()

    def _made_feeds(self, data: EpochData, check_for) -> DatasetFeeds:
        # Whether the data has a length at all is checked before batches are read for their
        # format.
        self._num_steps(data, 1)
        source = data.source()
        replicas = self._replicas_for(source.element)
        steps = self._num_steps(data, replicas)
        self._refuse_shortage(data, replicas)
        executed = self._executed_steps(data, steps, replicas)
        feeds = DatasetFeeds(
            source,
            num_batches=executed * replicas,
            num_steps=steps,
            prefetch_depth=self._options.prefetch_depth,
            check=check_for(source.element),
            name=self._options.infeed_name or "infeed",
            memory=self._engine.feed_memory,
        )
        data.replace(feeds, executed, steps_per_epoch=steps, batches_per_step=replicas)
        if self._callbacks is not None:
            # Keras sets the parameters when callbacks are made, before the number of steps is
            # known.
            self._callbacks.set_params({**self._callbacks.params, "steps": steps})
        return feeds

    # The methods from here on differ between kinds of models.

    def _num_steps(self, data: EpochData, replicas: int) -> int:
        return data_checks.num_steps(
            data.num_batches,
            data.steps_per_epoch,
            replicas,
            epochs=self._epochs,
            is_endless=data.is_endless,
        )

    def _refuse_shortage(self, data: EpochData, replicas: int) -> None:
        data_checks.refuse_shortage(
            data.num_batches, data.steps_per_epoch, self._epochs, num_replicas=replicas
        )

    def _executed_steps(self, data: EpochData, num_steps: int, replicas: int) -> int:
        per_epoch = data.steps_per_epoch is not None
        return data_checks.executed_steps(
            data.steps_per_execution, num_steps, per_epoch, num_replicas=replicas
        )
