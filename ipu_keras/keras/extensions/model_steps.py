"""The functions of a model's steps, which Keras calls for each execution."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras

from ipu_keras.feeds.dataset_feed import ElementFormat
from ipu_keras.internals.keras.training import TensorFlowTrainer
from ipu_keras.internals.tensorflow.contexts import has_deterministic_operations
from ipu_keras.ir import Variants
from ipu_keras.keras.extensions.named_parts import with_named_parts
from ipu_keras.keras.extensions.step_function import Layout, StepFunction
from ipu_keras.keras.extensions.training import (
    TrainingParts,
    summing_gradients,
    with_dtype_of_logs,
)
from ipu_keras.machine.system import SYSTEM
from ipu_keras.program import Accumulation, OutfeedMode, Pipeline, Program
from ipu_keras.program.compilation_history import CompilationHistory

_STEPS = ("train_step", "test_step", "predict_step")


class ModelSteps:
    """Makes the functions of a model's steps from the options that were set.

    `on_ipu` is the model's `ModelOnIpu`, which has the options, the stages and the device.
    """

    def __init__(self, model: Any, on_ipu: Any):
        self._model = model
        self._on_ipu = on_ipu
        # Programs compiled so far. The history outlives the functions that `compile` throws
        # away, so that it can say why a program was compiled again.
        self._history = CompilationHistory()

    @property
    def any_overridden(self) -> bool:
        """Whether the model's class has any step of its own."""
        return any(map(self.overrides, _STEPS))

    def overrides(self, step: str) -> bool:
        """Whether the model's class has its own `step`, which is a name such as `"train_step"`."""
        return getattr(type(self._model), step) is not getattr(TensorFlowTrainer, step)

    def check_labels(self, element: ElementFormat) -> None:
        """Refuses data without labels where Keras's own step gives them to a loss."""
        model = self._model
        _, labels, _ = keras.utils.unpack_x_y_sample_weight(element.structure)
        has_own_loss = type(model).compute_loss is not keras.Model.compute_loss
        if labels is None and model.loss and not has_own_loss:
            raise ValueError(
                "Data without labels cannot train or test a model whose loss compares its outputs "
                "with them. Pass the labels as `y`, or a dataset of pairs of inputs and labels; a "
                "loss that needs none is added with `add_loss` or computed by `compute_loss`, and "
                f"the model compiled without `loss`. Received: no labels, loss={model.loss!r}"
            )

    def accumulates_logs(self, name: str) -> bool:
        """Whether the outfeed of a program has one result for all of its steps.

        The metrics that a step of Keras's returns are those of all steps so far, so the last
        ones are the accumulated ones.
        """
        accumulates = name != "predict" and self._on_ipu.options.pipelining.accumulate_outfeed
        return bool(accumulates) and self._on_ipu.stages.staged_calls() is not None

    def accumulator_dtype(self) -> Any:
        """Returns the dtype of the accumulators, in any of the forms that `TrainingParts`
        takes."""
        options = self._on_ipu.options
        if self._on_ipu.stages.staged_calls() is not None:
            return options.pipelining.gradient_accumulation_dtype
        return options.accumulation.dtype

    def train_function(self) -> StepFunction:
        """Makes the function that Keras calls for each execution of training."""
        step, layout = self._training()
        return self._logging_function("train", step, layout)

    def test_function(self) -> StepFunction:
        """Makes the function that Keras calls for each execution of evaluation."""
        return self._logging_function("test", self._model.test_step, self._layout("test"))

    def predict_function(self) -> StepFunction:
        """Makes the function that `predict` calls for each execution."""
        layout = self._layout("predict")
        return self._step_function("predict", self._model.predict_step, OutfeedMode.ALL, layout)

    def _training(self) -> tuple[Callable, Layout]:
        model, layout, options = self._model, self._layout("train"), self._on_ipu.options
        pipelined = self._on_ipu.stages.staged_calls() is not None
        chosen = options.pipelining if pipelined else options.accumulation
        count = chosen.steps_per_replica or 1
        if count == 1 and not pipelined:
            if layout.num_replicas == 1:
                return model.train_step, layout
            # Only a step of Keras's can be split into gradients and update; in a user's, the
            # optimizers add the gradients up themselves.
            if self.overrides("train_step"):
                return summing_gradients(model, model.train_step), layout
        parts = TrainingParts(model, self.accumulator_dtype())
        accumulation = Accumulation(count=count, reduction=chosen.reduction)
        update = with_named_parts(model, parts.update)
        return parts.step, dataclasses.replace(layout, update=update, accumulation=accumulation)

    def _layout(self, name: str) -> Layout:
        def pipeline_of(num_steps: int) -> Pipeline | None:
            return self._on_ipu.stages.pipeline(name == "train", num_steps, name)

        return Layout(
            num_replicas=self._on_ipu.num_replicas,
            norm_group_size=SYSTEM.norm_group_size,
            pipeline_of=pipeline_of,
            check=self._check_of(name),
            variants_of=functools.partial(self._variants_of, name),
        )

    def _variants_of(self, name: str, data: Any, program: Program) -> Variants | None:
        """Returns how a program's step would be traced if the model were written otherwise."""
        given = keras.utils.unpack_x_y_sample_weight(data)
        specs = tuple(each for each in given if each is not None)
        options = {
            "gradient_accumulation_count": program.accumulation.count,
            "num_replicas": program.num_replicas,
            "pipeline": program.pipeline,
        }
        # Imported here, as it needs the cost model, for which whoever only trains need not wait.
        from ipu_keras.keras.extensions.profiled import profiled

        return profiled(self._model).variants(specs, name, options)

    def _check_of(self, name: str) -> Callable[[ElementFormat], None]:
        if name == "predict" or self.overrides(f"{name}_step"):
            return lambda element: None
        return self.check_labels

    def _logging_function(self, name: str, step: Callable, layout: Layout) -> StepFunction:
        options = self._on_ipu.options
        if self.accumulates_logs(name):
            step = with_dtype_of_logs(step, options.pipelining.accumulate_outfeed_dtype)
        if self.accumulates_logs(name) or not options.asynchronous_callbacks:
            return self._step_function(name, step, OutfeedMode.LAST, layout)
        # Asynchronous callbacks run for each step, so they need all results.
        return self._step_function(name, step, OutfeedMode.ALL, layout, logs_each_step=True)

    def _step_function(
        self,
        name: str,
        step: Callable,
        mode: OutfeedMode,
        layout: Layout,
        *,
        logs_each_step: bool = False,
    ) -> StepFunction:
        return StepFunction(
            name,
            with_named_parts(self._model, self._on_ipu.in_stages(step)),
            self._model.distribute_strategy,
            self._on_ipu.device,
            outfeed_mode=mode,
            layout=layout,
            compiled=self._on_ipu.compiled,
            history=self._history,
            # XLA's numbers differ from TensorFlow's in the last bits, so results of a training
            # that changes from one to the other would depend on when it does.
            first_steps=0 if has_deterministic_operations() else None,
            fixed_answers=name != "train",
            call_of=lambda: self._on_ipu.run,
            model_name=self._model.name,
            logs_each_step=logs_each_step,
            formats=self._on_ipu.formats,
            # It lowers its scale where gradients overflow, which the largest half would hide.
            shows_overflow=isinstance(
                getattr(self._model, "optimizer", None), keras.optimizers.LossScaleOptimizer
            ),
        )
