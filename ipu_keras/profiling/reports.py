"""Reports of TensorFlow functions, and of the programs that a device ran."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import tensorflow as tf

from ipu_keras.advice.fixes import suggest_fixes
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.device import device_for
from ipu_keras.device.placement import short_name
from ipu_keras.ir import Graph, Variants
from ipu_keras.profiling.given_options import (
    MODEL_OPTIONS,
    check_names,
    check_options,
    checked_batch_size,
    warn_of_idle,
)
from ipu_keras.profiling.models import (
    batch_size_of,
    graph_of_program,
    model_of,
    model_of_executable,
)
from ipu_keras.program import Program
from ipu_keras.progress import phase, showing
from ipu_keras.report.report import Report
from ipu_keras.tracing import no_garbage_collection
from ipu_keras.tracing.lowering import LoweringError

Given = TypeVar("Given")
Traced = TypeVar("Traced")

# Options for a program that ran, whose number of steps is known.
_LAST_REPORT_OPTIONS = (
    "target",
    "batch_size",
    *(name for name in MODEL_OPTIONS if name != "steps_per_execution"),
)


def report_of(name: str, graph: Graph, *, batch_size: int | None = None, **options: Any) -> Report:
    """Models a traced step and makes its report; options are those of `model_of`.

    Args:
        batch_size: Samples of the step; `None` if it has none.
    """
    return Report.of(model_of(name, graph, **options), batch_size=batch_size)


@no_garbage_collection()
def with_fixes(
    report: Report, *, trace: Callable[[int], Graph], variants: Variants | None = None
) -> Report:
    """Adds to a report what would help, if its program does not fit.

    Args:
        trace: Traces the program's step for another batch size.
        variants: How else the model could be written; `None` for functions.
    """
    with phase("look for what would fit"):
        fixes = suggest_fixes(
            report.model,
            batch_size=report.batch_size or 1,
            trace=_none_of_errors(trace),
            variants=if_possible(variants),
            is_close=report.is_close,
        )
    return replace(report, fixes=fixes)


def if_possible(variants: Variants | None) -> Variants | None:
    """Returns variants that are `None` where a model cannot be traced so."""
    if variants is None:
        return None
    return Variants(
        in_dtype=_none_of_errors(variants.in_dtype), by_layer=_none_of_errors(variants.by_layer)
    )


def _none_of_errors(trace: Callable[[Given], Traced]) -> Callable[[Given], Traced | None]:
    """Returns a function that gives `None` if a step cannot be traced so."""

    def traced(given: Given) -> Traced | None:
        try:
            return trace(given)
        # A step may be written for one size, and users may override what has to be Keras's own.
        except (LoweringError, RuntimeError, TypeError, ValueError, tf.errors.OpError):
            return None

    return traced


def last_report(device: str | int = 0, **options: Any) -> Report:
    """Models the program that an emulated IPU device ran last.

    The program is modelled when this is called: running programs costs nothing for it. It
    exists as long as its model or function does.

    Args:
        device: Name or ordinal of a configured device.
        **options: `target`; `batch_size`, if that is not the first axis of what the program is
            fed; and those of `CostOptions` except `steps_per_execution`, which is the
            program's. They override what the active `IPUConfig` says of the same.

    Returns:
        The report, named as that of `profile`: `"<model>.train"`, `"<model>.test"` or
        `"<model>.predict"` for the step of a Keras model, and like the function itself for
        `strategy.run`. It says how often programs of that name were compiled again for the model
        or function, and why; its page shows the last executions on this host.

    Raises:
        ValueError: There is no such device, or it has not run a program; the program was freed
            with the model, or with the function and its variables; a target or option cannot
            be.
        TypeError: There is no option of that name.
        LoweringError: XLA cannot compile an operation of the program.
    """
    check_names(options, _LAST_REPORT_OPTIONS)
    ipu_device = device_for(device)
    engine = ipu_device.engine
    executable = engine.loaded
    if executable is None and engine.last_title is not None:
        raise ValueError(
            "A report needs a program that still exists. Programs go with their model or function, "
            "so keep a reference to it until the report is made. Received: "
            f"{short_name(ipu_device.name)}, whose last program {engine.last_title!r} was freed"
        )
    if executable is None:
        raise ValueError(
            "A report needs a program that has run: call `fit`, `evaluate` or `predict` of a model "
            "that was made in an IPUStrategy's scope, or the strategy's `run`, first. "
            f"Received: {short_name(ipu_device.name)}, which has run none"
        )
    check_options({name: value for name, value in options.items() if name != "batch_size"})
    warn_of_idle(options)
    batch_size = options.pop("batch_size", batch_size_of(executable.program))
    batch_size = None if batch_size is None else checked_batch_size(batch_size)
    with showing(f"report on {executable.program.title}"):
        model = model_of_executable(executable, **options)
        report = report_of_program(executable.program, model, batch_size)
    return replace(
        report,
        recompilations=executable.history.recompilations(executable.program.name),
        executions=tuple(executable.executions),
    )


def report_of_program(program: Program, model: ModelledProgram, batch_size: int | None) -> Report:
    """Makes the report of a modelled program; if it does not fit, with what would help.

    Args:
        batch_size: Samples of one step on one replica; `None` if it has none.
    """
    report = Report.of(model, batch_size=batch_size)
    return with_fixes(
        report,
        trace=lambda size: graph_of_program(program, size),
        variants=program.variants(),
    )
