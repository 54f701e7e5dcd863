"""The options with which `fit`, `evaluate` and `predict` would run a model, for the cost model."""

from collections.abc import Mapping
from typing import Any

import keras

from ipu_keras.cost import overlap
from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.profiling.configured_options import configured_options
from ipu_keras.profiling.given_options import check_options


def options_as_set(
    model_or_function: Any, given: Mapping[str, Any], mode: str | None
) -> dict[str, Any]:
    """Returns the options of a step: those that are given, else those of what would run it.

    For a model these are the steps of `compile`, accumulation, replicas and stages as they were
    set, and what the active `IPUConfig` says. `given` has the options of `model_options`, and
    `target`; `mode` is `"train"`, `"test"` or `"predict"`, and None for a function.
    """
    as_set = {}
    if isinstance(model_or_function, ModelExtension):
        as_set = _of_extension(model_or_function, given, training=mode == "train")
    options = {**as_set, **given}
    check_options(options)
    if isinstance(model_or_function, keras.Model) and "steps_per_execution" not in given:
        # A program ends with a weight update, and a pipeline takes several batches at least.
        count = options.get("gradient_accumulation_count", 1)
        least = options.get("steps_per_execution", count)
        steps = model_or_function.steps_per_execution
        options["steps_per_execution"] = least if steps % least else steps
    return options


def _of_extension(model: Any, given: Mapping[str, Any], *, training: bool) -> dict[str, Any]:
    found = configured_options()
    options, staged = model._ipu.options, model._ipu.stages.staged_calls()
    pipeline = None if staged is None else model._ipu.stages.pipeline_of(staged)
    if "num_ipus" not in given and "pipeline" not in given:
        # A caller who shares the IPUs out leaves none for replicas.
        found["num_replicas"] = _num_replicas(model, 1 if pipeline is None else pipeline.num_ipus)
    if pipeline is None:
        count = options.accumulation.steps_per_replica
        return {**found, "gradient_accumulation_count": count} if training and count else found
    depth = overlap(pipeline.schedule, pipeline.device_mapping, training=training)
    found["pipeline"] = pipeline
    if training:
        count = options.pipelining.steps_per_replica or depth
        return {**found, "gradient_accumulation_count": count}
    return {**found, "steps_per_execution": depth}


def _num_replicas(model: Any, needed: int) -> int:
    """Returns as many replicas as the device has IPUs for; 1 if it does not have enough yet."""
    device = model.distribute_strategy.device
    num_ipus = 0 if device is None else len(device.ipus)
    return max(num_ipus // needed, 1) if num_ipus % needed == 0 else 1
