"""The pipeline stages of a model's layers, and the pipeline that its steps run as."""

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
from ipu_keras.settings.arguments import noted


class StagedCalls(NamedTuple):
    """The calls that make up a model, in order, and the stage of each."""

    calls: tuple[LayerCall, ...]
    stages: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """Shape and dtype of an argument, in place of its values.

    What a model was called with need not be a tensor until its stages are asked for.
    """

    shape: Any
    dtype: Any


class ModelStages:
    """The pipeline stages of a model made in an `IPUStrategy`'s scope.

    This class serves subclasses of `keras.Model`, whose layers are known from a trace of `call`.
    The subclasses for Functional and Sequential models override the methods at the end.
    """

    _assignment_class: type = ModelLayerPipelineStageAssignment
    # Whether the stages can be given as plain integers.
    _takes_integers = True

    def __init__(self, model: Any):
        # Whether the `call` of this model, or of an outer one, enters PipelineStage scopes.
        self.in_call = False
        self._model = model
        # The arguments of the first call, by position and by name, with `_Tensor` for tensors.
        self._arguments: tuple[Any, Any] | None = None

    def note_arguments(self, args, kwargs) -> None:
        """Keeps what the model was first called with, for a trace of its `call`."""
        if self._arguments is None:
            self._arguments = tree.map_structure(_noted, (args, kwargs))

    def assignments(self) -> list:
        """Returns an assignment for each call of a layer, without input layers."""
        self._check_built("get")
        calls, stages = self.resolved()
        return [
            self._assignment(call, stage, calls)
            for call, stage in zip(calls, stages, strict=True)
            if call.is_layer
        ]

    def checked(self, assignment: Any) -> tuple[int | None, ...]:
        """Returns the stages in a list that a user has set, once they are known to make a
        pipeline."""
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
        """Returns the pipeline that the model runs as; None if no layer has a stage.

        It is checked in all respects, so that errors of the user's come before a program is
        made. `num_steps` are those of a replica in an execution. `name` is `"train"`, `"test"`
        or `"predict"`, whose step must be Keras's own; None leaves the steps unchecked.
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
        """Checks that a training of `num_steps` per execution and replica suits its
        accumulation, if any."""
        pipelined = self.staged_calls() is not None
        options = self._model._ipu.options
        chosen = options.pipelining if pipelined else options.accumulation
        steps = chosen.steps_per_replica or 1
        if not pipelined and steps == 1:
            return
        # Both parts of an accumulated step, the gradients and the update, are this package's
        # own: what users override there would not run.
        check_minimize(self._model.optimizer, keras.optimizers.Optimizer)
        checks.check_step_not_overridden(self._model, "train_step", pipelined=pipelined)
        if pipelined:
            checks.warn_of_batch_norm(self._model)
        checks.check_steps(num_steps, steps, pipelined=pipelined)

    def in_stages(self, step: Callable) -> Callable:
        """Returns a step whose operations are traced in the name scopes of their stages."""

        @functools.wraps(step)
        def staged_step(*args, **kwargs):
            staged = self.staged_calls()
            if staged is None:
                return step(*args, **kwargs)
            with in_stages(self._model, *staged):
                return step(*args, **kwargs)

        return staged_step

    def staged_calls(self) -> StagedCalls | None:
        """Returns the stages, complete or not; None if no layer has one.

        They are looked for once in a call of `fit`, `evaluate` or `predict`.
        """
        run = self._model._ipu.run
        if run is None or not self._is_built():
            return self._found()
        if run.staged_calls is None:
            # A subclass of `keras.Model` has to be traced to find out. The tuple tells None from
            # unknown.
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
        """Returns the calls of layers, with the stages that were set or else those of their
        scopes."""
        calls, options = self.calls(), self._model._ipu.options
        stages = checks.resolved_stages(calls, options.stages, options.operation_stages)
        return StagedCalls(calls, stages)

    def pipeline_of(self, staged: StagedCalls) -> Pipeline:
        """Returns the pipeline of these stages, with the options that are set."""
        # First, since an incomplete list of stages says nothing about the length of the others.
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

    # The methods from here on differ between kinds of models.
    def calls(self) -> tuple[LayerCall, ...]:
        """Returns the calls of layers that make up the model, in order, with the stages of
        scopes."""
        arguments = self._known_arguments()
        assert arguments is not None
        # While a step is traced the scope is already entered, and it cannot be entered twice.
        inside = current_ipu_strategy() is not None
        with contextlib.nullcontext() if inside else self._model.distribute_strategy.scope():
            return recorded_calls(self._model, *tree.map_structure(_symbolic, arguments))

    def check(self, calls, stages) -> None:
        """Checks stages that are in use, or about to be."""
        checks.check_stages(calls, stages)

    def _may_exist(self) -> bool:
        """Whether to look for stages, which takes a trace of the model."""
        if not self._is_built():
            return False
        return (
            self._model._ipu.options.stages is not None
            or self.in_call
            # A `call` that has never run may enter scopes that nobody has seen yet.
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
        """Builds the layers of a model that Keras takes for built, and returns the error if it
        fails.

        Keras's `build(shape)` of a subclass only notes the shape.
        """
        if self._model.built and self._known_arguments() is not None:
            noted = self._arguments
            try:
                self.calls()
            except Exception as error:  # from the user's `call`, which may not take floats
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
        """Returns the stages in a list that a user gives, complete or not."""
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
        """Blames an entry of neither kind, else the first whose kind is not that of the first."""
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
        """Returns what the model can be traced with: arguments of a call, else shapes of
        `build`."""
        if self._arguments is not None:
            return self._arguments
        shapes = getattr(self._model, "_build_shapes_dict", None) or {}
        tensors = {name: _tensors_of(shape) for name, shape in shapes.items() if shape}
        if len(shapes) == len(tensors) == 1:
            return tuple(tensors.values()), {}
        # Keras names the shapes of several inputs after the arguments of `call`.
        named = {name.removesuffix("_shape"): tensors[name] for name in tensors}
        takes = inspect.signature(self._model.call).parameters
        return ((), named) if named and named.keys() <= takes.keys() else None


class FunctionalStages(ModelStages):
    """The pipeline stages of a Functional model, by call of a layer.

    The calls in Functional and Sequential models that it calls count one by one. All layers are
    there from the beginning, so nothing needs to be traced or built.
    """

    _assignment_class = FunctionalLayerPipelineStageAssignment
    _takes_integers = False

    def calls(self) -> tuple[LayerCall, ...]:
        return functional_calls(self._model)

    def _may_exist(self) -> bool:
        return True

    def _check_built(self, what: str) -> None:
        """Does nothing, as a Functional model is always built."""

    def _assignment(self, call: LayerCall, stage: int | None, calls) -> Any:
        return FunctionalLayerPipelineStageAssignment(call.operation, call.node_index, stage)


class SequentialStages(ModelStages):
    """The pipeline stages of a Sequential model, built or not; a model in it is one layer."""

    _assignment_class = SequentialLayerPipelineStageAssignment

    def calls(self) -> tuple[LayerCall, ...]:
        return sequential_calls(self._model)

    def check(self, calls, stages) -> None:
        checks.check_sequence(calls, stages)

    def _may_exist(self) -> bool:
        return True

    def _check_built(self, what: str) -> None:
        """Does nothing: the list of layers is known before they are built."""

    def _assignment(self, call: LayerCall, stage: int | None, calls) -> Any:
        return SequentialLayerPipelineStageAssignment(call.operation, stage)

    def _is_for(self, assignment: Any, call: LayerCall) -> bool:
        return assignment.layer is call.operation


def stages_of(model: keras.Model) -> ModelStages:
    """Returns the pipeline stages of a model, by its kind.

    The kind is known only once the model has been initialised: a subclass of `keras.Model` may
    become a Functional model then.
    """
    if isinstance(model, keras.Sequential):
        return SequentialStages(model)
    if isinstance(model, Functional):
        return FunctionalStages(model)
    return ModelStages(model)


def _noted(value: Any) -> Any:
    """Returns what to keep of an argument, which leaves out the values of tensors and arrays."""
    is_tensor = hasattr(value, "shape") and hasattr(value, "dtype")
    return _Tensor(value.shape, value.dtype) if is_tensor else value


def _tensors_of(shapes: Any) -> Any:
    """Returns symbolic tensors for the shapes that a model was built for, in their structure."""
    plain = tree.map_structure(
        lambda leaf: tuple(leaf) if isinstance(leaf, tf.TensorShape) else leaf, shapes
    )
    return tree.map_shape_structure(keras.KerasTensor, plain)


def _symbolic(value: Any) -> Any:
    if not isinstance(value, _Tensor):
        return value
    return keras.KerasTensor(value.shape, keras.backend.standardize_dtype(value.dtype))
