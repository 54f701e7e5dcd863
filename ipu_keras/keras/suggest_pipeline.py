"""Which layers of a Keras model should be in which stage of a pipeline."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from ipu_keras.keras.profiling import traced_step
from ipu_keras.pipelining_ops import PipelineSchedule
from ipu_keras.profiling import model_options, print_table, target_of
from ipu_keras.program import WEIGHT_UPDATE_SCOPE, stage_scope
from ipu_keras.report.balanced_pipeline import balanced_pipeline


def suggest_pipeline(
    model: keras.Model,
    num_ipus: int,
    *specs: Any,
    mode: str | None = None,
    target: Any = None,
    schedule: PipelineSchedule = PipelineSchedule.Grouped,
    **options: Any,
) -> list[Any]:
    """Balances the stages of a pipeline by modelled cycles and memory.

    Layers stay in their order. Of all ways to cut them, it finds the one whose slowest
    stage takes the fewest cycles, among those in which each stage fits into an IPU; if none
    does, among all. A table with an even number of layers in each stage beside that is printed.
    Nothing is executed.

    Args:
        model: A Sequential model, or one that has `get_pipeline_stage_assignment`.
        num_ipus: Stages, each on an IPU of its own.
        *specs: As for `profile`.
        mode: As for `profile`.
        target: Name of the hardware, or a `Target`; defaults to `"gc200"`.
        schedule: Of the pipeline: it says how many activations wait.
        **options: Of `ModelOptions`: `available_memory_proportion`, `dtype`,
            `gradient_accumulation_count` (2 if a model is trained), `num_replicas`.

    Returns:
        What `set_pipeline_stage_assignment` takes: of a Sequential model the stage of each
        layer; of others its assignments, with their `pipeline_stage` set.

    Raises:
        ValueError: There are fewer layers than stages, or an option that cannot be.

    Example:

    >>> import keras, tensorflow as tf
    >>> model = keras.Sequential([keras.Input((64,)), *map(keras.layers.Dense, [64, 64, 64, 8])])
    >>> suggest_pipeline(model, 2, tf.TensorSpec((16, 64)))  # doctest: +ELLIPSIS
    Stages of ...
    [0, 0, 1, 1]
    """
    if num_ipus < 2:
        raise ValueError(f"A pipeline needs at least two IPUs. Received: num_ipus={num_ipus}")
    assignments, layers = _layers_of(model)
    with _scopes(model, layers):
        name, graph = traced_step(model, specs, mode)
    training = name.endswith(".train")
    options.setdefault("gradient_accumulation_count", 2 if training else 1)
    found = balanced_pipeline(
        graph,
        len(layers),
        num_ipus,
        target=target_of(target),
        schedule=schedule,
        training=training,
        options=model_options(options),
        together=_together(layers),
        state_share=_state_share(model) if training else 0.0,
    )
    print_table(found.table(f"Stages of {name}, cycles for a micro-batch"))
    return _assigned(assignments, found.after.stages)


def _layers_of(model: keras.Model) -> tuple[list[Any] | None, list[keras.Layer]]:
    """The assignments of a model, `None` if it is Sequential, and the layer of each."""
    if isinstance(model, keras.Sequential):
        return None, list(model.layers)
    if not hasattr(model, "get_pipeline_stage_assignment"):
        raise ValueError(
            "Stages are suggested for Sequential models, and for others that were made in an "
            "IPUStrategy's scope, which have `get_pipeline_stage_assignment`. "
            f"Received: {model.name} of type {type(model).__name__}"
        )
    assignments = list(model.get_pipeline_stage_assignment())
    return assignments, [one.layer for one in assignments]


def _assigned(assignments: list[Any] | None, stages: Sequence[int]) -> list[Any]:
    if assignments is None:
        return list(stages)
    for assignment, stage in zip(assignments, stages, strict=True):
        assignment.pipeline_stage = stage
    return assignments


def _together(layers: Sequence[keras.Layer]) -> list[tuple[int, int]]:
    """Runs between calls of one layer with weights: those calls have to be on one IPU."""
    calls: dict[int, list[int]] = {}
    for position, layer in enumerate(layers):
        if layer.weights:
            calls.setdefault(id(layer), []).append(position)
    return [(found[0], found[-1]) for found in calls.values() if len(found) > 1]


def _state_share(model: keras.Model) -> float:
    """Bytes of the optimizer's state for each byte of what it trains."""
    states = sum(_num_bytes(variable) for variable in model.optimizer.variables)
    weights = sum(_num_bytes(variable) for variable in model.trainable_variables)
    return states / max(weights, 1)


def _num_bytes(variable: Any) -> int:
    return math.prod(variable.shape) * tf.as_dtype(variable.dtype).size


@contextlib.contextmanager
def _scopes(model: keras.Model, layers: Sequence[keras.Layer]) -> Iterator[None]:
    """Traces layer k in the scope of stage k; of a layer with several calls, one after the other.

    Weights are updated by gradient descent: what the optimizer does is of no stage, and tracing
    it takes as long as the rest. Keras looks `call` up on the layer itself, so that it can be
    hidden for a while without a change of its class.
    """
    positions: dict[int, list[int]] = {}
    for position, layer in enumerate(layers):
        positions.setdefault(id(layer), []).append(position)
    hidden = {id(layer): layer for layer in layers}
    try:
        for key, layer in hidden.items():
            vars(layer)["call"] = _in_scopes(layer.call, positions[key])
        if getattr(model, "optimizer", None) is not None:
            hidden[id(model.optimizer)] = model.optimizer
            vars(model.optimizer)["apply"] = _plain_update
        yield
    finally:
        for layer in hidden.values():
            vars(layer).pop("call", None)
            vars(layer).pop("apply", None)


def _in_scopes(call: Callable[..., Any], positions: Sequence[int]) -> Callable[..., Any]:
    num_calls = 0

    def scoped(*args, **kwargs):
        nonlocal num_calls
        # A model that is built is called once more before it is traced.
        stage = positions[num_calls % len(positions)]
        num_calls += 1
        with tf.name_scope(stage_scope(stage)):
            return call(*args, **kwargs)

    return scoped


def _plain_update(gradients: Sequence[Any], trainable_variables: Sequence[Any]) -> None:
    with tf.name_scope(WEIGHT_UPDATE_SCOPE):
        for gradient, variable in zip(gradients, trainable_variables, strict=True):
            if gradient is not None:
                variable.assign_sub(tf.cast(gradient, variable.dtype))
