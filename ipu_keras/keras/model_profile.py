"""What a Keras model would cost on an IPU, without running it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ipu_keras.advice.budgets import Limits, Remedy, remedies
from ipu_keras.advice.choices import combinations
from ipu_keras.ir import Graph
from ipu_keras.keras.extensions.layer_calls import graph_of
from ipu_keras.keras.extensions.profiled import (
    ProfiledFunction,
    TraceKind,
    profiled,
    written_as_asked,
)
from ipu_keras.profiling.given_options import (
    MODEL_OPTIONS,
    check_names,
    checked_batch_size,
    listed,
    warn_of_idle,
    with_dtype_names,
)
from ipu_keras.profiling.models import first_axis, model_of
from ipu_keras.profiling.reports import if_possible, report_of, with_fixes
from ipu_keras.progress import showing
from ipu_keras.report.report import Report
from ipu_keras.report.what_if import Choice, WhatIf
from ipu_keras.settings.arguments import name_or_none

_CHOICES = ("target", *MODEL_OPTIONS)


def profile(
    model_or_function: keras.Model | Callable[..., Any],
    *specs: Any,
    mode: str | None = None,
    **options: Any,
) -> Report:
    """Models one step of a model, or one call of a function, on an IPU.

    Nothing is executed, and no weight changes. A model that has not been built yet is
    built for the specs, as training would.

    Args:
        model_or_function: A Keras model, made inside a strategy's scope or not, or
            a function of tensors.
        *specs: A `tf.TensorSpec`, with the batch size, for the inputs of a model
            and, to train or test it, for its labels and sample weights; for
            each argument of a function. Arrays and tensors stand for their specs; those of
            models as `fit` feeds them, with floating point numbers of Keras's `floatx`.
        mode: For a model `"train"`, `"test"` or `"predict"`. Defaults to
            `"train"` if it is compiled and labels are given, else `"predict"`.
        **options: `target` (`"gc2"`, `"gc200"`, `"bow"`, `"c600"` or a `Target`; defaults to
            `"gc200"`; of a model that was made in an `IPUStrategy`'s scope, this and other options
            default to what the active `IPUConfig` says), `name`, `batch_size`, the samples of a
            step (by default the first axis of the specs of a model, and unknown of a function),
            and those of `CostOptions`: `available_memory_proportion`, `convolution_options` and
            `matmul_options` (as `poplar_options` of the configuration; what has no model gives a
            warning), `outlining`, `steps_per_execution` (by default that of `compile`, if stages
            and accumulation allow it, as `fit` has it), `dtype` (`"float16"` or `"float32"`: a
            model is traced as if its layers had been made under Keras's policy of that name, if it
            can be made again from its configuration; otherwise, and of a function, all floating
            point numbers of the step count as such),
            `recomputation` (`True`: activations are computed again for the gradient instead of
            kept) and `num_ipus` (1, 2, 4, ...: the layers are shared among so many IPUs, of which
            one computes at a time), `gradient_accumulation_count` (steps between two weight
            updates; by default what was set on the model), `gradient_accumulation_dtype`,
            `num_replicas` (by default as many as the model's device has IPUs for; racks of 64 IPUs
            exchange over gateways), `own_updates` (`True`: replicas do not add up gradients),
            `pipeline` (a `Pipeline`; by default that of the model's stages),
            `selection_order` (a `SelectionOrder`), `stage_splits` (stages in place of each of the
            pipeline, on as many IPUs in place of one), `minimum_remote_tensor_size`,
            `maximum_cross_replica_sum_buffer_size`, `maximum_reduce_scatter_buffer_size`,
            `num_io_tiles`, `place_ops_on_io_tiles` and `io_tile_available_memory_proportion`.
            Functions that have stages or a weight update trace them in the scopes of these.

    Returns:
        The report. If the step does not fit into the memory of an IPU, its `fixes` say what
        would help, a smaller batch included, for which it is traced again.

    Raises:
        ValueError: A mode, target, option or spec is not valid. It is raised before anything
            is built.
        TypeError: An option does not exist, or a value is neither model, function nor spec.
        LoweringError: XLA cannot compile an operation of the step.

    Example:

    >>> import keras, tensorflow as tf
    >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)], name="small")
    >>> report = profile(model, tf.TensorSpec((16, 8)))
    >>> report.name, report.fits
    ('small.predict', True)
    """
    check_names(options, ("mode", "name", "batch_size", *_CHOICES))
    specs = _checked_specs(model_or_function, specs)
    _check_sizes(specs)
    subject = profiled(model_or_function)
    size = _batch_size(specs) if subject.has_batches else None
    size = options.pop("batch_size", size)
    size = None if size is None else checked_batch_size(size)
    own_name = name_or_none("name", options.pop("name", None))
    note = subject.note(mode, len(specs))
    mode = subject.mode(mode, len(specs))
    given = options
    options = with_dtype_names(subject.options(given, mode, specs))
    warn_of_idle(given)

    def trace(batch_size: int) -> Graph:
        return subject.traced(_with_batch_size(specs, batch_size), mode, options)[1]

    with showing("profile"):
        dtype = options.get("dtype")
        subject, options = written_as_asked(subject, options)
        name, graph = subject.traced(specs, mode, options)
        name = name if own_name is None else own_name
        report = replace(report_of(name, graph, batch_size=size, **options), note=note)
        variants = subject.variants(specs, mode, options)
        return _telling(with_fixes(report, trace=trace, variants=variants), dtype)


def remedies_of(
    report: Report,
    limits: Limits,
    model_or_function: keras.Model | Callable[..., Any],
    *specs: Any,
    mode: str | None = None,
    **options: Any,
) -> tuple[Remedy, ...]:
    """Models what might help a program, which `profile` reported on, to keep limits.

    The other arguments are those that `profile` was given for the report.
    """
    specs = _checked_specs(model_or_function, specs)
    for name in ("name", "batch_size"):
        options.pop(name, None)
    subject = profiled(model_or_function)
    mode = subject.mode(mode, len(specs))
    options = with_dtype_names(subject.options(options, mode, specs))
    subject, options = written_as_asked(subject, options)

    def with_batch(size: int) -> Any:
        try:
            name, graph = subject.traced(_with_batch_size(specs, size), mode, options)
            return model_of(name, graph, **options)
        except Exception:
            return None  # the step was written for one size; that is no failure of who asks

    return remedies(
        report.model,
        limits,
        batch_size=report.batch_size,
        with_batch=with_batch,
        variants=if_possible(subject.variants(specs, mode, options)),
    )


def what_if(
    model_or_function: keras.Model | Callable[..., Any],
    *specs: Any,
    mode: str | None = None,
    batch_size: Sequence[int] | np.ndarray | int | None = None,
    **choices: Any,
) -> WhatIf:
    """Models a step for every combination of several choices.

    Args:
        model_or_function: A Keras model or a function of tensors, as for `profile`.
        *specs: A spec for each input and label, as for `profile`.
        mode: `"train"`, `"test"` or `"predict"`, as for `profile`.
        batch_size: Sizes of the first axis of all specs that have one, in a list, range or
            array; by default the specs stay as they are.
        **choices: Lists, ranges or arrays of values, or single ones, for what `profile` takes:
            `target`, `dtype`, `num_ipus`, `recomputation`, `available_memory_proportion`,
            `steps_per_execution` and the others of `CostOptions`.

    Returns:
        A table of the combinations, with a star at the smallest that fits: of those with
        the fewest IPUs the one that takes the least time per sample.

    Raises:
        ValueError: A list is empty, or `profile` would refuse a value.
        TypeError: An option does not exist, or a value is neither model, function nor spec.

    Example:

    >>> import keras, tensorflow as tf
    >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
    >>> table = what_if(model, tf.TensorSpec((1, 8)), batch_size=[16, 64], target=["gc200", "bow"])
    >>> [row.choices["batch_size"] for row in table.rows]
    [16, 16, 64, 64]
    >>> table.best.choices
    {'batch_size': 64, 'target': 'bow'}
    """
    check_names(choices, ("mode", "batch_size", *_CHOICES))
    specs = _checked_specs(model_or_function, specs)
    given = {_batch_size(specs) or 1: specs}
    if batch_size is not None:
        sizes = map(checked_batch_size, listed("batch_size", batch_size))
        given = {size: _with_batch_size(specs, size) for size in sizes}
    for sized in given.values():
        _check_sizes(sized)
    lists = {name: listed(name, values) for name, values in choices.items()}
    rows = []
    subject = profiled(model_or_function)
    mode = subject.mode(mode, len(specs))
    combined = [with_dtype_names(options) for options in combinations(lists)]
    complete = [subject.options(options, mode, specs) for options in combined]
    warn_of_idle(lists)
    with showing("what if"):
        for size, sized in given.items():
            # Tracing takes longest, so choices that only the cost model reads share a trace.
            traced: dict[tuple[ProfiledFunction, TraceKind], tuple[str, Graph]] = {}
            for chosen, options in zip(combined, complete, strict=True):
                written, options = written_as_asked(subject, options)
                kind = written, TraceKind.of(options)
                if kind not in traced:
                    traced[kind] = written.traced(sized, mode, options)
                name, graph = traced[kind]
                report = report_of(name, graph, batch_size=size, **options)
                report = _telling(report, chosen.get("dtype"))
                rows.append(Choice({"batch_size": size, **chosen}, report))
    return WhatIf(tuple(rows))


def _telling(report: Report, dtype: str | None) -> Report:
    """Returns a report with the dtype among its options, which its trace has already."""
    if dtype is None:
        return report
    model = replace(report.model, options=replace(report.model.options, dtype=dtype))
    return replace(report, model=model)


def _checked_specs(model_or_function: Any, specs: tuple) -> tuple:
    """Returns specs for arrays and tensors too, in the same structure, or says what is none."""
    is_class = isinstance(model_or_function, type) and issubclass(model_or_function, keras.Model)
    if is_class or not callable(model_or_function):
        raise TypeError(
            "`model_or_function` must be a Keras model, or a function of tensors. "
            f"Received: {model_or_function!r} of type {type(model_or_function).__name__}"
        )
    is_model = isinstance(model_or_function, keras.Model)
    specs = tf.nest.map_structure(lambda given: _spec_of(given, is_model), specs)
    if is_model and len(specs) == 1 and isinstance(specs[0], tuple | list) and len(specs[0]) > 1:
        graph = graph_of(model_or_function)
        if graph is not None and len(graph.inputs) == 1:
            raise ValueError(
                f"The model {model_or_function.name} has one input. Give the specs of inputs, "
                "labels and sample weights one by one: unpack those of a dataset with a star, as "
                f"in `*dataset.element_spec`. Received: {len(specs[0])} specs in one "
                f"{type(specs[0]).__name__}"
            )
    return specs


def _check_sizes(specs: tuple) -> None:
    for spec in tf.nest.flatten(specs):
        if not spec.shape.is_fully_defined():
            raise ValueError(
                "A spec must have the size of each axis, the batch size included, as programs of "
                "IPUs have fixed shapes. Datasets know it after `batch(size, drop_remainder=True)`"
                f", and `what_if` takes `batch_size`. Received: {spec}"
            )


def _spec_of(given: Any, is_model: bool) -> tf.TypeSpec:
    if isinstance(given, tf.RaggedTensorSpec | tf.SparseTensorSpec):
        raise TypeError(f"IPUs compute with dense tensors of fixed shapes. Received: {given}")
    try:
        spec = given
        if not isinstance(given, tf.TypeSpec):
            spec = tf.TensorSpec(given.shape, given.dtype)
            if is_model and spec.dtype.is_floating:
                # What NumPy makes is float64, which `fit` does not feed.
                spec = tf.TensorSpec(given.shape, keras.config.floatx())
        is_empty = spec.shape.rank and 0 in spec.shape.as_list()
    except (AttributeError, TypeError, ValueError) as error:
        raise TypeError(
            "A spec must have a shape and a dtype. Pass `tf.TensorSpec(shape, dtype)`, with "
            "the batch size as the first axis of a model's, or an array or tensor like it. "
            f"Received: {given!r} of type {type(given).__name__}"
        ) from error
    if is_empty:
        raise ValueError(
            "A spec must have at least one element along each axis, the batch size "
            f"included. Received: {spec}"
        )
    return spec


def _batch_size(specs: Any) -> int | None:
    return first_axis(spec.shape for spec in tf.nest.flatten(specs) if spec.shape.rank)


def _with_batch_size(specs: Any, batch_size: int) -> Any:
    def sized(spec):
        shape = [batch_size, *spec.shape[1:]] if spec.shape.rank else []
        return tf.TensorSpec(shape, spec.dtype)

    return tf.nest.map_structure(sized, specs)
