"""Computes graphs that are attributes of a node: branches, bodies of loops, and callees."""

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import OnnxGraph

# Maps names of tensors to `Value`s, or to lists of them for sequences.
Environment = MutableMapping[str, Any]


class GraphEvaluation(Protocol):
    """The part of `Evaluation` that graphs within nodes need, so that modules need no cycle."""

    def run(self, graph: OnnxGraph, environment: Environment) -> None: ...

    def value_of(self, result: Any) -> Any: ...

    def silent(self) -> "GraphEvaluation": ...


@dataclass(frozen=True)
class Subgraph:
    """A graph within a node, such as the body of a loop; a call with its inputs computes it.

    ONNX lets it use the tensors around the node, its `environment`, by name.
    """

    graph: OnnxGraph
    evaluation: GraphEvaluation
    environment: Environment

    def __call__(self, *inputs: Any) -> list[Any]:
        """Computes the graph's outputs as values, or lists of them for sequences."""
        names = [each.name for each in self.graph.inputs]
        if len(names) != len(inputs):
            raise popart_exception(
                f"The graph {self.graph.name!r} has {len(names)} inputs ({', '.join(names)}); it "
                f"has to have one for each tensor that it is given. Received: {len(inputs)} tensors"
            )
        # Tensors that the graph names must not be seen by the nodes around it.
        environment: Environment = ChainMap({}, self.environment)
        environment.update(zip(names, map(self.evaluation.value_of, inputs), strict=True))
        self.evaluation.run(self.graph, environment)
        return [environment[name] for name in self.graph.outputs]

    def outline(self, *inputs: Any) -> list[Any]:
        """Returns values of which only the shape, the type and what is known count.

        Loops need these of their bodies before they run. The graph is traced into a throw-away
        function. Inputs that are not known are given as `tf.TensorSpec`.
        """
        silent = replace(self, evaluation=self.evaluation.silent())
        is_open = [isinstance(each, tf.TensorSpec) for each in inputs]
        results: list[Any] = []

        def traced(*tensors: tf.Tensor) -> None:
            given = iter(tensors)
            pairs = zip(is_open, inputs, strict=True)
            results[:] = silent(*(next(given) if o else each for o, each in pairs))

        specs = [each for o, each in zip(is_open, inputs, strict=True) if o]
        tf.function(traced, autograph=False).get_concrete_function(*specs)
        return results
