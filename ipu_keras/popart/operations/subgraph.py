"""Graphs within a node: branches, bodies of loops, and what is called."""

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import tensorflow as tf

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.graph import Graph

# By name of tensor: a `Value`, or a list of them for a sequence.
Environment = MutableMapping[str, Any]


class GraphEvaluation(Protocol):
    """What computes the nodes of graphs: an `Evaluation`."""

    def run(self, graph: Graph, environment: Environment) -> None: ...

    def value_of(self, result: Any) -> Any: ...

    def silent(self) -> "GraphEvaluation": ...


@dataclass(frozen=True)
class Subgraph:
    """A graph within a node, such as the body of a loop; called with its inputs, it is computed.

    Args:
        graph: It.
        evaluation: Computes its nodes.
        environment: The tensors around it.
    """

    graph: Graph
    evaluation: GraphEvaluation
    environment: Environment

    def __call__(self, *inputs: Any) -> list[Any]:
        """Its results: values, lists of them for sequences.

        Args:
            *inputs: Values, tensors or arrays, or lists of them for sequences.

        Raises:
            popart_exception: It has another number of inputs, or one of its nodes cannot be
                computed.
        """
        names = [each.name for each in self.graph.inputs]
        if len(names) != len(inputs):
            raise popart_exception(
                f"The graph {self.graph.name!r} has {len(names)} inputs ({', '.join(names)}); it "
                f"has to have one for each tensor that it is given. Received: {len(inputs)} tensors"
            )
        # What is named within is unknown around it.
        environment: Environment = ChainMap({}, self.environment)
        environment.update(zip(names, map(self.evaluation.value_of, inputs), strict=True))
        self.evaluation.run(self.graph, environment)
        return [environment[name] for name in self.graph.outputs]

    def outline(self, *inputs: Any) -> list[Any]:
        """Its results before it runs: values of which only shape, type and what is known count.

        Loops need that of their bodies. It is traced for it in a graph of its own.

        Args:
            *inputs: As when it is called; of what is not known, a `tf.TensorSpec`.
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
