"""What TensorFlow functions would cost on an IPU, and what the programs of a device do."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from ipu_keras.compiler.modelling import ModelOptions, model_graph
from ipu_keras.device import device_for
from ipu_keras.device.placement import short_name
from ipu_keras.ir import Graph
from ipu_keras.program import Program
from ipu_keras.report import Report, suggest_fixes
from ipu_keras.target import DEFAULT_TARGET, Target, target_named
from ipu_keras.tracing import traced_for_xla
from ipu_keras.tracing.hlo import hlo_graph
from ipu_keras.tracing.lowering import LoweringError


def traced_graph(function: Callable[..., Any], *specs: Any) -> Graph:
    """What a function computes, traced but not executed.

    Args:
        function: A Python function of tensors, or a `tf.function`.
        *specs: A `tf.TensorSpec` for each argument, or structures of them.

    Raises:
        LoweringError: XLA cannot compile an operation of the function.
    """
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    return hlo_graph(traced)


def report_of(
    name: str, graph: Graph, *, target: str | Target = DEFAULT_TARGET, **options: Any
) -> Report:
    """Models a traced step.

    Args:
        name: What the report calls it.
        graph: The step.
        target: Name of the hardware, or a `Target`.
        **options: Of `ModelOptions`.

    Raises:
        ValueError: No such target, or an option out of its range.
        TypeError: No such option.
    """
    hardware = target_named(target) if isinstance(target, str) else target
    return Report.of(model_graph(name, graph, hardware, ModelOptions(**options)))


def with_fixes(
    report: Report,
    *,
    batch_size: int,
    trace: Callable[[int], Graph],
    only_if_needed: bool = False,
) -> Report:
    """A report with what would help, if its program does not fit.

    Args:
        report: Of a program.
        batch_size: Samples of its step.
        trace: Gives its graph for another batch size.
        only_if_needed: Whether it is traced again only if nothing else would help.
    """

    def trace_if_possible(size: int) -> Graph | None:
        try:
            return trace(size)
        except (LoweringError, TypeError, ValueError, tf.errors.OpError):
            return None  # the step was written for one size

    fixes = suggest_fixes(
        report.model,
        batch_size=batch_size,
        trace=trace_if_possible,
        only_if_needed=only_if_needed,
    )
    return replace(report, fixes=fixes)


def last_report(device: str | int = 0, **options: Any) -> Report:
    """Models the program that an emulated IPU device ran last.

    The program is traced once more, without what the host replaces for its own
    speed, when this is called: running programs costs nothing for it.

    Args:
        device: Name or ordinal of a configured device.
        **options: `target`, and those of `ModelOptions` but `steps_per_execution`,
            which is the program's.

    Returns:
        The report, named as the program: `"train"`, `"test"` or `"predict"` for
        Keras models.

    Raises:
        ValueError: No such device, or it has not run a program of a Keras model.
        LoweringError: XLA cannot compile an operation of the program.
    """
    ipu_device = device_for(device)
    executable = ipu_device.engine.loaded
    if executable is None:
        raise ValueError(
            "A report needs a program that has run: call `fit`, `evaluate` or `predict` of a model "
            "that was made in an IPUStrategy's scope first. "
            f"Received: {short_name(ipu_device.name)}, which has run none"
        )
    return report_of_program(executable.program, **options)


def report_of_program(program: Program, **options: Any) -> Report:
    """Models a program as a user wrote it, without what the host replaces for its own speed.

    If it does not fit, what would help is modelled too.

    Args:
        program: What is to be executed.
        **options: As for `last_report`.

    Raises:
        LoweringError: XLA cannot compile an operation of the program.
    """

    batch_size = next((spec.shape[0] for spec in program.infeed if spec.shape), 1)
    report = report_of(
        program.name,
        _graph_of_program(program, batch_size),
        steps_per_execution=program.repeat_count,
        **options,
    )
    return with_fixes(
        report, batch_size=batch_size, trace=lambda size: _graph_of_program(program, size)
    )


def _graph_of_program(program: Program, batch_size: int) -> Graph:
    def step(*tensors):
        with traced_for_xla():
            return program.step(program.unflatten(tensors))

    specs = [
        tf.TensorSpec((batch_size, *spec.shape[1:]) if spec.shape else (), spec.dtype)
        for spec in program.infeed
    ]
    return traced_graph(step, *specs)
