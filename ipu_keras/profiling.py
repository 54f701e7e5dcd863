"""What TensorFlow functions would cost on an IPU, and what the programs of a device do."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from ipu_keras.cached_models import cached_graph, cached_model
from ipu_keras.compiler.modelling import ModelOptions
from ipu_keras.configured_model import configured_options
from ipu_keras.device import device_for
from ipu_keras.device.placement import short_name
from ipu_keras.executable import Executable
from ipu_keras.ir import Graph
from ipu_keras.program import WEIGHT_UPDATE_SCOPE, Program, TensorSpec
from ipu_keras.report import Report, suggest_fixes
from ipu_keras.report.text import rendered
from ipu_keras.target import DEFAULT_TARGET, Target, target_named
from ipu_keras.tracing import no_garbage_collection, replicated, traced_for_xla
from ipu_keras.tracing.lowering import LoweringError


@no_garbage_collection()
def traced_graph(function: Callable[..., Any], *specs: Any) -> Graph:
    """What a function computes, traced but not executed.

    Args:
        function: A Python function of tensors, or a `tf.function`.
        *specs: A `tf.TensorSpec` for each argument, or structures of them.

    Raises:
        LoweringError: XLA cannot compile an operation of the function.
    """
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    return cached_graph(traced)


def first_axis(shapes: Iterable[Sequence[int]]) -> int | None:
    """The batch size of tensors: of the first that has an axis; `None` if none has.

    Args:
        shapes: Of the tensors, in elements.
    """
    return next((shape[0] for shape in shapes if len(shape)), None)


@no_garbage_collection()
def report_of(
    name: str,
    graph: Graph,
    *,
    target: str | Target = DEFAULT_TARGET,
    batch_size: int | None = None,
    **options: Any,
) -> Report:
    """Models a traced step.

    Args:
        name: What the report calls it.
        graph: The step.
        target: Name of the hardware, or a `Target`.
        batch_size: Samples of the step, if it has any.
        **options: Of `ModelOptions`. An execution ends with a weight update: unless told
            otherwise, it has as many steps as are accumulated.

    Raises:
        ValueError: No such target, or an option out of its range.
        TypeError: No such option.
    """
    model = cached_model(name, graph, target_of(target), model_options(options))
    return Report.of(model, batch_size=batch_size)


def target_of(target: str | Target | None) -> Target:
    """The hardware of a name; what is no name is returned as it is.

    Args:
        target: A name, a `Target`, or `None` for the default.

    Raises:
        ValueError: No such target.
    """
    target = DEFAULT_TARGET if target is None else target
    return target_named(target) if isinstance(target, str) else target


def model_options(given: Mapping[str, Any]) -> ModelOptions:
    """The options of a model.

    Args:
        given: Some of them. An execution ends with a weight update: unless told otherwise, it
            has as many steps as are accumulated.

    Raises:
        ValueError: An option out of its range.
        TypeError: No such option.
    """
    steps = given.get("gradient_accumulation_count", 1)
    return ModelOptions(**{"steps_per_execution": steps, **given})


def print_table(table: Any) -> None:
    """Prints a table of `rich`, as wide as the tables of reports.

    Args:
        table: It.
    """
    print(rendered(table), end="")


def with_fixes(
    report: Report,
    *,
    trace: Callable[[int], Graph],
    only_if_needed: bool = False,
) -> Report:
    """A report with what would help, if its program does not fit.

    Args:
        report: Of a program.
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
        batch_size=report.batch_size or 1,
        trace=trace_if_possible,
        only_if_needed=only_if_needed,
    )
    return replace(report, fixes=fixes)


def last_report(device: str | int = 0, **options: Any) -> Report:
    """Models the program that an emulated IPU device ran last.

    The program is modelled when this is called: running programs costs nothing for it.

    Args:
        device: Name or ordinal of a configured device.
        **options: `target`; `batch_size`, if that is not the first axis of what
            the program is fed; and those of `ModelOptions` but
            `steps_per_execution`, which is the program's. They go before what the
            active `IPUConfig` says of the same.

    Returns:
        The report, named as the program: `"train"`, `"test"` or `"predict"` for
        Keras models, as the function itself for `strategy.run`. It says how often programs of
        that name were compiled again on the device, and why.

    Raises:
        ValueError: No such device, or it has not run a program.
        LoweringError: XLA cannot compile an operation of the program.
    """
    ipu_device = device_for(device)
    engine = ipu_device.engine
    executable = engine.loaded
    if executable is None:
        raise ValueError(
            "A report needs a program that has run: call `fit`, `evaluate` or `predict` of a model "
            "that was made in an IPUStrategy's scope, or the strategy's `run`, first. "
            f"Received: {short_name(ipu_device.name)}, which has run none"
        )
    report = report_of_executable(executable, **options)
    return replace(report, recompilations=engine.recompilations(report.name))


def report_of_executable(executable: Executable, **options: Any) -> Report:
    """Models a program as a user wrote it, without what the host replaces for its own speed.

    It is traced once more if the host's trace is not one for XLA.

    If it does not fit, what would help is modelled too.

    Args:
        executable: The compiled program.
        **options: As for `last_report`.

    Raises:
        LoweringError: XLA cannot compile an operation of the program.
    """
    program = executable.program
    traced = executable.as_written()
    graph = _graph_of_program(program, program.infeed) if traced is None else cached_graph(traced)
    report = report_of(program.name, graph, **{**options_of(program), **options})
    return with_fixes(
        report, trace=lambda size: _graph_of_program(program, _resized(program, size))
    )


def options_of(program: Program) -> dict[str, Any]:
    """What `report_of` is told of a program besides what it computes.

    Args:
        program: Of a configured device.
    """
    return {
        "batch_size": first_axis(spec.shape for spec in program.infeed),
        "steps_per_execution": program.repeat_count,
        "gradient_accumulation_count": program.accumulation.count,
        "num_replicas": program.num_replicas,
        "pipeline": program.pipeline,
        **configured_options(),
    }


def _resized(program: Program, batch_size: int) -> list[TensorSpec]:
    """The infeed with another batch size."""
    return [
        TensorSpec((batch_size, *spec.shape[1:]) if spec.shape else (), spec.dtype)
        for spec in program.infeed
    ]


def _graph_of_program(program: Program, infeed: Sequence[TensorSpec]) -> Graph:
    def step(*tensors):
        with traced_for_xla():
            returned = program.step(program.unflatten(tensors))
            if program.update is None:
                return returned
            results, gradients = returned
            with tf.name_scope(WEIGHT_UPDATE_SCOPE):
                program.update(gradients)
            return results

    with replicated(program.num_replicas):
        return traced_graph(step, *[tf.TensorSpec(spec.shape, spec.dtype) for spec in infeed])
