"""Trains an estimator together with those of other workers, as `train_distribute` asks for."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from ipu_keras.ipu_multi_worker_strategy import (
    ExtendedToWorkers,
    IPUMultiWorkerStrategy,
    IPUSyncOnReadVariable,
)
from ipu_keras.ipu_run_config import RunConfig

_Found = TypeVar("_Found")


class TrainingWorkers:
    """The workers of a `RunConfig`, of which this process is one, while an estimator trains.

    Each has a graph, a session and variables of its own; gradients are added up in the loops. The
    first one writes checkpoints and summaries, and all begin with its newest checkpoint.

    Args:
        strategy: The `IPUMultiWorkerStrategy`; `None` if the estimator trains by itself.

    Raises:
        TypeError: The strategy is another one.
    """

    def __init__(self, strategy: Any):
        if not isinstance(strategy, IPUMultiWorkerStrategy | None):
            raise TypeError(
                "`train_distribute` must be an IPUMultiWorkerStrategy. "
                f"Received: train_distribute={strategy!r}"
            )
        self._strategy = strategy
        extended = getattr(strategy, "extended", None)
        self._exchange = extended if isinstance(extended, ExtendedToWorkers) else None

    @property
    def is_first(self) -> bool:
        """Whether this worker writes checkpoints and summaries."""
        return self._exchange is None or self._exchange.is_first

    @property
    def input_context(self) -> tf.distribute.InputContext:
        """What an input function learns of the workers."""
        if self._exchange is None:
            return tf.distribute.InputContext()
        return self._exchange.input_context

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which variables are made."""
        return contextlib.nullcontext() if self._strategy is None else self._strategy.scope()

    def run(self, function: Callable[[], _Found], device: str) -> _Found:
        """Puts what a function computes into the graph, on a device, as a replica's."""

        def placed() -> _Found:
            with tf.device(device):
                return function()

        return function() if self._strategy is None else self._strategy.run(placed)

    def session(self, master: str, config: Any) -> tuple[str, Any]:
        """Returns the target and the configuration of the session that trains."""
        if self._strategy is None or self._exchange is None:
            return master, config
        given = tf.compat.v1.ConfigProto() if config is None else config
        return self._exchange.session_target(), self._strategy.update_config_proto(given)

    @contextlib.contextmanager
    def folder_of_checkpoints(self, config: RunConfig) -> Iterator[str | None]:
        """While this is open, gives the folder where this worker saves; `None` if it saves nothing.

        Variables that are reduced when they are read need all workers for that, at the same step.
        Then the others save as well, where nobody looks.

        Raises:
            ValueError: Checkpoints would be saved after seconds, so at other steps in each worker.
        """
        if not (config.save_checkpoints_steps or config.save_checkpoints_secs):
            yield None
            return
        read_together = [
            variable.name
            for variable in tf.compat.v1.global_variables()
            if isinstance(variable, IPUSyncOnReadVariable)
        ]
        if read_together and not config.save_checkpoints_steps:
            raise ValueError(
                "Workers read variables with the synchronization ON_READ together, so they have to "
                "save checkpoints at the same step: give the RunConfig `save_checkpoints_steps`. "
                f"Received: save_checkpoints_secs, and such variables: {read_together}"
            )
        if self.is_first:
            yield config.model_dir
        elif read_together:
            with tempfile.TemporaryDirectory() as folder:
                yield folder
        else:
            yield None
