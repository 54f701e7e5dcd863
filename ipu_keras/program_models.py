"""Models of programs: what a function or an executable computes, and what it needs on an IPU.

Whether a program fits is asked for when it is compiled. That takes a model, but no report, which
is for users and longer to import.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_keras.cached_models import cached_graph, cached_model
from ipu_keras.compiler.modelling import Model, ModelOptions
from ipu_keras.configured_model import configured_options
from ipu_keras.executable import Executable
from ipu_keras.ir import Graph
from ipu_keras.program import WEIGHT_UPDATE_SCOPE, Program, TensorSpec
from ipu_keras.target import DEFAULT_TARGET, Target, target_named
from ipu_keras.tracing import no_garbage_collection, replicated, traced_for_xla


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


@no_garbage_collection()
def model_of(
    name: str, graph: Graph, *, target: str | Target = DEFAULT_TARGET, **options: Any
) -> Model:
    """Models a traced step.

    Args:
        name: What the model is called.
        graph: The step.
        target: Name of the hardware, or a `Target`.
        **options: As for `model_options`.

    Raises:
        ValueError: No such target, or an option out of its range.
        TypeError: No such option.
    """
    return cached_model(name, graph, target_of(target), model_options(options))


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
