"""The calls of layers that make up a model, in the order in which they are executed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from ipu_keras.internals.keras.models import Functional, calls_in, calls_of, graph_in
from ipu_keras.keras.extensions.pipeline_stage import stage_of


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer, or of an operation of Keras that is no layer.

    Args:
        operation: What is called.
        node_index: Which of its calls it is.
        stage: The pipeline stage that scopes have given it; `None` for none.
        inbound: Positions of the calls whose results it takes.
    """

    operation: Any
    node_index: int
    stage: int | None
    inbound: tuple[int, ...]

    @property
    def is_layer(self) -> bool:
        """Whether users assign its stage; other operations can follow their inputs."""
        return isinstance(self.operation, keras.Layer)


def sequential_calls(model: keras.Sequential) -> tuple[LayerCall, ...]:
    """The calls of the layers of a Sequential model, nested models as one layer.

    Args:
        model: The model, built or not. Keras calls all of its layers again whenever
            one is added, so only the scopes in which they were made count.
    """
    layers = model.layers
    return tuple(
        LayerCall(layer, layers[:index].count(layer), stage_of(layer), (index - 1,) * (index > 0))
        for index, layer in enumerate(layers)
    )


def functional_calls(model: Functional) -> tuple[LayerCall, ...]:
    """The calls in a Functional model and in the Functional and Sequential models in it.

    Args:
        model: The model. A nested model that has a `call` of its own counts as one layer.
    """
    return _calls(model, model)


def nested_calls(model: keras.Model) -> tuple[LayerCall, ...]:
    """The calls in a model that has a graph, as part of another model.

    Args:
        model: A model of which `graph_of` is not `None`.
    """
    return _calls(model, graph_of(model))


def graph_of(layer: Any) -> Functional | None:
    """The graph of a model whose calls can be told apart; `None` for other layers."""
    if isinstance(layer, keras.Sequential):
        return graph_in(layer) if has_call_of(layer, keras.Sequential) else None
    if isinstance(layer, Functional):
        return layer if has_call_of(layer, Functional) else None
    return None


def has_call_of(model: keras.Model, kind: Any) -> bool:
    """Whether a model runs Keras's own `call` of a kind of models."""
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

    Of several scopes the outermost call counts most, the construction of the outermost model
    least.

    Args:
        calls: What to append to.
        model: The model.
        graph: Its graph.
        sources: For each of its inputs, positions of the calls that make it.
        called_in: The stage of a call that this is a part of.
        made_in: The stage in whose scope the model was made, or one that it is a part of.
    """
    # Keras calls the layers of a Sequential model again, in whatever scope one is added.
    has_own_calls = not isinstance(model, keras.Sequential)
    producers = dict(zip(map(id, graph.inputs), sources, strict=True))
    for node in _nodes(graph):
        if any(id(tensor) not in producers for tensor in node.input_tensors):
            continue  # as Keras does
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
    """For each input of a nested model, the calls that make it: all of them if not known."""
    return inbound if len(inbound) == num_inputs else [_union(inbound)] * num_inputs


def _nodes(graph: Functional) -> Iterable[Any]:
    """The calls in a graph in the order in which Keras executes them."""
    nodes = calls_in(graph)
    for depth in sorted(nodes, reverse=True):
        yield from (node for node in nodes[depth] if not node.is_input)


def _union(positions: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({position for some in positions for position in some}))
