"""Models of programs, each made once: kept by the process, and in a directory if flags name one."""

from dataclasses import replace
from pathlib import Path

from ipu_keras.compiler.modelling import Model, ModelOptions, model_graph
from ipu_keras.device import DRIVER
from ipu_keras.executable_cache import content_key, export
from ipu_keras.flags import current_flags
from ipu_keras.ir import Graph
from ipu_keras.target import Target


def cached_model(name: str, graph: Graph, target: Target, options: ModelOptions) -> Model:
    """As `model_graph`; the same step, target and options are modelled once.

    `--executable_cache_path` in `TF_POPLAR_FLAGS` names the directory that keeps
    models for later processes.

    Args:
        name: What the program is called; the same step may have several names.
        graph: One step of it, as HLO.
        target: The hardware.
        options: What was chosen.
    """
    found = DRIVER.executables.find_or_build(
        content_key(graph, target, options),
        Model,
        lambda: _without_inputs(model_graph(name, graph, target, options)),
        _directory(current_flags().executable_cache_path),
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


def _directory(path: str) -> Path | None:
    return Path(path) if path else None
