"""The feeds of one call of `fit`, `evaluate` or `predict` of a legacy model."""

from collections.abc import Callable

from ipu_keras.feeds.dataset_feed import ElementFormat
from ipu_keras.keras.extensions.epoch_data import EpochData
from ipu_keras.keras.extensions.run import Run
from ipu_keras.settings.arguments import noted


class EpochRun(Run):
    """A run of whole epochs, whose steps may take several batches of each replica.

    Keras then counts such steps. The replicas share those of `steps_per_epoch`; the progress bar
    and callbacks count the ones of each. `check_labels` raises if batches of a format lack
    labels that they need, or have them in vain; the other arguments are those of `Run`.
    """

    def __init__(
        self,
        *args,
        model_name: str,
        batches_per_step: int,
        replicas_for: Callable[[ElementFormat], int],
        check_labels: Callable[[ElementFormat], None],
        **kwargs,
    ):
        def batches_for(element: ElementFormat) -> int:
            check_labels(element)
            return batches_per_step * replicas_for(element)

        # To the base class, each further batch of a step looks like a further replica.
        super().__init__(*args, replicas_for=batches_for, **kwargs)
        self._model_name = model_name
        self._batches_per_step = batches_per_step

    def _num_steps(self, data: EpochData, replicas: int) -> int:
        """Returns the steps of one epoch for each replica.

        `steps_per_epoch` counts those of all replicas; `replicas` are the batches that all of
        them together take in a step.
        """
        steps = data.steps_per_epoch
        if steps is None and data.num_batches is None and data.is_endless():
            raise noted(
                ValueError(
                    "When using an infinitely repeating dataset, you must provide the number "
                    "of steps per epoch (steps_per_epoch)."
                ),
                "Pass `steps_per_epoch` to `fit`, `steps` to `evaluate` or `predict`, or do "
                "not repeat the dataset without a count.",
            )
        available = super()._num_steps(data, 1)
        if replicas == 1:
            return available
        if steps is None:
            fitting = available - available % replicas
            advice = (
                f"Leave some out, for instance with `take({fitting})`, or set the steps of an "
                "epoch."
                if fitting
                else f"Give at least {replicas} batches, for instance by a smaller batch size."
            )
        else:
            available = steps * self._batches_per_step
            advice = f"The steps of an epoch are those of all replicas. Received: {steps} steps."
        self._refuse_incomplete(available, replicas, advice)
        return available // replicas

    def _executed_steps(self, data: EpochData, num_steps: int, replicas: int) -> int:
        """Returns all steps: the loop over an epoch is on the device."""
        return num_steps

    def _refuse_incomplete(self, available: int, needed: int, advice: str) -> None:
        if available % needed:
            raise ValueError(
                f"{self._model_name} requires the number of mini-batches in the dataset "
                f"({available}) to be evenly divisible by the gradient accumulation count "
                f"({self._batches_per_step}) times the number of replicas "
                f"({needed // self._batches_per_step}), which take {needed} in a step. {advice}"
            )

    def _refuse_shortage(self, data: EpochData, replicas: int) -> None:
        steps, available = data.steps_per_epoch, data.num_batches
        if steps is None or available is None:
            return
        of_epoch = steps * self._batches_per_step
        needed = of_epoch * self._epochs
        if needed <= available or available % of_epoch == 0:
            return
        raise ValueError(
            "Your input does not have enough data. Make sure that your dataset or generator can "
            f"generate at least {needed} batches ({steps} steps of {self._batches_per_step} "
            f"batches for {self._epochs} epochs), for instance with `repeat()`. A step of "
            f"{self._model_name} takes {self._batches_per_step} batches of one replica. "
            f"Received: {available} batches"
        )
