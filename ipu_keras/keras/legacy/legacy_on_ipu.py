"""What legacy models have on the IPU."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ipu_keras.internals.keras.models import device_of, make_again
from ipu_keras.internals.keras.training import has_strategy, set_strategy
from ipu_keras.ipu_strategy import IPUStrategy, current_ipu_strategy
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList
from ipu_keras.keras.extensions.model_on_ipu import ModelOnIpu
from ipu_keras.keras.legacy.epoch_run import EpochRun


class LegacyOnIpu(ModelOnIpu):
    """What a legacy model has on the IPU: it is called by programs, and runs whole epochs.

    Args:
        *args: As of `ModelOnIpu`.
        **kwargs: As of `ModelOnIpu`.

    Attributes:
        has_run: Whether a call of `fit`, `evaluate` or `predict` has returned.
        is_called_by_program: Whether it is one of our own programs that calls the model, or
            builds it.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.has_run = False
        self.is_called_by_program = False

    @contextlib.contextmanager
    def called_by_program(self) -> Iterator[None]:
        """As of `ModelOnIpu`."""
        outer, self.is_called_by_program = self.is_called_by_program, True
        try:
            yield
        finally:
            self.is_called_by_program = outer

    @contextlib.contextmanager
    def running(
        self, name: str, call: dict[str, Any], epochs: int = 1, **callback_lists: bool
    ) -> Iterator[None]:
        """As of `ModelOnIpu`."""
        with super().running(name, call, epochs, **callback_lists):
            yield
        self.has_run = True

    def in_stages(self, step: Callable) -> Callable:
        """As of `ModelOnIpu`."""
        staged_step = super().in_stages(step)

        @functools.wraps(step)
        def own_step(*args, **kwargs):
            with self.called_by_program():
                return staged_step(*args, **kwargs)

        return own_step

    def batches_per_step(self, name: str) -> int:
        """Batches of a replica in a step as Keras counts them.

        Args:
            name: `"train"`, `"test"` or `"predict"`.
        """
        count = self.options.accumulation.steps_per_replica or 1
        return count if name == "train" else 1

    def _new_run(self, name: str, epochs: int, callbacks: AsyncCallbackList | None) -> EpochRun:
        return EpochRun(
            self.options,
            self.device.engine,
            model_name=type(self._model).__name__,
            batches_per_step=self.batches_per_step(name),
            replicas_for=self._replicas_for,
            epochs=epochs,
            trains=name == "train",
            callbacks=callbacks,
        )

    def check_runnable(self, name: str) -> None:
        """As of `ModelOnIpu`."""
        strategy = current_ipu_strategy()
        if strategy is None:
            raise ValueError(
                f"{type(self._model).__name__} can only be used on an IPU device. Call `fit`, "
                "`evaluate` and `predict` inside the scope of an IPUStrategy: "
                "`with strategy.scope():`"
            )
        if not has_strategy(self._model) and strategy.device is not None:
            self._move_to(strategy)
        super().check_runnable(name)

    def _move_to(self, strategy: IPUStrategy) -> None:
        """Ties a model that was made outside of any scope to the first that it is used in."""
        with self.called_by_program():
            variables = [*self._model.variables, *self._model.metrics_variables]
        for variable in variables:
            # Another model that shares the variable may have moved it, and have programs with it.
            if device_of(variable) != self.device.name:
                make_again(variable)
        set_strategy(self._model, strategy)

    def _check_training(self, num_steps: int) -> None:
        # Keras counts weight updates.
        super()._check_training(num_steps * self.batches_per_step("train"))
