"""The `ModelOnIpu` of legacy models."""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras

from ipu_keras.feeds.dataset_feed import ElementFormat
from ipu_keras.internals.keras.models import device_of, make_again
from ipu_keras.internals.keras.training import has_strategy, set_strategy
from ipu_keras.ipu_strategy import IPUStrategy, current_ipu_strategy
from ipu_keras.keras.extensions.array_data import WholeBatches, with_array_data
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList
from ipu_keras.keras.extensions.model_on_ipu import ModelOnIpu
from ipu_keras.keras.legacy.epoch_run import EpochRun
from ipu_keras.settings.arguments import noted


class LegacyOnIpu(ModelOnIpu):
    """The `ModelOnIpu` of a model that runs whole epochs, and that only its programs may call.

    Attributes:
        has_run: Whether a call of `fit`, `evaluate` or `predict` has returned.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.has_run = False
        self.is_called_by_program = False

    @contextlib.contextmanager
    def called_by_program(self) -> Iterator[None]:
        outer, self.is_called_by_program = self.is_called_by_program, True
        try:
            yield
        finally:
            self.is_called_by_program = outer

    @contextlib.contextmanager
    def running(
        self, name: str, call: dict[str, Any], epochs: int = 1, **callback_lists: bool
    ) -> Iterator[None]:
        with super().running(name, call, epochs, **callback_lists):
            yield
        self.has_run = True

    def with_array_data(self, call: dict[str, Any], steps: int | None) -> dict[str, Any]:
        """Leaves out samples that fill no batch, with a warning."""
        call = with_array_data(call, steps, WholeBatches)
        data = call["x"]
        if isinstance(data, WholeBatches) and data.num_left_out:
            warnings.warn(
                f"{type(self._model).__name__} runs whole batches: of each pass over the arrays, "
                f"{data.num_left_out} samples, which fill no batch, are dropped. Choose a "
                f"`batch_size` that divides the number of samples to use all. Received: "
                f"batch_size={data.batch_size}",
                stacklevel=2,
            )
        return call

    def in_stages(self, step: Callable) -> Callable:
        """Returns a step that may call the model, traced in the scopes of its stages."""
        staged_step = super().in_stages(step)

        @functools.wraps(step)
        def own_step(*args, **kwargs):
            with self.called_by_program():
                return staged_step(*args, **kwargs)

        return own_step

    def batches_per_step(self, name: str) -> int:
        """Returns the batches that a replica takes in a step as Keras counts steps."""
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
            check_labels=functools.partial(self._check_labels, name),
        )

    def check_runnable(self, name: str) -> None:
        """Moves the model to the strategy in use, if it has none, and checks it as the base
        class does."""
        strategy = current_ipu_strategy()
        if strategy is None:
            raise noted(
                ValueError(f"{type(self._model).__name__} can only be used on an IPU device."),
                "Call `fit`, `evaluate` and `predict` inside the scope of an IPUStrategy: "
                "`with strategy.scope():`",
            )
        if not has_strategy(self._model) and strategy.device is not None:
            self._move_to(strategy)
        super().check_runnable(name)

    def _check_labels(self, name: str, element: ElementFormat) -> None:
        _, labels, _ = keras.utils.unpack_x_y_sample_weight(element.structure)
        model, kind = self._model, type(self._model).__name__
        if name == "predict" and labels is not None:
            raise ValueError(
                f"`predict` of {kind} takes data without labels. Received: elements of "
                f"{len(element.structure)} parts; leave out all but the inputs, for instance with "
                "`dataset.map(lambda x, y: x)`."
            )
        needs_labels = name != "predict" and bool(model.loss)
        if needs_labels and labels is None and not self.steps.overrides(f"{name}_step"):
            method = "fit" if name == "train" else "evaluate"
            raise ValueError(
                f"`{method}` of {kind} needs labels, which the loss compares the outputs with. "
                f"Received: data without labels, loss={model.loss!r}; pass the labels as `y`, or a "
                "dataset of pairs of inputs and labels."
            )

    def _move_to(self, strategy: IPUStrategy) -> None:
        """Ties a model that was made outside of any scope to the first one in which it is used."""
        with self.called_by_program():
            variables = [*self._model.variables, *self._model.metrics_variables]
        for variable in variables:
            # Another model that shares the variable may have moved it already, and have programs
            # that use it there.
            if device_of(variable) != self.device.name:
                make_again(variable)
        set_strategy(self._model, strategy)

    def _check_training(self, num_steps: int) -> None:
        # Keras counts weight updates here, the check counts batches.
        super()._check_training(num_steps * self.batches_per_step("train"))
