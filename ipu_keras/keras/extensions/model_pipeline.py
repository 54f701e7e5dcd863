"""The pipeline of a model: the stages of its layers, and what they make of its steps."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import tree

from ipu_keras.ipu_strategy import current_ipu_strategy
from ipu_keras.keras.extensions import pipeline_checks as checks
from ipu_keras.keras.extensions.accumulation_options import check_minimize
from ipu_keras.keras.extensions.call_observer import in_stages, recorded_calls
from ipu_keras.keras.extensions.layer_calls import LayerCall
from ipu_keras.keras.extensions.model_options import ModelOptions
from ipu_keras.keras.extensions.pipeline_stage import check_stage, stage_of
from ipu_keras.keras.extensions.pipeline_stage_assignment import ModelLayerPipelineStageAssignment
from ipu_keras.keras.extensions.stage_summary import print_summary
from ipu_keras.program import Pipeline, PipelineChoices


class StagedCalls(NamedTuple):
    """The calls that make up a model, in order, and the stage of each."""

    calls: tuple[LayerCall, ...]
    stages: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """What a model was called with. Only if its stages are asked for it must be of a tensor."""

    shape: Any
    dtype: Any


class ModelPipeline(ModelOptions):
    """What a model made in an `IPUStrategy`'s scope knows of pipeline stages.

    These methods are those of a `keras.Model` subclass, whose layers are known from a
    trace of its `call`; Functional and Sequential models override what differs.
    """

    # Whether the `call` of the model, or of one that it is in, enters PipelineStage scopes.
    _ipu_stages_in_call = False
    # Of the first call, by position and by name, with `KerasTensor` for tensors.
    _ipu_arguments: Callable[[], tuple[Any, Any]] | None = None
    _ipu_assignment_class: type = ModelLayerPipelineStageAssignment
    # Whether the stages can be given as plain integers.
    _ipu_takes_integers = True

    # Of Keras.
    name: str
    optimizer: Any
    distribute_strategy: Any
    _called: bool
    _flatten_layers: Callable[[], list]

    def __call__(self, *args, **kwargs):
        """As in Keras."""
        if self._ipu_arguments is None:
            self._ipu_note_arguments(args, kwargs)
        return super().__call__(*args, **kwargs)  # type: ignore[misc]

    def get_pipeline_stage_assignment(self) -> list:
        """The stages of the layers of the model, in the order in which they are executed.

        Returns:
            An assignment for each call of a layer, without input layers: as last set, else
            as the `PipelineStage` scopes say. Change them and set them to assign others.

        Raises:
            RuntimeError: The model has not been built yet.
        """
        self._ipu_check_built("get")
        calls, stages = self._ipu_stages()
        return [
            self._ipu_assignment(call, stage, calls)
            for call, stage in zip(calls, stages, strict=True)
            if call.is_layer
        ]

    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: list) -> None:
        """Assigns the layers of the model to pipeline stages, whatever scopes they were made in.

        Args:
            pipeline_stage_assignment: As `get_pipeline_stage_assignment` returns it, with a
                stage for each; for Sequential models and subclasses of `keras.Model` also
                plain integers, in the same order. Saved with the model.

        Raises:
            ValueError: It is no list, has another length or order than the layers, a
                layer has no stage, or needs the result of a later stage.
            RuntimeError: A stage has no layer, or the model has not been built yet.
        """
        if not isinstance(pipeline_stage_assignment, list):
            raise ValueError(
                "`pipeline_stage_assignment` needs to be a list. Received: "
                f"{type(pipeline_stage_assignment).__name__}"
            )
        self._ipu_check_built("set")
        calls = self._ipu_calls()
        checks.check_length(calls, pipeline_stage_assignment)
        assigned = self._ipu_assigned(calls, pipeline_stage_assignment)
        self._ipu_check_stages(calls, checks.resolved_stages(calls, assigned))
        self._ipu_set(stages=assigned, operation_stages=())
        self._ipu_drop_functions()

    def reset_pipeline_stage_assignment(self) -> None:
        """Takes the layers out of their stages; the model is no longer pipelined."""
        self._ipu_set(stages=(), operation_stages=())
        self._ipu_drop_functions()

    def print_pipeline_stage_assignment_summary(
        self, line_length: int | None = None, print_fn: Callable[[str], Any] | None = None
    ) -> None:
        """Prints a table of the layers and their stages.

        Args:
            line_length: Characters of a line. Defaults to 98.
            print_fn: Called with each line. Defaults to `print`.

        Raises:
            RuntimeError: The model has not been built yet.
        """
        print_summary(
            self.name, self.get_pipeline_stage_assignment(), line_length, print_fn or print
        )

    def _ipu_pipeline(
        self, training: bool, num_steps: int, name: str | None = None
    ) -> Pipeline | None:
        """The pipeline that the model runs as.

        Args:
            training: Whether gradients are computed.
            num_steps: Steps of a replica in an execution.
            name: `"train"`, `"test"` or `"predict"`, whose step must be Keras's own; `None`
                leaves the steps unchecked.

        Returns:
            `None` if no layer has a stage.

        Raises:
            ValueError: Layers without stages, in a wrong order, a mapping or options of another
                length, or training without a count of accumulated steps.
            RuntimeError: A stage without layers, or the model overrides what Keras runs.
            NotImplementedError: A schedule that cannot be.
            UnimplementedError: Stages on different IPUs share weights.
            FailedPreconditionError: The steps are no multiple of what the schedule needs.
        """
        staged = self._ipu_staged_calls()
        if staged is None:
            return None
        checks.check_call_not_overridden(self)
        if name is not None:
            checks.check_step_not_overridden(self, f"{name}_step", pipelined=True)
        self._ipu_check_stages(*staged)
        pipeline = self._ipu_pipeline_of(staged)
        checks.check_shared_weights(*staged, pipeline.device_mapping)
        depth = self._ipu_training_depth() if training else num_steps
        checks.check_depth(pipeline, training, depth)
        return pipeline

    def _ipu_check_training(self, num_steps: int) -> None:
        """Checks what accumulation, of a pipelined model or not, asks of training.

        Args:
            num_steps: Steps of a replica in an execution.

        Raises:
            RuntimeError: They are no multiple of the accumulated ones, or the model overrides
                `train_step`.
            ValueError: The optimizer overrides `minimize`.
        """
        pipelined = self._ipu_staged_calls() is not None
        options = self._ipu_options.pipelining if pipelined else self._ipu_options.accumulation
        steps = options.steps_per_replica or 1
        if not pipelined and steps == 1:
            return
        check_minimize(self.optimizer, keras.optimizers.Optimizer)
        checks.check_step_not_overridden(self, "train_step", pipelined=pipelined)
        checks.check_steps(num_steps, steps, pipelined=pipelined)

    def _ipu_in_stages(self, step: Callable) -> Callable:
        """A step whose operations are traced in the name scopes of their stages."""

        @functools.wraps(step)
        def staged_step(*args, **kwargs):
            staged = self._ipu_staged_calls()
            if staged is None:
                return step(*args, **kwargs)
            with in_stages(self, *staged):
                return step(*args, **kwargs)

        return staged_step

    def _ipu_staged_calls(self) -> StagedCalls | None:
        """The stages, complete or not; `None` if no layer has one."""
        if self._ipu_options.stages == () or not self._ipu_may_have_stages():
            return None
        staged = self._ipu_stages()
        assigned = any(
            stage is not None
            for call, stage in zip(staged.calls, staged.stages, strict=True)
            if call.is_layer
        )
        return staged if assigned else None

    def _ipu_stages(self) -> StagedCalls:
        calls, options = self._ipu_calls(), self._ipu_options
        stages = checks.resolved_stages(calls, options.stages, options.operation_stages)
        return StagedCalls(calls, stages)

    def _ipu_pipeline_of(self, staged: StagedCalls) -> Pipeline:
        options = self._ipu_options.pipelining
        num_stages = 1 + max(stage for stage in staged.stages if stage is not None)
        device_mapping = options.device_mapping
        if device_mapping is None:
            device_mapping = tuple(range(num_stages))
        checks.check_mapping(device_mapping, num_stages)
        names = [field.name for field in dataclasses.fields(PipelineChoices)]
        choices = {name: getattr(options, name) for name in names}
        return Pipeline(device_mapping=device_mapping, **choices)

    def _ipu_training_depth(self) -> int:
        steps = self._ipu_options.pipelining.steps_per_replica
        if steps is None:
            raise ValueError(
                "The model which you are attempting to train is pipelined, however "
                "`gradient_accumulation_steps_per_replica` has not been set. Set it with "
                f"`set_pipelining_options` of the model {self.name}: a pipeline always accumulates "
                "gradients."
            )
        return steps

    # What differs between kinds of models.

    def _ipu_calls(self) -> tuple[LayerCall, ...]:
        """The calls of layers that make up the model, in order, with the stages of scopes."""
        assert self._ipu_arguments is not None
        # Where a step is traced the scope is entered, and cannot be entered again.
        inside = current_ipu_strategy() is not None
        with contextlib.nullcontext() if inside else self.distribute_strategy.scope():
            return recorded_calls(self, *self._ipu_arguments())

    def _ipu_check_stages(self, calls, stages) -> None:
        checks.check_stages(calls, stages)

    def _ipu_may_have_stages(self) -> bool:
        """Whether to look for stages, which takes a trace of the model."""
        if not self._ipu_is_built():
            return False
        return (
            self._ipu_options.stages is not None
            or self._ipu_stages_in_call
            # Its `call` may enter scopes that have not been seen.
            or not self._called
            or any(stage_of(layer) is not None for layer in self._flatten_layers())
        )

    def _ipu_check_built(self, what: str) -> None:
        if not self._ipu_is_built():
            raise RuntimeError(
                f"Cannot {what} pipeline stage assignments for model `{self.name}` which has not "
                "been built yet. Please call the model on data, or `fit`, first: its layers are "
                "known from its `call`."
            )

    def _ipu_assignment(self, call: LayerCall, stage: int | None, calls) -> Any:
        assignment = ModelLayerPipelineStageAssignment(call.operation, call.node_index, stage)
        assignment._inbound_layers = list(
            dict.fromkeys(calls[position].operation for position in call.inbound)
        )
        return assignment

    def _ipu_is_for(self, assignment: Any, call: LayerCall) -> bool:
        return assignment.layer is call.operation and assignment.node_index == call.node_index

    def _ipu_is_built(self) -> bool:
        return self._ipu_has_arguments() and all(layer.built for layer in self._flatten_layers())

    def _ipu_assigned(self, calls, assignment: list) -> tuple[int, ...]:
        """The stages in a list that a user gives, complete or not."""
        integers = [isinstance(entry, int) for entry in assignment]
        if self._ipu_takes_integers and assignment and all(integers):
            for stage in assignment:
                check_stage(stage)
            return tuple(assignment)
        layer_calls = [call for call in calls if call.is_layer]
        for index, (entry, call) in enumerate(zip(assignment, layer_calls, strict=True)):
            self._ipu_check_entry(entry, call, index)
        return tuple(entry.pipeline_stage for entry in assignment)

    def _ipu_check_entry(self, entry: Any, call: LayerCall, index: int) -> None:
        if not isinstance(entry, self._ipu_assignment_class):
            integers = "integers or all " if self._ipu_takes_integers else ""
            raise ValueError(
                f"All elements of `pipeline_stage_assignment` need to be {integers}instances of "
                f"{self._ipu_assignment_class.__name__}. Received: {entry!r} at index {index}"
            )
        if not self._ipu_is_for(entry, call):
            raise ValueError(
                "`pipeline_stage_assignment` needs to have the order of "
                f"`get_pipeline_stage_assignment()`. Received: {entry!r} at index {index}, where "
                f"call {call.node_index} of {call.operation.name} is expected"
            )

    def _ipu_note_arguments(self, args, kwargs) -> None:
        noted = tree.map_structure(_noted, (args, kwargs))
        # Not the value itself, which Keras would take for layers or weights of the model.
        self._ipu_arguments = lambda: tree.map_structure(_symbolic, noted)

    def _ipu_has_arguments(self) -> bool:
        """Whether the model can be traced, if need be from the shapes that it was built for."""
        shapes = list((getattr(self, "_build_shapes_dict", None) or {}).values())
        if self._ipu_arguments is None and len(shapes) == 1 and shapes[0] is not None:
            tensors = tree.map_shape_structure(keras.KerasTensor, shapes[0])
            self._ipu_note_arguments((tensors,), {})
        return self._ipu_arguments is not None


def _noted(value: Any) -> Any:
    """What to keep of an argument: not the values of tensors and arrays."""
    is_tensor = hasattr(value, "shape") and hasattr(value, "dtype")
    return _Tensor(value.shape, value.dtype) if is_tensor else value


def _symbolic(value: Any) -> Any:
    if not isinstance(value, _Tensor):
        return value
    return keras.KerasTensor(value.shape, keras.backend.standardize_dtype(value.dtype))
