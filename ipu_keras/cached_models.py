"""Graphs and models of steps, each made once for all who ask.

The process keeps those used last. `--executable_cache_path` in `TF_POPLAR_FLAGS` names a
directory that keeps all, for later processes too.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ipu_keras.compiler.modelling import Model, ModelOptions, model_graph
from ipu_keras.device import DRIVER
from ipu_keras.executable_cache import content_key, export
from ipu_keras.flags import current_flags
from ipu_keras.ir import Graph
from ipu_keras.target import Target
from ipu_keras.tracing.fingerprint import fingerprint
from ipu_keras.tracing.hlo import hlo_graph

T = TypeVar("T")


def cached_graph(concrete: Any) -> Graph:
    """As `hlo_graph`; a function that is the same to XLA is lowered once.

    Args:
        concrete: A `tf.ConcreteFunction`, or one `AsWritten`.

    Raises:
        LoweringError: XLA cannot compile an operation of the function.
    """
    return _found(content_key(fingerprint(concrete)), Graph, lambda: hlo_graph(concrete))


def cached_model(name: str, graph: Graph, target: Target, options: ModelOptions) -> Model:
    """As `model_graph`; the same step, target and options are modelled once.

    Args:
        name: What the program is called; the same step may have several names.
        graph: One step of it, as HLO.
        target: The hardware.
        options: What was chosen.
    """
    found = _found(
        content_key(graph, target, options),
        Model,
        lambda: _without_inputs(model_graph(name, graph, target, options)),
    )
    return replace(found, name=name, graph=graph)


def export_model(model: Model, folder: Path) -> None:
    """Writes a model's file, which a cache in that folder would find.

    Args:
        model: A finished one.
        folder: It is made if it does not exist.
    """
    key = content_key(model.graph, model.target, model.options)
    export(folder, key, _without_inputs(model))


def _without_inputs(model: Model) -> Model:
    """The model without its graph, which whoever looks it up has, and without its name."""
    return replace(model, name="", graph=Graph(model.graph.name, ()))


def _found(key: str, kind: type[T], build: Callable[[], T]) -> T:
    path = current_flags().executable_cache_path
    return DRIVER.executables.find_or_build(key, kind, build, Path(path) if path else None)
