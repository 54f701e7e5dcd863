"""A graph while it is built: what is in it, and what is known of its tensors."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.inference import MOST_KNOWN_ELEMENTS, Surroundings, infer
from ipu_keras.popart.graphs.names import Names
from ipu_keras.popart.graphs.tensor_types import shape_of, type_of_array
from ipu_keras.popart.model.graph import AI_ONNX
from ipu_keras.popart.model.tensors import tensor_of

# How many names an error lists.
_MOST_LISTED = 20


class GraphDraft:
    """A graph while it is built.

    Args:
        parent: The graph around it; `None` for the main graph.
    """

    def __init__(self, parent: GraphDraft | None = None):
        self.parent: GraphDraft | None = parent
        self.name = "" if parent is not None else "BuilderGraph"
        self.names: Names = Names(None if parent is None else parent.names)
        # Version by domain, of the whole model.
        self.opsets: dict[str, int] = {} if parent is None else parent.opsets
        self.nodes: list[onnx.NodeProto] = []
        self._makers: dict[str, onnx.NodeProto] = {}
        self.inputs: list[str] = []
        # The inputs, and what is taken from graphs around as if it were one, in this order.
        self.parameters: list[str] = []
        self.outputs: list[str] = []
        self.initialisers: dict[str, np.ndarray] = {}
        # Where the data of an initialiser is, if it is in a file: its message without the data.
        self.external: dict[str, onnx.TensorProto] = {}
        # Of all graphs of the model: the files that have such data, each with one whose it is.
        self.files: dict[Path, str] = {} if parent is None else parent.files
        # Annotations that nodes get when they are added.
        self.annotations: dict[str, onnx.AttributeProto] = {}
        self._own_types: dict[str, onnx.TypeProto | None] = {}
        self._own_known: dict[str, np.ndarray] = {}
        self.types: Mapping[str, onnx.TypeProto | None] = self._own_types
        self.known: Mapping[str, np.ndarray] = self._own_known
        if parent is not None:
            self.types = ChainMap(self._own_types, parent.types)  # type: ignore[arg-type]
            self.known = ChainMap(self._own_known, parent.known)  # type: ignore[arg-type]

    def add_input(self, name: str, type_: onnx.TypeProto | None) -> str:
        """Adds an input; returns its id.

        Args:
            name: What it would be called if nothing had the name.
            type_: `None` if it is not known.
        """
        id_ = self.names.new(name)
        self.note_input(id_, type_)
        return id_

    def add_initialiser(self, name: str, array: np.ndarray) -> str:
        """Adds a tensor with a value; returns its id.

        Args:
            name: What it would be called if nothing had the name.
            array: Its value, which belongs to the graph from now on.
        """
        id_ = self.names.new(name)
        self.note_initialiser(id_, array)
        return id_

    def note_initialiser(self, id_: str, array: np.ndarray) -> None:
        """Adds a tensor with a value, under an id that nothing has.

        Args:
            id_: It.
            array: Its value.
        """
        self._note(id_, type_of_array(array), array)
        self.initialisers[id_] = array

    def note_input(self, id_: str, type_: onnx.TypeProto | None) -> None:
        """Adds an input under an id that nothing has.

        Args:
            id_: It.
            type_: `None` if it is not known.
        """
        self._note(id_, type_)
        self.inputs.append(id_)
        self.parameters.append(id_)

    def take(self, id_: str) -> None:
        """Takes a tensor from a graph around, which calls may pass as if it were an input.

        Args:
            id_: Of the tensor.

        Raises:
            popart_exception: There is no such tensor around.
        """
        self.check(id_, {} if self.parent is None else self.parent.types)
        if id_ not in self.parameters:
            self.parameters.append(id_)

    def note_declared(self, id_: str, type_: onnx.TypeProto) -> None:
        """Takes the type of a tensor from a model, if the number of its axes is not known.

        Args:
            id_: Of the tensor.
            type_: What the model declares.
        """
        if id_ in self._own_types and shape_of(self._own_types[id_]) is None:
            self._own_types[id_] = type_ if type_.WhichOneof("value") else None

    def add_output(self, id_: str) -> None:
        """Makes a tensor an output.

        Args:
            id_: Of the tensor.

        Raises:
            popart_exception: The graph has no such tensor, or it is an output of the main graph
                already. Graphs within nodes may give one twice.
        """
        is_within = self.parent is not None
        self.check(id_, self.types if is_within else self._own_types)
        if id_ in self.outputs and not is_within:
            raise popart_exception(f"The tensor {id_!r} is an output of the graph already.")
        self.outputs.append(id_)

    def add_node(
        self,
        kind: str,
        domain: str,
        version: int,
        inputs: Sequence[str],
        num_outputs: int,
        attributes: Iterable[onnx.AttributeProto],
        name: str = "",
    ) -> list[str]:
        """Adds an operation; returns the ids of its results.

        Args:
            kind: Of the operation.
            domain: Of the operation.
            version: Of the domain.
            inputs: Ids; empty ones for what is left out.
            num_outputs: How many results it has.
            attributes: Of the node, besides annotations.
            name: That users give it.

        Raises:
            popart_exception: It cannot be added; the graph is as before.
        """
        self.check_version(domain, version)
        for id_ in inputs:
            if id_:
                self.check(id_, self.types)
        outputs: list[str] = []
        for position in range(num_outputs):
            outputs.append(self.names.new(f"{kind}:{position}", outputs))
        node = onnx.NodeProto(
            op_type=kind,
            domain="" if domain == AI_ONNX else domain,
            input=inputs,
            output=outputs,
            name=self.names.in_scope(name) if name else "",
            attribute=[*attributes, *self.annotations.values()],
        )
        self.append(node, {**self.opsets, domain: version})
        self.opsets[domain] = version
        return outputs

    def append(self, node: onnx.NodeProto, opsets: Mapping[str, int]) -> None:
        """Adds a node whose results have ids that nothing has.

        Args:
            node: It.
            opsets: Version by domain.

        Raises:
            popart_exception: It cannot be added; the graph is as before.
        """
        found = infer(node, Surroundings(self.types, self.known, opsets))
        for id_, type_ in zip(node.output, found.types, strict=True):
            if id_:
                self._note(id_, type_, found.known.get(id_))
                self._makers[id_] = node
        self.nodes.append(node)

    def node_with(self, outputs: Collection[str]) -> onnx.NodeProto | None:
        """The node that has these outputs and no others; `None` if there is none.

        Args:
            outputs: Their ids.
        """
        node = self._makers.get(next(iter(outputs), ""))
        if node is None or {id_ for id_ in node.output if id_} != set(outputs):
            return None
        return node

    def check_version(self, domain: str, version: int) -> None:
        """Checks that operations of a version of a domain may be added.

        Args:
            domain: It.
            version: It.

        Raises:
            popart_exception: There are operations of another version.
        """
        found = self.opsets.get(domain, version)
        if found != version:
            raise popart_exception(
                f"Invalid opset {version} used to add an operation. Opset for domain {domain} "
                f"already defined as {found}"
            )

    def check(self, id_: Any, valid: Mapping[str, Any]) -> None:
        """Checks that there is a tensor.

        Args:
            id_: Its id.
            valid: Tensors by id.

        Raises:
            popart_exception: There is none.
        """
        if isinstance(id_, str) and id_ in valid:
            return
        listed = list(valid)
        more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
        words = ", ".join(listed[-_MOST_LISTED:]) + more
        raise popart_exception(f"Unknown tensor {id_!r} (valid tensors are {words or 'none'})")

    def is_within(self, other: GraphDraft | None) -> bool:
        """Whether this is a graph or somewhere within it.

        Args:
            other: The graph.
        """
        graph: GraphDraft | None = self
        while graph is not None and graph is not other:
            graph = graph.parent
        return graph is not None

    @property
    def own_tensors(self) -> Mapping[str, onnx.TypeProto | None]:
        """The tensors of this graph alone, with what is known of their types."""
        return self._own_types

    def proto(
        self, has_all_inputs: bool = False, has_all_parameters: bool = False
    ) -> onnx.GraphProto:
        """The graph as a message.

        Args:
            has_all_inputs: Whether initialisers are listed as inputs too.
            has_all_parameters: Whether what is taken from around is one of the inputs.
        """
        inputs = list(self.parameters if has_all_parameters else self.inputs)
        inputs += self.initialisers if has_all_inputs else ()
        between = [
            id_
            for id_, type_ in self._own_types.items()
            # ONNX takes no type without a number of axes.
            if shape_of(type_) is not None
            and id_ not in self.outputs
            and id_ not in self.initialisers
            and id_ not in self.inputs
        ]
        return onnx.GraphProto(
            name=self.name or "subgraph",
            node=self.nodes,
            input=[self._info(id_) for id_ in inputs],
            output=[self._info(id_) for id_ in self.outputs],
            initializer=[
                self.external.get(id_) or tensor_of(array, id_, in_field=True)
                for id_, array in self.initialisers.items()
            ],
            value_info=[self._info(id_) for id_ in between],
        )

    def _info(self, id_: str) -> onnx.ValueInfoProto:
        return onnx.ValueInfoProto(name=id_, type=self.types[id_])

    def _note(
        self, id_: str, type_: onnx.TypeProto | None, known: np.ndarray | None = None
    ) -> None:
        self.names.add([id_])
        self._own_types[id_] = type_
        if known is not None and known.size <= MOST_KNOWN_ELEMENTS:
            self._own_known[id_] = known
