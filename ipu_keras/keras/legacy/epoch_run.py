"""What one call of `fit`, `evaluate` or `predict` of a legacy model has open."""

from typing import Any

import tensorflow as tf

from ipu_keras.internals.keras.training import TFEpochIterator
from ipu_keras.keras.extensions import data_checks
from ipu_keras.keras.extensions.run import Run


class EpochRun(Run):
    """A run of whole epochs, whose steps may take several batches of each replica.

    Keras then counts such steps: `steps_per_epoch`, the progress bar and what callbacks
    are told all do.

    Args:
        *args: As of `Run`.
        model_name: The model's class, for errors.
        batches_per_step: Batches that a replica takes in a step.
        replicas_for: As of `Run`.
        **kwargs: As of `Run`.
    """

    def __init__(self, *args, model_name: str, batches_per_step: int, replicas_for, **kwargs):
        def batches_for(element: Any) -> int:
            return batches_per_step * replicas_for(element)

        super().__init__(*args, replicas_for=batches_for, **kwargs)
        self._model_name = model_name
        self._batches_per_step = batches_per_step

    def _num_steps(self, epoch_iterator: TFEpochIterator, replicas: int) -> int:
        """Steps of one epoch.

        Args:
            epoch_iterator: Keras's iterator over the data.
            replicas: Batches that all replicas together take in a step.
        """
        steps = epoch_iterator.steps_per_epoch
        if steps is None:
            _refuse_infinite(epoch_iterator)
        available = data_checks.num_steps(epoch_iterator)
        if steps is not None:
            return steps
        self._refuse_incomplete(available, replicas)
        return available // replicas

    def _executed_steps(self, epoch_iterator: TFEpochIterator, num_steps: int) -> int:
        """All of them: the loop over an epoch is on the device."""
        return num_steps

    def _refuse_incomplete(self, available: int, needed: int) -> None:
        if available % needed:
            raise ValueError(
                f"{self._model_name} requires the number of mini-batches in the dataset "
                f"({available}) to be evenly divisible by the gradient accumulation count "
                f"({self._batches_per_step}) times the number of replicas "
                f"({needed // self._batches_per_step}), which take {needed} in a step. Leave some "
                f"out, for instance with `take({available - available % needed})`, or set the "
                "steps of an epoch."
            )

    def _refuse_shortage(self, epoch_iterator: TFEpochIterator, replicas: int) -> None:
        steps, available = epoch_iterator.steps_per_epoch, epoch_iterator.data_adapter.num_batches
        if steps is None or available is None or steps * self._epochs * replicas <= available:
            return
        raise ValueError(
            "Your input does not have enough data. Make sure that your dataset or generator can "
            f"generate at least {steps * self._epochs * replicas} batches ({steps} steps of "
            f"{replicas} batches for {self._epochs} epochs), for instance with `repeat()`. A step "
            f"of {self._model_name} takes {self._batches_per_step} batches of each replica. "
            f"Received: {available} batches"
        )


def _refuse_infinite(epoch_iterator: TFEpochIterator) -> None:
    adapter = epoch_iterator.data_adapter
    if adapter.num_batches is not None:
        return
    if adapter.get_tf_dataset().cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "When using an infinitely repeating dataset, you must provide the number of steps per "
            "epoch (steps_per_epoch). Pass `steps_per_epoch` to `fit`, `steps` to `evaluate` or "
            "`predict`, or do not repeat the dataset without a count."
        )
