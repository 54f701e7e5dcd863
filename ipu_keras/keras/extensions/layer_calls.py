"""The calls of layers that make up a model, in the order in which they are executed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from ipu_keras.internals.keras.models import Functional, calls_in, calls_of, graph_in
from ipu_keras.keras.extensions.pipeline_stage import stage_of


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer, or of an operation of Keras that is not a layer.

    Args:
        node_index: Counts the calls of the same operation, from 0.
        stage: The pipeline stage that scopes have given the call; `None` for none.
        inbound: Positions, in the list of calls, of those whose results this one takes.
    """

    operation: Any
    node_index: int
    stage: int | None
    inbound: tuple[int, ...]

    @property
    def is_layer(self) -> bool:
        """Whether users assign the stage; other operations can follow their inputs."""
        return isinstance(self.operation, keras.Layer)


def sequential_calls(model: keras.Sequential) -> tuple[LayerCall, ...]:
    """Returns the calls of a Sequential model's layers, each nested model as one layer.

    The model need not be built. Keras calls all of its layers again whenever one is added, so
    only the scopes in which the layers were made count.
    """
    layers = model.layers
    return tuple(
        LayerCall(layer, layers[:index].count(layer), stage_of(layer), (index - 1,) * (index > 0))
        for index, layer in enumerate(layers)
    )


def functional_calls(model: Functional) -> tuple[LayerCall, ...]:
    """Returns the calls in a Functional model and in the Functional and Sequential models in it.

    A nested model that has a `call` of its own counts as one layer.
    """
    return _calls(model, model)


def nested_calls(model: keras.Model) -> tuple[LayerCall, ...]:
    """Returns the calls in a model for which `graph_of` is not None, as part of another model."""
    return _calls(model, graph_of(model))


def graph_of(layer: Any) -> Functional | None:
    """Returns the graph of a model whose calls can be told apart; None for other layers."""
    if isinstance(layer, keras.Sequential):
        return graph_in(layer) if has_call_of(layer, keras.Sequential) else None
    if isinstance(layer, Functional):
        return layer if has_call_of(layer, Functional) else None
    return None


def has_call_of(model: keras.Model, kind: Any) -> bool:
    """Whether a model runs Keras's own `call` for this kind of model."""
    return type(model).call is kind.call and "call" not in vars(model)


def _calls(model: Any, graph: Any) -> tuple[LayerCall, ...]:
    calls: list[LayerCall] = []
    _add_calls(calls, model, graph, [()] * len(graph.inputs), None, stage_of(model))
    return tuple(calls)


def _add_calls(
    calls: list[LayerCall],
    model: Any,
    graph: Any,
    sources: Iterable[tuple[int, ...]],
    called_in: int | None,
    made_in: int | None,
) -> list[tuple[int, ...]]:
    """Appends the calls in a model, and returns the positions of those that make its outputs.

    Among several scopes the outermost call counts most, and the construction of the outermost
    model least.

    Args:
        sources: For each input of the graph, the positions of the calls that make it.
        called_in: The stage of an outer call that this one is a part of.
        made_in: The stage in whose scope the model, or an outer one, was made.
    """
    # Adding a layer to a Sequential model calls all of its layers again, in whatever scope that
    # is.
    has_own_calls = not isinstance(model, keras.Sequential)
    producers = dict(zip(map(id, graph.inputs), sources, strict=True))
    for node in _nodes(graph):
        if any(id(tensor) not in producers for tensor in node.input_tensors):
            continue  # Keras, too, skips calls whose inputs are no part of the graph
        inbound = [producers[id(tensor)] for tensor in node.input_tensors]
        called = stage_of(node) if called_in is None and has_own_calls else called_in
        results = _add_call(calls, node, inbound, called, made_in)
        producers.update(zip(map(id, node.outputs), results, strict=True))
    return [producers[id(tensor)] for tensor in graph.outputs]


def _add_call(
    calls: list[LayerCall],
    node: Any,
    inbound: list[tuple[int, ...]],
    called_in: int | None,
    made_in: int | None,
) -> list[tuple[int, ...]]:
    operation = node.operation
    # Only calls of layers appear in the list: a nested model is replaced by the calls in it.
    own = stage_of(operation)
    made_in = made_in if own is None else own
    graph = graph_of(operation)
    if graph is not None:
        sources = _sources(inbound, len(graph.inputs))
        return _add_calls(calls, operation, graph, sources, called_in, made_in)
    stage = made_in if called_in is None else called_in
    index = calls_of(operation).index(node)
    calls.append(LayerCall(operation, index, stage, _union(inbound)))
    return [(len(calls) - 1,)] * len(node.outputs)


def _sources(inbound: list[tuple[int, ...]], num_inputs: int) -> list[tuple[int, ...]]:
    """Returns the calls that make each input of a nested model: all of them if not known."""
    return inbound if len(inbound) == num_inputs else [_union(inbound)] * num_inputs


def _nodes(graph: Functional) -> Iterable[Any]:
    """Yields the calls in a graph in the order in which Keras executes them."""
    nodes = calls_in(graph)
    for depth in sorted(nodes, reverse=True):
        yield from (node for node in nodes[depth] if not node.is_input)


def _union(positions: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({position for some in positions for position in some}))
