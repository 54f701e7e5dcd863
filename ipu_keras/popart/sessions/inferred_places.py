"""Infers where nodes run that do not say so: IPUs by `VirtualGraphMode.Auto`, stages by IPUs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.annotation_names import PIPELINE_STAGE, VIRTUAL_GRAPH
from ipu_keras.popart.model.graph import Node, OnnxGraph
from ipu_keras.popart.options.enumerations import VirtualGraphMode

# Kinds of nodes that are on no IPU, as nothing runs there.
NOWHERE = frozenset({"Constant"})


def placed(graph: OnnxGraph, options: Any, num_ipus: int) -> OnnxGraph:
    """Annotates nodes with the IPUs and stages that follow from options.

    Raises a `popart_exception` if no stages of a pipeline follow from the IPUs of nodes.

    Args:
        num_ipus: IPUs for one copy of the graph.
    """
    if options.virtualGraphMode is VirtualGraphMode.Auto:
        graph = _annotated(graph, VIRTUAL_GRAPH, _shards(graph, num_ipus))
    nodes = _running(graph)
    have_stages = any(PIPELINE_STAGE in node.annotations for node in nodes)
    have_ipus = bool(nodes) and all(VIRTUAL_GRAPH in node.annotations for node in nodes)
    is_placed = options.virtualGraphMode in (VirtualGraphMode.Auto, VirtualGraphMode.Manual)
    if options.enablePipelining and is_placed and have_ipus and not have_stages:
        graph = _annotated(graph, PIPELINE_STAGE, _stages(graph))
    return graph


def _running(graph: OnnxGraph) -> list[Node]:
    return [node for node in graph.nodes if node.kind not in NOWHERE]


def _shards(graph: OnnxGraph, num_ipus: int) -> list[int]:
    """Returns an IPU for each node that runs, such that IPUs have about as many weights each."""
    # A node costs its weights that no node before it has, and 1, so that nodes without any
    # spread too.
    costs, counted = [], set()
    for node in _running(graph):
        new = [n for n in node.inputs if n in graph.initialisers and n not in counted]
        counted.update(new)
        costs.append(1 + sum(graph.initialisers[name].size for name in new))
    shards: list[int] = []
    before, total = 0, sum(costs)
    for position, cost in enumerate(costs):
        last = shards[-1] if shards else -1
        left = len(costs) - position
        # IPUs never decrease, so that data goes one way, and none is skipped or left without
        # nodes: the last nodes go to the IPUs that have none yet.
        least = max(last, num_ipus - left, 0)
        # By its middle, so that a large node goes where most of it lies.
        wanted = int(num_ipus * (before + cost / 2) / total)
        shards.append(min(max(wanted, least), last + 1, num_ipus - 1))
        before += cost
    return shards


def _stages(graph: OnnxGraph) -> list[int]:
    """Returns a stage for each node that runs: one of each IPU, in the order in which data goes."""
    makers = {
        name: node.annotations[VIRTUAL_GRAPH] for node in _running(graph) for name in node.outputs
    }
    sources: dict[int, dict[int, Node]] = {}
    for node in _running(graph):
        ipu = node.annotations[VIRTUAL_GRAPH]
        found = sources.setdefault(ipu, {})
        for name in node.inputs:
            if makers.get(name, ipu) != ipu:
                found.setdefault(makers[name], node)
    # A topological order of IPUs. Where several are ready, the lowest number is first, so that
    # the same model always has the same stages.
    stages: dict[int, int] = {}
    while len(stages) < len(sources):
        ready = [
            ipu
            for ipu in sorted(sources)
            if ipu not in stages and sources[ipu].keys() <= stages.keys()
        ]
        if not ready:
            raise _goes_back(sources, stages)
        stages[ready[0]] = len(stages)
    return [stages[node.annotations[VIRTUAL_GRAPH]] for node in _running(graph)]


def _goes_back(
    sources: Mapping[int, Mapping[int, Node]], stages: Mapping[int, int]
) -> popart_exception:
    ipu = next(ipu for ipu in sorted(sources) if ipu not in stages)
    source, node = next((s, n) for s, n in sources[ipu].items() if s not in stages)
    return popart_exception(
        "Without stages of their own, nodes of a pipeline have one stage for each IPU, through "
        f"which data must go in one direction. Received: {node.title} on IPU {ipu}, which takes "
        f"what IPU {source} makes, while that one needs what IPU {ipu} makes. Put nodes into "
        "stages with `builder.pipelineStage(k)`."
    )


def _annotated(graph: OnnxGraph, name: str, values: list[int]) -> OnnxGraph:
    left = iter(values)
    nodes = (
        node
        if node.kind in NOWHERE
        else replace(node, attributes={**node.attributes, name: next(left)})
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))
