"""Models of programs: what a function or an executable computes, and what it needs on an IPU.

Each is made once for all who ask. The process keeps those used last; `--executable_cache_path`
in `TF_POPLAR_FLAGS` names a directory that keeps all, for later processes too. Whatever traces
or lowers here raises a `LoweringError` if XLA cannot compile an operation.

Whether a program fits is asked when it is compiled. That takes a model, but no report, which is
for users and longer to import.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf

from ipu_keras.cost.cost_options import CostOptions
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.model_checks import check_model
from ipu_keras.cost.passes import model_graph
from ipu_keras.cost.pipeline.scoped_shards import num_ipus_of_shards
from ipu_keras.ir import Graph, TensorSpec
from ipu_keras.ir.graph_checks import check_graph
from ipu_keras.machine.target import DEFAULT_TARGET, Target
from ipu_keras.profiling.configured_options import chosen_options
from ipu_keras.profiling.given_options import model_options, target_of
from ipu_keras.program import WEIGHT_UPDATE_SCOPE, Program
from ipu_keras.program.executable import Executable
from ipu_keras.progress import phase
from ipu_keras.settings.flags import current_flags
from ipu_keras.store.executable_cache import ExecutableCache, content_key, export
from ipu_keras.tracing import layer_scopes, no_garbage_collection, replicated, traced_for_xla
from ipu_keras.tracing.fingerprint import fingerprint
from ipu_keras.tracing.hlo import hlo_graph

T = TypeVar("T")

# Graphs and models follow from their keys alone, so all devices and threads share them.
_CACHE = ExecutableCache()


@no_garbage_collection()
def traced_graph(function: Callable[..., Any], *specs: Any) -> Graph:
    """Traces what a function computes of specs, or structures of them, without executing it."""
    with phase("trace"), layer_scopes():
        traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    return cached_graph(traced)


def first_axis(shapes: Iterable[Sequence[int]]) -> int | None:
    """Returns the batch size of tensors, the first axis that one of them has, or `None`."""
    return next((shape[0] for shape in shapes if len(shape)), None)


@no_garbage_collection()
def model_of(
    name: str, graph: Graph, *, target: str | Target = DEFAULT_TARGET, **options: Any
) -> ModelledProgram:
    """Models a traced step; options are those of `model_options`.

    `num_ipus` defaults to the IPUs that the step's shards need. Tiles for input and output are
    some of the target's tiles.
    """
    # A pipeline says itself on which IPU each stage is.
    if options.get("pipeline") is None:
        options.setdefault("num_ipus", num_ipus_of_shards(graph))
    chosen = model_options(options)
    hardware = target_of(target).without_tiles(chosen.num_io_tiles)
    return cached_model(name, graph, hardware, chosen)


@no_garbage_collection()
def model_of_executable(executable: Executable, **options: Any) -> ModelledProgram:
    """Models a program as a user wrote it, without what the host replaces for its own speed.

    It is traced once more if the host's trace is not one for XLA. The options override those of
    the program.
    """
    program = executable.program
    traced = executable.as_written()
    with _caching_for(program):
        graph = graph_of_program(program) if traced is None else cached_graph(traced)
    own = {
        "steps_per_execution": program.repeat_count,
        "gradient_accumulation_count": program.accumulation.count,
        "num_replicas": program.num_replicas,
        "own_updates": program.own_updates,
        "pipeline": program.pipeline,
        **chosen_options(program.device_choices),
    }
    with _caching_for(program):
        return model_of(program.title, graph, **{**own, **options})


def batch_size_of(program: Program) -> int | None:
    """Returns the samples of a step on one replica: the first axis of what the program is fed."""
    return first_axis(spec.shape for spec in program.infeed)


def graph_of_program(program: Program, batch_size: int | None = None) -> Graph:
    """Traces a step of a program as a user wrote it, by default of as many samples as it is fed."""

    def step(*tensors):
        with traced_for_xla():
            returned = program.step(program.unflatten(tensors))
            if program.update is None:
                return returned
            results, gradients = returned
            with tf.name_scope(WEIGHT_UPDATE_SCOPE):
                updated = program.update(gradients)
            return (results, updated) if program.update_modes else results

    def shape(spec: TensorSpec) -> tuple[int, ...]:
        if batch_size is None or not spec.shape:
            return spec.shape
        return (batch_size, *spec.shape[1:])

    specs = [tf.TensorSpec(shape(spec), spec.dtype) for spec in program.infeed]
    with replicated(program.num_replicas):
        return traced_graph(step, *specs)


def cached_graph(concrete: Any) -> Graph:
    """Lowers a function to HLO; functions that are the same to XLA are lowered once.

    Args:
        concrete: A `tf.ConcreteFunction`, or one `AsWritten`.
    """
    with phase("lower"):
        # Names in definitions number what the process traced before; the fingerprint is without.
        key = content_key(fingerprint(concrete))
        return _found(key, Graph, lambda: hlo_graph(concrete), check_graph)


def cached_model(name: str, graph: Graph, target: Target, options: CostOptions) -> ModelledProgram:
    """Models a graph; the same step, target and options are modelled once, under any name."""
    found = _found(
        content_key(graph, target, options),
        ModelledProgram,
        lambda: _without_inputs(model_graph(name, graph, target, options, around=phase)),
        lambda found: check_model(found, target, options),
    )
    # Neither is in the file: the key was made of the graph, and the same step may have several
    # names.
    return replace(found, name=name, graph=graph)


def export_model(model: ModelledProgram, folder: Path) -> None:
    """Writes a model's file, which a cache in that folder would find; makes the folder."""
    key = content_key(model.graph, model.target, model.options)
    export(folder, key, _without_inputs(model))


def _without_inputs(model: ModelledProgram) -> ModelledProgram:
    """Returns the model without its name and graph, which whoever looks it up has."""
    return replace(model, name="", graph=Graph(model.graph.name, ()))


def _found(key: str, kind: type[T], build: Callable[[], T], check: Callable[[T], None]) -> T:
    return _CACHE.find_or_build(key, kind, build, _folder.get() or _flagged_folder(), check)


def _flagged_folder() -> Path | None:
    path = current_flags().executable_cache_path
    return Path(path) if path else None


# The cache's folder of the program that is being modelled, if it has one of its own. A context
# variable keeps it apart from other threads, which may model at the same time.
_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


@contextlib.contextmanager
def _caching_for(program: Program) -> Iterator[None]:
    """Keeps models, while this is open, where those of a program are."""
    choices = program.device_choices
    token = _folder.set(None if choices is None else choices.cache_folder)
    try:
        yield
    finally:
        _folder.reset(token)
