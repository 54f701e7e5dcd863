"""Holds a graph while it is built, and what is known of the types and values of its tensors.

Each node is checked and typed when it is added (`inference`), so errors name the call that made
them; messages of whole models are made by `messages`.
"""

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

_MOST_LISTED = 20


class GraphDraft:
    """A graph while it is built; `parent` is the graph around it, `None` for the main graph."""

    def __init__(self, parent: GraphDraft | None = None):
        self.parent: GraphDraft | None = parent
        self.name = "" if parent is not None else "BuilderGraph"
        self.names: Names = Names(None if parent is None else parent.names)
        # By domain, the version that the first operation fixed, shared by all graphs of the model.
        self.opsets: dict[str, int] = {} if parent is None else parent.opsets
        self.nodes: list[onnx.NodeProto] = []
        self._makers: dict[str, onnx.NodeProto] = {}
        self.inputs: list[str] = []
        # The inputs and the tensors taken from graphs around, in the order in which they were
        # added: PopART's `call` counts both among its arguments.
        self.parameters: list[str] = []
        self.outputs: list[str] = []
        self.initialisers: dict[str, np.ndarray] = {}
        # The messages of initialisers whose data is in a file, without that data.
        self.external: dict[str, onnx.TensorProto] = {}
        # The files with such data of all graphs of the model, each with one of its initialisers.
        self.files: dict[Path, str] = {} if parent is None else parent.files
        # The open annotations, which nodes get when they are added.
        self.annotations: dict[str, onnx.AttributeProto] = {}
        self._own_types: dict[str, onnx.TypeProto | None] = {}
        self._own_known: dict[str, np.ndarray] = {}
        self.types: Mapping[str, onnx.TypeProto | None] = self._own_types
        self.known: Mapping[str, np.ndarray] = self._own_known
        if parent is not None:
            self.types = ChainMap(self._own_types, parent.types)  # type: ignore[arg-type]
            self.known = ChainMap(self._own_known, parent.known)  # type: ignore[arg-type]

    def add_input(self, name: str, type_: onnx.TypeProto | None) -> str:
        """Adds an input, whose type may be unknown; returns its id, `name` unless that is taken."""
        id_ = self.names.new(name)
        self.note_input(id_, type_)
        return id_

    def add_initialiser(self, name: str, array: np.ndarray) -> str:
        """Adds an initialiser, and returns its id, which is `name` unless that is taken.

        The array belongs to the graph from now on.
        """
        id_ = self.names.new(name)
        self.note_initialiser(id_, array)
        return id_

    def note_initialiser(self, id_: str, array: np.ndarray) -> None:
        """Adds an initialiser under an id that nothing has."""
        self._note(id_, type_of_array(array), array)
        self.initialisers[id_] = array

    def note_input(self, id_: str, type_: onnx.TypeProto | None) -> None:
        """Adds an input, whose type may be unknown, under an id that nothing has."""
        self._note(id_, type_)
        self.inputs.append(id_)
        self.parameters.append(id_)

    def take(self, id_: str) -> None:
        """Takes a tensor from a graph around, which calls may pass as if it were an input."""
        # A tensor that is taken twice is still one parameter.
        self.check(id_, {} if self.parent is None else self.parent.types)
        if id_ not in self.parameters:
            self.parameters.append(id_)

    def note_declared(self, id_: str, type_: onnx.TypeProto) -> None:
        """Takes the type of a tensor that a model declares, if inference left its rank open."""
        if id_ in self._own_types and shape_of(self._own_types[id_]) is None:
            self._own_types[id_] = type_ if type_.WhichOneof("value") else None

    def add_output(self, id_: str) -> None:
        """Makes a tensor an output, which only a graph within a node may return twice."""
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
        """Adds an operation with the open annotations, and returns the ids of its results.

        `inputs` has empty ids for optional inputs that are left out. If the operation cannot be
        added, the graph is as before.
        """
        self.check_version(domain, version)
        for id_ in inputs:
            if id_:
                self.check(id_, self.types)
        # PopART names results after the operation and their position, such as "MatMul:0", whatever
        # name users give the node.
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
        """Adds a node whose results have ids that nothing has; a refused one changes nothing."""
        found = infer(node, Surroundings(self.types, self.known, opsets))
        for id_, type_ in zip(node.output, found.types, strict=True):
            if id_:
                self._note(id_, type_, found.known.get(id_))
                self._makers[id_] = node
        self.nodes.append(node)

    def node_with(self, outputs: Collection[str]) -> onnx.NodeProto | None:
        """Returns the node that has these outputs and no others; `None` if there is none."""
        node = self._makers.get(next(iter(outputs), ""))
        if node is None or {id_ for id_ in node.output if id_} != set(outputs):
            return None
        return node

    def check_version(self, domain: str, version: int) -> None:
        """Raises a `popart_exception` if the model has another version of a domain."""
        found = self.opsets.get(domain, version)
        if found != version:
            raise popart_exception(
                f"Invalid opset {version} used to add an operation. Opset for domain {domain} "
                f"already defined as {found}"
            )

    def check(self, id_: Any, valid: Mapping[str, Any]) -> None:
        """Raises a `popart_exception` unless a tensor is among the `valid` ones."""
        if isinstance(id_, str) and id_ in valid:
            return
        listed = list(valid)
        more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
        words = ", ".join(listed[-_MOST_LISTED:]) + more
        raise popart_exception(f"Unknown tensor {id_!r} (valid tensors are {words or 'none'})")

    def is_within(self, other: GraphDraft | None) -> bool:
        """Whether this graph is `other`, or lies within it at any depth."""
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
        """Returns the graph as a message.

        Initialisers are inputs as well with `has_all_inputs`, and so are tensors taken from graphs
        around with `has_all_parameters`.
        """
        inputs = list(self.parameters if has_all_parameters else self.inputs)
        inputs += self.initialisers if has_all_inputs else ()
        between = [
            id_
            for id_, type_ in self._own_types.items()
            # ONNX's checker refuses types of unknown rank here.
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
