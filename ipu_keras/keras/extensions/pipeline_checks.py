"""Checks of pipelined models, and of those that accumulate gradients. None of them changes a
model."""

import itertools
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import keras
import tensorflow as tf

from ipu_keras.cost import depth_message, overlap
from ipu_keras.internals.keras.models import Functional, layers_in
from ipu_keras.keras.extensions.layer_calls import LayerCall, has_call_of
from ipu_keras.program import Pipeline
from ipu_keras.settings.arguments import noted


def resolved_stages(
    calls: Sequence[LayerCall],
    assigned: Sequence[int | None] | None,
    operation_stages: Sequence[int | None] = (),
) -> tuple[int | None, ...]:
    """Returns the stage of each call.

    An operation that is not a layer cannot be assigned by users. It is in the stage of its
    latest input, unless it was called in a scope.

    Args:
        assigned: The stages of the calls of layers; `None` takes those of scopes, and an empty
            sequence means that no call has one.
        operation_stages: Stages of the other calls, used if `assigned` is given; empty if
            unknown.
    """
    if assigned is None:
        given = iter([call.stage for call in calls])
    elif not assigned:
        return (None,) * len(calls)
    else:
        check_length(calls, assigned)
        given = _in_order(calls, assigned, operation_stages)
    stages: list[int | None] = []
    for call, stage in zip(calls, given, strict=True):
        if stage is None and not call.is_layer:
            stage = max((stages[i] or 0 for i in call.inbound), default=0)
        stages.append(stage)
    return tuple(stages)


def check_length(calls: Sequence[LayerCall], assignment: Sequence[Any]) -> None:
    """Refuses a list with more or fewer entries than there are calls of layers."""
    num_layers = sum(call.is_layer for call in calls)
    if len(assignment) != num_layers:
        raise ValueError(
            f"The length of the provided `pipeline_stage_assignment` ({len(assignment)}) does not "
            f"match the number of layers in the graph ({num_layers}). Each layer needs a stage, "
            "and each of its calls if it is called more than once; input layers have none. Change "
            "the list that `get_pipeline_stage_assignment()` returns."
        )


def check_stages(calls: Sequence[LayerCall], stages: Sequence[int | None]) -> None:
    """Refuses calls without a stage, stages without a layer, and data that flows backwards."""
    check_completeness(calls, stages)
    _check_gaps({stage for call, stage in zip(calls, stages, strict=True) if call.is_layer})
    for call, stage in zip(calls, stages, strict=True):
        later = [i for i in call.inbound if stages[i] > stage]  # type: ignore[operator]
        if later:
            raise noted(
                ValueError(
                    f"Layer {call.operation.name} in pipeline stage {stage} has a dependency "
                    "from a pipeline stage which has not yet been executed. Layers can only "
                    "use outputs from current or previous pipeline stages."
                ),
                f"Received: it takes that of {calls[later[0]].operation.name} in stage "
                f"{stages[later[0]]}.",
            )


def check_completeness(calls: Sequence[LayerCall], stages: Sequence[int | None]) -> None:
    """Refuses stages of which one is missing."""
    for call, stage in zip(calls, stages, strict=True):
        if stage is None:
            refuse_without_stage(call.operation.name)


def refuse_without_stage(layer: str) -> NoReturn:
    """Refuses a layer, by its name, of a pipelined model that has no stage."""
    raise noted(
        ValueError(
            "All layers of a pipelined model must have an associated pipeline stage. "
            f"However, {layer} has not been assigned to one. Pipeline "
            "stages can be assigned when a layer is constructed, or each time a layer "
            "is called. Different pipeline stages can be assigned to each call."
        ),
        "Make or call it in the scope of a PipelineStage, or use `set_pipeline_stage_assignment`.",
    )


def check_sequence(calls: Sequence[LayerCall], stages: Sequence[int | None]) -> None:
    """Refuses stages of a Sequential model that do not count up from 0, by one at a time."""
    check_completeness(calls, stages)
    if stages[0] != 0:
        raise ValueError(
            "The first layer in a pipelined sequential model needs to be assigned to the 0th "
            f"pipeline stage, however it was assigned to {stages[0]}."
        )
    for call, (previous, stage) in zip(calls[1:], itertools.pairwise(stages), strict=True):
        if stage not in (previous, previous + 1):  # type: ignore[operator]
            raise noted(
                ValueError(
                    f"Layer {call.operation.name} has been assigned to pipeline stage {stage}, "
                    "however the previous layer in the Sequential model was assigned to "
                    f"pipeline stage {previous}. A layer in a Sequential model can only be "
                    "assigned to the same pipeline stage as the previous layer or to the next "
                    "one."
                ),
                "Count the stages of the layers up from 0, by one at a time.",
            )


def check_mapping(device_mapping: Sequence[int], num_stages: int) -> None:
    """Refuses a device mapping that has more or fewer IPUs than there are stages."""
    if len(device_mapping) != num_stages:
        raise noted(
            ValueError(
                f"Each stage must be mapped to an IPU: {len(device_mapping)} mappings != "
                f"{num_stages} stages"
            ),
            "Give `device_mapping` of `set_pipelining_options` one IPU for each stage. "
            f"Received: device_mapping={list(device_mapping)}",
        )


def check_shared_weights(
    calls: Sequence[LayerCall], stages: Sequence[int | None], device_mapping: Sequence[int]
) -> None:
    """Refuses a weight that stages on different IPUs use.

    Each IPU has a memory of its own, and a weight lies in one of them.
    """
    users: dict[int, int] = {}
    for call, stage in zip(calls, stages, strict=True):
        for weight in getattr(call.operation, "weights", ()):
            first = users.setdefault(id(weight), stage)  # type: ignore[arg-type]
            if device_mapping[first] != device_mapping[stage]:  # type: ignore[index]
                message = (
                    f"The weight {weight.path} is used in pipeline stages {first} and {stage}, "
                    f"which are on the IPUs {device_mapping[first]} and "
                    f"{device_mapping[stage]}, but an input can only be used by "  # type: ignore[index]
                    "pipeline stages on the same IPU. Map these stages to one IPU using the "
                    "`device_mapping` argument of `set_pipelining_options`."
                )
                raise tf.errors.UnimplementedError(None, None, message)


def check_depth(pipeline: Pipeline, training: bool, num_iterations: int) -> None:
    """Refuses a number of iterations that do not fill and drain a pipeline in whole rounds.

    `num_iterations` is how often each stage runs; `training` gives each a backward stage.
    """
    multiple = overlap(pipeline.schedule, pipeline.device_mapping, training=training)
    if num_iterations % multiple:
        message = depth_message(multiple, num_iterations)
        raise tf.errors.FailedPreconditionError(None, None, message)


def check_steps(steps_per_execution: int, steps_per_replica: int, *, pipelined: bool) -> None:
    """Refuses an execution of training that does not end with a weight update.

    Both counts are steps of one replica. What is accumulated does not outlive an execution.
    """
    if steps_per_execution % steps_per_replica:
        setter = "set_pipelining_options" if pipelined else "set_gradient_accumulation_options"
        raise noted(
            RuntimeError(
                f"The {'pipelined ' if pipelined else ''}model has been configured to use "
                "gradient accumulation for training, however the current `steps_per_execution` "
                f"value (set to {steps_per_execution}) is not divisible by "
                f"`gradient_accumulation_steps_per_replica` ({steps_per_replica}). You need to "
                "adjust either `steps_per_execution` "
                "or`gradient_accumulation_steps_per_replica` to make sure that "
                "`steps_per_execution` is divisible by "
                "`gradient_accumulation_steps_per_replica`."
            ),
            f"Change `steps_per_execution` of `compile`, or the count of `{setter}`.",
        )


def check_ipus(num_ipus: int, needed: int) -> None:
    """Refuses a device whose IPUs do not make a whole number of replicas."""
    if num_ipus < needed or num_ipus % needed:
        raise noted(
            ValueError(
                f"Current device has {num_ipus} IPUs attached, however the current model "
                f"requires a multiple of {needed} IPUs."
            ),
            "Configure the device with so many, for instance `config.auto_select_ipus = "
            f"{needed}`, or change the pipeline stages or their `device_mapping`.",
        )


def check_step_not_overridden(model: keras.Model, step: str, *, pipelined: bool) -> None:
    """Refuses a model that overrides a step of Keras, such as `"train_step"`.

    `pipelined` words the error: it says why the step must be Keras's own, a pipeline or else
    accumulation.
    """
    if is_overridden(model, step):
        _refuse_overridden(
            model, step, "pipelined Keras models" if pipelined else "gradient accumulation"
        )


def is_overridden(model: keras.Model, step: str) -> bool:
    """Whether a model has its own version of a step, such as `"train_step"`."""
    # The first class that defines the step is the one that runs. A step may also be set on the
    # instance.
    makers = [kind for kind in type(model).__mro__ if step in vars(kind)]
    by_keras = makers[0].__module__.startswith(("keras.src.", "ipu_keras."))
    return step in vars(model) or not by_keras


def check_call_not_overridden(model: keras.Model) -> None:
    """Refuses a Functional or Sequential model with its own `call`.

    Its stages are assigned to the calls in its graph, which such a `call` need not run.
    """
    for kind in (keras.Sequential, Functional):
        if isinstance(model, kind) and not has_call_of(model, kind):
            _refuse_overridden(model, "call", f"pipelined Keras {kind.__name__} models")


def warn_of_batch_norm(model: keras.Model) -> None:
    """Warns of layers of a pipelined model whose results depend on how a batch is split."""
    norms = [
        layer.name
        for layer in layers_in(model)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    ]
    if norms:
        warnings.warn(
            f"The pipelined model {model.name} has BatchNormalization layers: {', '.join(norms)}. "
            "They normalize each batch that goes through the pipeline by its own statistics, not "
            "by those of all that make a weight update, and update their moving averages with "
            "each. Where batches are small, use GroupNormalization or LayerNormalization instead, "
            "or set `trainable = False` to keep the moving averages as they are.",
            stacklevel=2,
        )


def _refuse_overridden(model: keras.Model, name: str, what: str) -> None:
    raise noted(
        RuntimeError(
            f"The function `{name}` for the model {model.name} has been overridden. This is not "
            f"supported for {what}."
        ),
        "Their programs are made of Keras's own function: remove the override, or use the "
        "model without.",
    )


def _in_order(calls, assigned, operation_stages):
    """Returns the given stages in the order of calls; None for operations without one."""
    layers, operations = iter(assigned), iter(operation_stages)
    return [next(layers) if call.is_layer else next(operations, None) for call in calls]


def _check_gaps(stages: set[int | None]) -> None:
    highest = max(stage for stage in stages if stage is not None)
    empty = [stage for stage in range(highest) if stage not in stages]
    if empty:
        # "lease" is the documented spelling, which users match.
        raise RuntimeError(
            "All stages in a pipeline must have at lease one layer assigned to them. The highest "
            f"stage with an assignment is {highest}, but there is no layer in the stages {empty}."
        )
