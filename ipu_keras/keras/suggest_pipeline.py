"""Suggests which layers of a Keras model should be in which stage of a pipeline."""

from collections.abc import Sequence
from typing import Any

import keras

from ipu_keras.advice.balanced_pipeline import balanced_pipeline
from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.keras.extensions.profiled import ProfiledModel, profiled, written_as_asked
from ipu_keras.profiling.given_options import model_options, target_of, warn_of_idle
from ipu_keras.progress import phase, showing
from ipu_keras.report.advice_tables import balance_table
from ipu_keras.report.text import rendered
from ipu_keras.settings.arguments import integer_in
from ipu_keras.settings.pipeline_choices import PipelineSchedule
from ipu_keras.tracing import no_garbage_collection


@no_garbage_collection()
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

    Layers stay in their order. Of all ways to cut them, it finds the one whose slowest stage
    takes the fewest cycles, among those in which each stage fits into an IPU; if none does, among
    those whose fullest stage needs the least memory. It prints a table that compares the result
    with an even number of layers in each stage. Nothing is executed.

    Args:
        model: A Sequential model, or one that has `get_pipeline_stage_assignment`.
        num_ipus: Number of stages, each on an IPU of its own.
        *specs: A `tf.TensorSpec` for each input and label, as for `profile`.
        mode: `"train"`, `"test"` or `"predict"`, as for `profile`.
        target: Name of the hardware, or a `Target`; defaults to `"gc200"`. For a model that was
            made in an `IPUStrategy`'s scope, this and `options` default to what the active
            `IPUConfig` says.
        schedule: Schedule of the pipeline, which says how many activations wait.
        **options: Those of `profile` that are fields of `CostOptions`, such as `dtype`,
            `recomputation`, `available_memory_proportion`, `num_replicas` and
            `gradient_accumulation_count` (2 if a model is trained).

    Returns:
        A list as `set_pipeline_stage_assignment` takes it: for a Sequential model the stage of
            each layer; for others their assignments, with `pipeline_stage` set.

    Raises:
        ValueError: There are fewer layers than stages, the stages of the model cannot be
            assigned, or an option is not valid.
        TypeError: `model` is not a Keras model, `schedule` not a schedule, or there is no such
            option.

    Example:

    >>> import keras, tensorflow as tf
    >>> model = keras.Sequential([keras.Input((64,)), *map(keras.layers.Dense, [64, 64, 64, 8])])
    >>> suggest_pipeline(model, 2, tf.TensorSpec((16, 64)))  # doctest: +ELLIPSIS
    Stages of ...
    [0, 0, 1, 1]
    """
    stages, table = suggested(
        model, num_ipus, *specs, mode=mode, target=target, schedule=schedule, **options
    )
    print(table, end="")
    return stages


def suggested(
    model: keras.Model,
    num_ipus: int,
    *specs: Any,
    mode: str | None = None,
    target: Any = None,
    schedule: PipelineSchedule = PipelineSchedule.Grouped,
    **options: Any,
) -> tuple[list[Any], str]:
    """Returns what `suggest_pipeline` does, and the table that it prints."""
    _check_model(model)
    subject = profiled(model)
    assert isinstance(subject, ProfiledModel)
    mode = subject.mode(mode, len(specs))
    if not model.built:
        # Layers of a model with a `call` of its own are known once it is built.
        subject.built(specs, mode)
    assignments, layers = _layers_of(model)
    num_stages = integer_in(num_ipus)
    if num_stages is None or num_stages < 2:
        raise ValueError(
            "`num_ipus` must be an integer, as a pipeline needs at least two IPUs. "
            f"Received: num_ipus={num_ipus!r}"
        )
    if num_stages > len(layers):
        raise ValueError(
            f"`num_ipus` must be at most {len(layers)}, the layers of the model, as each IPU has a "
            f"stage of its own. Received: num_ipus={num_ipus!r}"
        )
    if not isinstance(schedule, PipelineSchedule):
        raise TypeError(
            "`schedule` must be a PipelineSchedule, such as PipelineSchedule.Grouped. "
            f"Received: schedule={schedule!r}"
        )
    configured = subject.configured()
    configured_target = configured.pop("target", None)
    hardware = target_of(configured_target if target is None else target)
    # Checked before the trace, which takes the longest.
    model_options({**configured, **options})
    warn_of_idle(options, stacklevel=5)  # two more: of the caller and its decorator
    with showing("suggest pipeline"):
        training = mode == "train"
        count = 2 if training else 1
        given = {"gradient_accumulation_count": count, **configured, **options}
        written, given = written_as_asked(subject, given)
        chosen = model_options(given)
        step = written.by_layer(specs, mode, num_replicas=chosen.num_replicas)
        with phase("balance stages"):
            found = balanced_pipeline(
                step,
                num_stages,
                target=hardware.without_tiles(chosen.num_io_tiles),
                schedule=schedule,
                training=training,
                options=chosen,
            )
    table = balance_table(f"Stages of {model.name}.{mode}, cycles for a micro-batch", found)
    return _assigned(assignments, found.after.stages), rendered(table)


def _check_model(model: Any) -> None:
    if not isinstance(model, keras.Sequential | ModelExtension):
        error = ValueError if isinstance(model, keras.Model) else TypeError
        raise error(
            "`model` must be a Sequential model, or another that was made in an IPUStrategy's "
            "scope, which has `get_pipeline_stage_assignment`. "
            f"Received: model={model!r} of type {type(model).__name__}"
        )


def _layers_of(model: keras.Model) -> tuple[list[Any] | None, list[keras.Layer]]:
    """Returns the assignments of a model, None if it is Sequential, and the layer of each."""
    if isinstance(model, keras.Sequential):
        return None, list(model.layers)
    assignments = list(model.get_pipeline_stage_assignment())
    return assignments, [one.layer for one in assignments]


def _assigned(assignments: list[Any] | None, stages: Sequence[int]) -> list[Any]:
    if assignments is None:
        return list(stages)
    for assignment, stage in zip(assignments, stages, strict=True):
        assignment.pipeline_stage = stage
    return assignments
