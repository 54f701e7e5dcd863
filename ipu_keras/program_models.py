"""Models of programs: what a function or an executable computes, and what it needs on an IPU.

Whether a program fits is asked for when it is compiled. That takes a model, but no report, which
is for users and longer to import.
"""

import contextlib
import difflib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_keras.cached_models import cached_graph, cached_model
from ipu_keras.compiler.modelling import Model, ModelOptions, is_positive_integer
from ipu_keras.configured_model import configured_options
from ipu_keras.executable import Executable
from ipu_keras.ir import Graph
from ipu_keras.pipeline_choices import MODELLED_POPLAR_OPTIONS, idle_poplar_options
from ipu_keras.program import WEIGHT_UPDATE_SCOPE, Program, TensorSpec
from ipu_keras.target import DEFAULT_TARGET, TARGETS, Target, target_named
from ipu_keras.tracing import (
    layer_scopes,
    no_garbage_collection,
    replicated,
    traced_for_xla,
)

MODEL_OPTIONS = tuple(option.name for option in fields(ModelOptions))
_DTYPES = ("dtype", "gradient_accumulation_dtype")


@no_garbage_collection()
def traced_graph(function: Callable[..., Any], *specs: Any) -> Graph:
    """What a function computes, traced but not executed.

    Args:
        function: A Python function of tensors, or a `tf.function`.
        *specs: A `tf.TensorSpec` for each argument, or structures of them.

    Raises:
        LoweringError: XLA cannot compile an operation of the function.
    """
    with layer_scopes():
        traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    return cached_graph(traced)


def first_axis(shapes: Iterable[Sequence[int]]) -> int | None:
    """The batch size of tensors: of the first that has an axis; `None` if none has.

    Args:
        shapes: Of the tensors, in elements.
    """
    return next((shape[0] for shape in shapes if len(shape)), None)


def target_of(target: str | Target | None) -> Target:
    """The hardware of a name; what is no name is returned as it is.

    Args:
        target: A name, a `Target`, or `None` for the default.

    Raises:
        ValueError: No such target.
    """
    target = DEFAULT_TARGET if target is None else target
    if isinstance(target, str):
        return target_named(target)
    if not isinstance(target, Target):
        raise ValueError(
            f"`target` must be one of {', '.join(TARGETS)}, or a Target. Received: "
            f"target={target!r}"
        )
    return target


def check_names(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuses options that do not exist.

    Args:
        given: Options by name.
        known: Names of those that do.

    Raises:
        TypeError: No such option.
    """
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean `{close[0]}`? " if close else ""
            raise TypeError(
                f"Unknown option `{name}`. {hint}Received: {name}={value!r}. "
                f"The options are {', '.join(known)}."
            )


def checked_batch_size(size: Any) -> int:
    """A number of samples that a user gave, as Python's own kind of integer.

    Args:
        size: It.

    Raises:
        ValueError: It is no positive integer.
    """
    if not is_positive_integer(size):
        raise ValueError(f"`batch_size` must be a positive integer. Received: batch_size={size!r}")
    return int(size)


def check_options(given: Mapping[str, Any]) -> None:
    """Refuses what `model_of` would, for callers that change or trace something before that.

    Args:
        given: `target` and options as for `model_options`.

    Raises:
        ValueError: No such target, or an option out of its range.
        TypeError: No such option.
    """
    options = dict(given)
    target = target_of(options.pop("target", None))
    target.without_tiles(model_options(options).num_io_tiles)


def warn_of_idle(given: Mapping[str, Any], *, stacklevel: int = 3) -> None:
    """Says which of Poplar's options that a user gave have no model.

    Args:
        given: Options as for `model_options`, checked; or lists of choices.
        stacklevel: As of `warnings.warn`; by default for the caller of the caller.
    """
    idle = []
    for name in ("convolution_options", "matmul_options"):
        choices = given.get(name)
        listed = choices if isinstance(choices, list) else [choices]
        flags = idle_poplar_options(flag for one in listed for flag in one or ())
        idle += [f"{flag} in `{name}`" for flag in flags]
    if idle:
        warnings.warn(
            f"These options of Poplar have no model, and no effect: {', '.join(idle)}. Those that "
            f"have one are {' and '.join(MODELLED_POPLAR_OPTIONS)}.",
            stacklevel=stacklevel,
        )


def with_dtype_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options with names in place of TensorFlow's and NumPy's types.

    Args:
        given: Options as for `model_options`. What is no type is left to the checks of these.
    """
    options = dict(given)
    for name in set(_DTYPES) & set(given):
        with contextlib.suppress(TypeError):
            # TensorFlow takes numbers and arrays too, which nobody means as a type.
            if isinstance(given[name], str | type | np.dtype | tf.DType):
                options[name] = tf.as_dtype(given[name]).name
    return options


def model_options(given: Mapping[str, Any]) -> ModelOptions:
    """The options of a model.

    Args:
        given: Some of them. An execution ends with a weight update: unless told otherwise, it
            has as many steps as are accumulated.

    Raises:
        ValueError: An option out of its range.
        TypeError: No such option.
    """
    check_names(given, MODEL_OPTIONS)
    steps = given.get("gradient_accumulation_count", 1)
    return ModelOptions(**with_dtype_names({"steps_per_execution": steps, **given}))


@no_garbage_collection()
def model_of(
    name: str, graph: Graph, *, target: str | Target = DEFAULT_TARGET, **options: Any
) -> Model:
    """Models a traced step.

    Args:
        name: What the model is called.
        graph: The step.
        target: Name of the hardware, or a `Target`. Tiles for input and output are some of its
            tiles.
        **options: As for `model_options`.

    Raises:
        ValueError: No such target, or an option out of its range.
        TypeError: No such option.
    """
    chosen = model_options(options)
    hardware = target_of(target).without_tiles(chosen.num_io_tiles)
    return cached_model(name, graph, hardware, chosen)


@no_garbage_collection()
def model_of_executable(executable: Executable, **options: Any) -> Model:
    """Models a program as a user wrote it, without what the host replaces for its own speed.

    It is traced once more if the host's trace is not one for XLA.

    Args:
        executable: The compiled program, of a configured device.
        **options: As for `model_of`; they go before those of the program.

    Raises:
        LoweringError: XLA cannot compile an operation of the program.
    """
    program = executable.program
    traced = executable.as_written()
    graph = graph_of_program(program) if traced is None else cached_graph(traced)
    own = {
        "steps_per_execution": program.repeat_count,
        "gradient_accumulation_count": program.accumulation.count,
        "num_replicas": program.num_replicas,
        "pipeline": program.pipeline,
        **configured_options(),
    }
    return model_of(program.name, graph, **{**own, **options})


def batch_size_of(program: Program) -> int | None:
    """Samples of a step on one replica: the first axis of what the program is fed, if any.

    Args:
        program: It.
    """
    return first_axis(spec.shape for spec in program.infeed)


def graph_of_program(program: Program, batch_size: int | None = None) -> Graph:
    """Traces a step of a program as a user wrote it.

    Args:
        program: It.
        batch_size: Samples of the step; by default as many as it is fed.

    Raises:
        LoweringError: XLA cannot compile an operation of the program.
    """

    def step(*tensors):
        with traced_for_xla():
            returned = program.step(program.unflatten(tensors))
            if program.update is None:
                return returned
            results, gradients = returned
            with tf.name_scope(WEIGHT_UPDATE_SCOPE):
                program.update(gradients)
            return results

    def shape(spec: TensorSpec) -> tuple[int, ...]:
        if batch_size is None or not spec.shape:
            return spec.shape
        return (batch_size, *spec.shape[1:])

    specs = [tf.TensorSpec(shape(spec), spec.dtype) for spec in program.infeed]
    with replicated(program.num_replicas):
        return traced_graph(step, *specs)
