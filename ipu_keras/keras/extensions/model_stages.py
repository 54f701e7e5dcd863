"""The pipeline of a model: the stages of its layers, and what they make of its steps."""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import keras
import tensorflow as tf
from keras import tree

from ipu_keras.internals.keras.models import Functional, layers_in
from ipu_keras.ipu_strategy import current_ipu_strategy
from ipu_keras.keras.extensions import pipeline_checks as checks
from ipu_keras.keras.extensions.accumulation_options import check_minimize
from ipu_keras.keras.extensions.call_observer import in_stages, recorded_calls
from ipu_keras.keras.extensions.layer_calls import LayerCall, functional_calls, sequential_calls
from ipu_keras.keras.extensions.pipeline_stage import checked_stage, stage_of
from ipu_keras.keras.extensions.pipeline_stage_assignment import (
    FunctionalLayerPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
)
from ipu_keras.ops.argument_checks import integer_in
from ipu_keras.program import Pipeline, PipelineChoices
from ipu_keras.settings.argument_errors import noted


class StagedCalls(NamedTuple):
    """The calls that make up a model, in order, and the stage of each."""

    calls: tuple[LayerCall, ...]
    stages: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """What a model was called with. Only if its stages are asked for it must be of a tensor."""

    shape: Any
    dtype: Any


class ModelStages:
    """The pipeline stages of a model made in an `IPUStrategy`'s scope.

    This is how a `keras.Model` subclass has them, whose layers are known from a trace of its
    `call`; those of Functional and Sequential models differ in what is said at the end.

    Args:
        model: The model.
    """

    _assignment_class: type = ModelLayerPipelineStageAssignment
    # Whether the stages can be given as plain integers.
    _takes_integers = True

    def __init__(self, model: Any):
        # Whether the `call` of the model, or of one that it is in, enters PipelineStage scopes.
        self.in_call = False
        self._model = model
        # Of the first call, by position and by name, with `_Tensor` for tensors.
        self._arguments: tuple[Any, Any] | None = None

    def note_arguments(self, args, kwargs) -> None:
        """Keeps what the model was first called with, for a trace of its `call`.

        Args:
            args: By position.
            kwargs: By name.
        """
        if self._arguments is None:
            self._arguments = tree.map_structure(_noted, (args, kwargs))

    def assignments(self) -> list:
        """An assignment for each call of a layer, without input layers.

        Raises:
            RuntimeError: The model has not been built yet.
        """
        self._check_built("get")
        calls, stages = self.resolved()
        return [
            self._assignment(call, stage, calls)
            for call, stage in zip(calls, stages, strict=True)
            if call.is_layer
        ]

    def checked(self, assignment: Any) -> tuple[int | None, ...]:
        """The stages that a user assigns.

        Args:
            assignment: Of a user.

        Raises:
            ValueError: It is no list, has another length or order than the layers, a
                layer has no stage, or needs the result of a later stage.
            RuntimeError: A stage has no layer, or the model has not been built yet.
        """
        if not isinstance(assignment, list):
            raise noted(
                ValueError("`pipeline_stage_assignment` needs to be a list."),
                f"Received: pipeline_stage_assignment={assignment!r} of type "
                f"{type(assignment).__name__}",
            )
        self._check_built("set")
        calls = self.calls()
        checks.check_length(calls, assignment)
        assigned = self._assigned(calls, assignment)
        self.check(calls, checks.resolved_stages(calls, assigned))
        return assigned

    def pipeline(self, training: bool, num_steps: int, name: str | None = None) -> Pipeline | None:
        """The pipeline that the model runs as.

        Args:
            training: Whether gradients are computed.
            num_steps: Steps of a replica in an execution.
            name: `"train"`, `"test"` or `"predict"`, whose step must be Keras's own; `None`
                leaves the steps unchecked.

        Returns:
            `None` if no layer has a stage, and no IPU is asked for by `device_mapping`.

        Raises:
            ValueError: Layers without stages, in a wrong order, a mapping or options of another
                length, or training without a count of accumulated steps.
            RuntimeError: A stage without layers, or the model overrides what Keras runs.
            NotImplementedError: A schedule that cannot be.
            UnimplementedError: Stages on different IPUs share weights.
            FailedPreconditionError: The steps are no multiple of what the schedule needs.
        """
        staged = self.staged_calls()
        if staged is None:
            self._check_no_mapping()
            return None
        checks.check_call_not_overridden(self._model)
        if name is not None:
            checks.check_step_not_overridden(self._model, f"{name}_step", pipelined=True)
        pipeline = self.pipeline_of(staged)
        checks.check_shared_weights(*staged, pipeline.device_mapping)
        depth = self._training_depth() if training else num_steps
        checks.check_depth(pipeline, training, depth)
        return pipeline

    def check_training(self, num_steps: int) -> None:
        """Checks what accumulation, of a pipelined model or not, asks of training.

        Args:
            num_steps: Steps of a replica in an execution.

        Raises:
            RuntimeError: They are no multiple of the accumulated ones, or the model overrides
                `train_step`.
            ValueError: The optimizer overrides `minimize`.
        """
        pipelined = self.staged_calls() is not None
        options = self._model._ipu.options
        chosen = options.pipelining if pipelined else options.accumulation
        steps = chosen.steps_per_replica or 1
        if not pipelined and steps == 1:
            return
        check_minimize(self._model.optimizer, keras.optimizers.Optimizer)
        checks.check_step_not_overridden(self._model, "train_step", pipelined=pipelined)
        if pipelined:
            checks.warn_of_batch_norm(self._model)
        checks.check_steps(num_steps, steps, pipelined=pipelined)

    def in_stages(self, step: Callable) -> Callable:
        """A step whose operations are traced in the name scopes of their stages."""

        @functools.wraps(step)
        def staged_step(*args, **kwargs):
            staged = self.staged_calls()
            if staged is None:
                return step(*args, **kwargs)
            with in_stages(self._model, *staged):
                return step(*args, **kwargs)

        return staged_step

    def staged_calls(self) -> StagedCalls | None:
        """The stages, complete or not; `None` if no layer has one.

        They are looked for once in a call of `fit`, `evaluate` or `predict`.
        """
        run = self._model._ipu.run
        if run is None or not self._is_built():
            return self._found()
        if run.staged_calls is None:
            # Of a subclass of `keras.Model` it takes a trace to find out.
            run.staged_calls = (self._found(),)
        return run.staged_calls[0]

    def _found(self) -> StagedCalls | None:
        if self._model._ipu.options.stages == () or not self._may_exist():
            return None
        staged = self.resolved()
        assigned = any(
            stage is not None
            for call, stage in zip(staged.calls, staged.stages, strict=True)
            if call.is_layer
        )
        return staged if assigned else None

    def resolved(self) -> StagedCalls:
        """The calls of layers, and their stages as set or as of their scopes."""
        calls, options = self.calls(), self._model._ipu.options
        stages = checks.resolved_stages(calls, options.stages, options.operation_stages)
        return StagedCalls(calls, stages)

    def pipeline_of(self, staged: StagedCalls) -> Pipeline:
        """The pipeline of stages, with the options that are set.

        Args:
            staged: The stages.

        Raises:
            ValueError: Layers without stages, in a wrong order, or a device mapping of another
                length.
            RuntimeError: A stage without layers.
        """
        # Of stages that are not complete nothing else can be told.
        self.check(*staged)
        options = self._model._ipu.options.pipelining
        num_stages = 1 + max(stage for stage in staged.stages if stage is not None)
        device_mapping = options.device_mapping
        if device_mapping is None:
            device_mapping = tuple(range(num_stages))
        checks.check_mapping(device_mapping, num_stages)
        names = [field.name for field in dataclasses.fields(PipelineChoices)]
        choices = {name: getattr(options, name) for name in names}
        return Pipeline(device_mapping=device_mapping, **choices)

    def _check_no_mapping(self) -> None:
        """Refuses a mapping of stages to IPUs for a model that has no stages."""
        options = self._model._ipu.options
        # A user may have taken the layers out of their stages.
        if options.pipelining.device_mapping is not None and options.stages != ():
            names = [
                layer.name
                for layer in self._model.layers
                if not isinstance(layer, keras.layers.InputLayer)
            ]
            checks.refuse_without_stage(next(iter(names), self._model.name))

    def _training_depth(self) -> int:
        steps = self._model._ipu.options.pipelining.steps_per_replica
        if steps is None:
            raise noted(
                ValueError(
                    "The model which you are attempting to train is pipelined, however "
                    "`gradient_accumulation_steps_per_replica` has not been set through "
                    "`set_pipelining_options()`. You need to set this value as pipelined "
                    "models will perform gradient accumulation when training."
                ),
                f"Received: the model {self._model.name}",
            )
        return steps

    # What differs between kinds of models.

    def calls(self) -> tuple[LayerCall, ...]:
        """The calls of layers that make up the model, in order, with the stages of scopes."""
        arguments = self._known_arguments()
        assert arguments is not None
        # Where a step is traced the scope is entered, and cannot be entered again.
        inside = current_ipu_strategy() is not None
        with contextlib.nullcontext() if inside else self._model.distribute_strategy.scope():
            return recorded_calls(self._model, *tree.map_structure(_symbolic, arguments))

    def check(self, calls, stages) -> None:
        """Checks stages that are in use, or are going to be.

        Args:
            calls: Of the layers, in order.
            stages: Their stages.

        Raises:
            ValueError: Layers without stages, or in a wrong order.
            RuntimeError: Stages without layers.
        """
        checks.check_stages(calls, stages)

    def _may_exist(self) -> bool:
        """Whether to look for stages, which takes a trace of the model."""
        if not self._is_built():
            return False
        return (
            self._model._ipu.options.stages is not None
            or self.in_call
            # Its `call` may enter scopes that have not been seen.
            or not self._model._called
            or any(stage_of(layer) is not None for layer in layers_in(self._model))
        )

    def _check_built(self, what: str) -> None:
        error = None if self._is_built() else self._build()
        if not self._is_built():
            raise RuntimeError(
                f"Cannot {what} pipeline stage assignments for model `{self._model.name}` which "
                "has not been built yet. Please call the model on data, `build` it for the shape "
                "of its inputs, or call `fit`, first: its layers are known from its `call`."
            ) from error

    def _build(self) -> Exception | None:
        """Has the layers built of a model that Keras takes for built, and returns what failed.

        Keras's `build(shape)` of a subclass only notes the shape.
        """
        if self._model.built and self._known_arguments() is not None:
            noted = self._arguments
            try:
                self.calls()
            except Exception as error:  # of the user's `call`, which may take no floats
                self._arguments = noted
                return error
        return None

    def _assignment(self, call: LayerCall, stage: int | None, calls) -> Any:
        assignment = ModelLayerPipelineStageAssignment(call.operation, call.node_index, stage)
        assignment._inbound_layers = list(
            dict.fromkeys(calls[position].operation for position in call.inbound)
        )
        return assignment

    def _is_for(self, assignment: Any, call: LayerCall) -> bool:
        return assignment.layer is call.operation and assignment.node_index == call.node_index

    def _is_built(self) -> bool:
        return self._known_arguments() is not None and all(
            layer.built for layer in layers_in(self._model)
        )

    def _assigned(self, calls, assignment: list) -> tuple[int | None, ...]:
        """The stages in a list that a user gives, complete or not."""
        integers = [
            entry is None or isinstance(entry, bool) or integer_in(entry) is not None
            for entry in assignment
        ]
        if self._takes_integers and assignment and all(integers):
            return tuple(None if one is None else checked_stage(one) for one in assignment)
        if self._takes_integers and any(integers):
            self._refuse_mixture(assignment, integers)
        layer_calls = [call for call in calls if call.is_layer]
        for index, (entry, call) in enumerate(zip(assignment, layer_calls, strict=True)):
            self._check_entry(entry, call, index)
        return tuple(entry.pipeline_stage for entry in assignment)

    def _check_entry(self, entry: Any, call: LayerCall, index: int) -> None:
        if not isinstance(entry, self._assignment_class):
            self._refuse_entry(entry, index)
        if not self._is_for(entry, call):
            raise ValueError(
                "`pipeline_stage_assignment` needs to have the order of "
                f"`get_pipeline_stage_assignment()`. Received: {entry!r} at index {index}, where "
                f"call {call.node_index} of {call.operation.name} is expected"
            )

    def _refuse_mixture(self, assignment: list, integers: list[bool]) -> NoReturn:
        """Blames what can be no entry at all, else the first that is of another kind."""
        index = next(
            (
                index
                for index, entry in enumerate(assignment)
                if integer_in(entry) is None and not isinstance(entry, self._assignment_class)
            ),
            integers.index(not integers[0]),
        )
        self._refuse_entry(assignment[index], index)

    def _refuse_entry(self, entry: Any, index: int) -> NoReturn:
        integers = "integers or all " if self._takes_integers else ""
        raise ValueError(
            f"All elements of `pipeline_stage_assignment` need to be {integers}instances of "
            f"{self._assignment_class.__name__}. Received: {entry!r} at index {index}"
        )

    def _known_arguments(self) -> tuple[Any, Any] | None:
        """What the model can be traced with: of a call, else from shapes that it was built for."""
        if self._arguments is not None:
            return self._arguments
        shapes = getattr(self._model, "_build_shapes_dict", None) or {}
        tensors = {name: _tensors_of(shape) for name, shape in shapes.items() if shape}
        if len(shapes) == len(tensors) == 1:
            return tuple(tensors.values()), {}
        # As Keras names the shapes of several inputs.
        named = {name.removesuffix("_shape"): tensors[name] for name in tensors}
        takes = inspect.signature(self._model.call).parameters
        return ((), named) if named and named.keys() <= takes.keys() else None


class FunctionalStages(ModelStages):
    """The pipeline stages of a Functional model, which has all its layers from the beginning.

    They are those of calls of layers, also in the Functional and Sequential models that it calls.

    Args:
        model: The model.
    """

    _assignment_class = FunctionalLayerPipelineStageAssignment
    _takes_integers = False

    def calls(self) -> tuple[LayerCall, ...]:
        """As of `ModelStages`."""
        return functional_calls(self._model)

    def _may_exist(self) -> bool:
        return True

    def _check_built(self, what: str) -> None:
        """It always is."""

    def _assignment(self, call: LayerCall, stage: int | None, calls) -> Any:
        return FunctionalLayerPipelineStageAssignment(call.operation, call.node_index, stage)


class SequentialStages(ModelStages):
    """The pipeline stages of a Sequential model, of which a model in it is one layer.

    Args:
        model: The model, which need not be built.
    """

    _assignment_class = SequentialLayerPipelineStageAssignment

    def calls(self) -> tuple[LayerCall, ...]:
        """As of `ModelStages`."""
        return sequential_calls(self._model)

    def check(self, calls, stages) -> None:
        """As of `ModelStages`."""
        checks.check_sequence(calls, stages)

    def _may_exist(self) -> bool:
        return True

    def _check_built(self, what: str) -> None:
        """It need not be."""

    def _assignment(self, call: LayerCall, stage: int | None, calls) -> Any:
        return SequentialLayerPipelineStageAssignment(call.operation, stage)

    def _is_for(self, assignment: Any, call: LayerCall) -> bool:
        return assignment.layer is call.operation


def stages_of(model: keras.Model) -> ModelStages:
    """The pipeline stages of a model, by its kind.

    Args:
        model: Made in a strategy's scope. Its kind is known when it has been initialised: a
            subclass of `keras.Model` may become a Functional model then.
    """
    if isinstance(model, keras.Sequential):
        return SequentialStages(model)
    if isinstance(model, Functional):
        return FunctionalStages(model)
    return ModelStages(model)


def _noted(value: Any) -> Any:
    """What to keep of an argument: not the values of tensors and arrays."""
    is_tensor = hasattr(value, "shape") and hasattr(value, "dtype")
    return _Tensor(value.shape, value.dtype) if is_tensor else value


def _tensors_of(shapes: Any) -> Any:
    """Symbolic tensors of a shape, or of a structure of them, that a model was built for."""
    plain = tree.map_structure(
        lambda leaf: tuple(leaf) if isinstance(leaf, tf.TensorShape) else leaf, shapes
    )
    return tree.map_shape_structure(keras.KerasTensor, plain)


def _symbolic(value: Any) -> Any:
    if not isinstance(value, _Tensor):
        return value
    return keras.KerasTensor(value.shape, keras.backend.standardize_dtype(value.dtype))
