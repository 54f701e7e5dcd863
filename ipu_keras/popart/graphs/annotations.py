"""The methods of builders that annotate nodes with how they run, such as on which IPU.

They only put attributes on ONNX nodes; sessions decide what these mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from onnx import AttributeProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.attributes import attribute_of, value_of
from ipu_keras.popart.graphs.node_attributes import NodeAttributes
from ipu_keras.popart.model.annotation_names import (
    AVAILABLE_MEMORY,
    COMM_GROUP,
    EXCLUDE_PATTERNS,
    EXECUTION_PHASE,
    INPLACE_NAMES,
    INPLACE_PRIORITIES,
    OUTLINE_ATTRIBUTES,
    OUTPUT_TENSOR_LOCATION,
    PARTIALS_TYPE,
    PIPELINE_STAGE,
    RECOMPUTE,
    SCHEDULE_PRIORITY,
    SERIALIZE_MATMUL_FACTOR,
    SERIALIZE_MATMUL_MODE,
    SERIALIZE_MATMUL_PRECISION,
    VIRTUAL_GRAPH,
)
from ipu_keras.popart.options.enumerations import CommGroupType, RecomputeType
from ipu_keras.popart.options.settings import CommGroup, TensorLocation

__all__ = ["AttributeContextManager", "KeyValueContextManager", "NameContextManager"]

_ON_CHIP = TensorLocation()
_PARTIALS_TYPES = ("FLOAT", "HALF")
_SERIALIZE_MODES = ("input_channels", "reducing_dim", "output_channels", "none")


class AttributeContextManager:
    """Annotates the nodes that are added while it is open.

    Managers of one annotation may be nested: the outer value comes back when the inner one closes.
    """

    def __init__(self, open_annotations: dict[str, AttributeProto], attribute: AttributeProto):
        self._open = open_annotations
        self._attribute = attribute
        self._before: list[AttributeProto | None] = []

    def __enter__(self) -> None:
        self._before.append(self._open.get(self._attribute.name))
        self._open[self._attribute.name] = self._attribute

    def __exit__(self, *exception: object) -> None:
        before = self._before.pop()
        if before is None:
            del self._open[self._attribute.name]
        else:
            self._open[self._attribute.name] = before


class KeyValueContextManager(AttributeContextManager):
    """Annotates the nodes that are added while it is open with keys and values."""


class NameContextManager:
    """Puts the name of a scope before those of what is added to the graph while it is open."""

    def __init__(self, enter: Callable[[], None], leave: Callable[[], None]):
        self._enter, self._leave = enter, leave

    def __enter__(self) -> None:
        self._enter()

    def __exit__(self, *exception: object) -> None:
        self._leave()


def _index(name: str, value: Any) -> AttributeProto:
    attribute = attribute_of(name, value, AttributeProto.INT)
    if attribute.i < 0:
        raise popart_exception(f"{_WORDS[name]} is not negative. Received: {value!r}")
    return attribute


def _recompute(name: str, value: Any) -> AttributeProto:
    if not isinstance(value, RecomputeType):
        raise popart_exception(f"The value is a RecomputeType. Received: {value!r}")
    return attribute_of(name, int(value), AttributeProto.INT)


def _location(name: str, value: Any) -> AttributeProto:
    if not isinstance(value, TensorLocation):
        raise popart_exception(f"The value is a TensorLocation. Received: {value!r}")
    parts = (
        value.storage,
        value.loadTileSet,
        value.storageTileSet,
        value.replicatedTensorSharding,
    )
    return attribute_of(name, [int(part) for part in parts], AttributeProto.INTS)


_WORDS = {
    VIRTUAL_GRAPH: "Virtual graph",
    PIPELINE_STAGE: "Pipeline stage",
    EXECUTION_PHASE: "Execution phase",
}


class Annotations(NodeAttributes):
    """The methods of builders that say how nodes run.

    Without ids of outputs, the first five return context managers for the nodes that are added
    while they are open; with the ids of all outputs of a node they annotate that node.
    """

    def virtualGraph(self, nodeOutputNames: Any = None, value: int = 0) -> Any:
        """Puts nodes on an IPU.

        Args:
            nodeOutputNames: The id, or a set of the ids, of all outputs of a node; or the number
                of the IPU, for a context manager.
            value: The number of the IPU, from 0 on. Defaults to `0`.

        Returns:
            A context manager if no ids are given, else `None`.
        """
        return self._annotated(VIRTUAL_GRAPH, nodeOutputNames, value, _index)

    def pipelineStage(self, nodeOutputNames: Any = None, value: int = 0) -> Any:
        """Puts nodes in a stage of a pipeline.

        Args:
            nodeOutputNames: The id, or a set of the ids, of all outputs of a node; or the number
                of the stage, for a context manager.
            value: The number of the stage, from 0 on. Defaults to `0`.

        Returns:
            A context manager if no ids are given, else `None`.
        """
        return self._annotated(PIPELINE_STAGE, nodeOutputNames, value, _index)

    def executionPhase(self, nodeOutputNames: Any = None, value: int = 0) -> Any:
        """Puts nodes in an execution phase.

        Args:
            nodeOutputNames: The id, or a set of the ids, of all outputs of a node; or the number
                of the phase, for a context manager.
            value: The number of the phase, from 0 on. Defaults to `0`.

        Returns:
            A context manager if no ids are given, else `None`.
        """
        return self._annotated(EXECUTION_PHASE, nodeOutputNames, value, _index)

    def recomputeOutput(
        self, nodeOutputNames: Any = None, value: RecomputeType = RecomputeType.Undefined
    ) -> Any:
        """Says whether results are recomputed for the backward pass, which saves memory.

        Args:
            nodeOutputNames: The id, or a set of the ids, of all outputs of a node; or the value,
                for a context manager.
            value: The `RecomputeType` of the node. Defaults to `RecomputeType.Undefined`.

        Returns:
            A context manager if no ids are given, else `None`.
        """
        return self._annotated(RECOMPUTE, nodeOutputNames, value, _recompute)

    def outputTensorLocation(
        self, nodeOutputNames: Any = None, value: TensorLocation = _ON_CHIP
    ) -> Any:
        """Says where results are stored, on the chip or outside of it.

        Args:
            nodeOutputNames: The id, or a set of the ids, of all outputs of a node; or the value,
                for a context manager.
            value: The `TensorLocation` of the results. Defaults to one on the chip.

        Returns:
            A context manager if no ids are given, else `None`.
        """
        return self._annotated(OUTPUT_TENSOR_LOCATION, nodeOutputNames, value, _location)

    def schedulePriority(self, value: float) -> AttributeContextManager:
        """Says which of the nodes that could run next is scheduled first.

        Args:
            value: The priority; nodes of greater priority run sooner.

        Returns:
            A context manager for the nodes that are added while it is open.
        """
        attribute = attribute_of(SCHEDULE_PRIORITY, value, AttributeProto.FLOAT)
        return AttributeContextManager(self.draft.annotations, attribute)

    def outlineAttributes(self, arg0: Mapping[str, str], /) -> KeyValueContextManager:
        """Keeps nodes from sharing code (outlining) with nodes that have other keys and values.

        Args:
            arg0: A dictionary from strings to strings.

        Returns:
            A context manager for the nodes that are added while it is open.
        """
        if not isinstance(arg0, Mapping):
            raise popart_exception(f"outlineAttributes takes a dict. Received: {arg0!r}")
        flat = [each for pair in arg0.items() for each in pair]
        attribute = attribute_of(OUTLINE_ATTRIBUTES, flat, AttributeProto.STRINGS)
        return KeyValueContextManager(self.draft.annotations, attribute)

    def commGroup(self, type: Any = 0, groupSize: int = 0) -> AttributeContextManager:
        """Says which replicas exchange values with each other.

        Args:
            type: A `CommGroupType`, or a `CommGroup` that has the size as well. Defaults to
                `CommGroupType.All`.
            groupSize: The number of replicas in a group, which has no meaning for all of them.
                Defaults to `0`.

        Returns:
            A context manager for the nodes that are added while it is open.
        """
        if isinstance(type, CommGroup):
            type, groupSize = int(type.type), type.replicaGroupSize
        kinds = [int(each) for each in CommGroupType]
        attribute = attribute_of(COMM_GROUP, [type, groupSize], AttributeProto.INTS)
        if attribute.ints[0] not in kinds or groupSize < 0:
            raise popart_exception(
                "`type` is a CommGroupType, and `groupSize` is not negative. Received: "
                f"type={type!r}, groupSize={groupSize!r}"
            )
        return AttributeContextManager(self.draft.annotations, attribute)

    def getVirtualGraph(self, nodeOutputNames: Any = None) -> int:
        """Returns the number of the IPU of a node, or of the nodes that are added now.

        Args:
            nodeOutputNames: The id, or a set of the ids, of all outputs of a node; `None` for the
                open context manager. Defaults to `None`.

        Raises:
            popart_exception: The node, or the current scope, has no virtual graph.
        """
        if nodeOutputNames is None:
            return self._open_value(VIRTUAL_GRAPH)
        return value_of(self.found(VIRTUAL_GRAPH, nodeOutputNames), AttributeProto.INT)

    def hasVirtualGraph(self) -> bool:
        """Whether the nodes that are added now are put on an IPU."""
        return VIRTUAL_GRAPH in self.draft.annotations

    def getPipelineStage(self) -> int:
        """Returns the pipeline stage of the nodes that are added now, if a scope sets one."""
        return self._open_value(PIPELINE_STAGE)

    def hasPipelineStage(self) -> bool:
        """Whether the nodes that are added now are put in a stage."""
        return PIPELINE_STAGE in self.draft.annotations

    def getExecutionPhase(self) -> int:
        """Returns the execution phase of the nodes that are added now, if a scope sets one."""
        return self._open_value(EXECUTION_PHASE)

    def hasExecutionPhase(self) -> bool:
        """Whether the nodes that are added now are put in a phase."""
        return EXECUTION_PHASE in self.draft.annotations

    def recomputeOutputInBackwardPass(
        self,
        nodeOutputName: Any = None,
        value: RecomputeType = RecomputeType.Recompute,
        *,
        nodeOutputNames: Any = None,
    ) -> None:
        """Has the results of a node recomputed for the backward pass.

        Args:
            nodeOutputName: The id of the node's only output.
            value: The `RecomputeType` of the node. Defaults to `RecomputeType.Recompute`.
            nodeOutputNames: A set of the ids of all outputs, in place of `nodeOutputName`.
        """
        names = nodeOutputNames if nodeOutputName is None else nodeOutputName
        self._annotate(names, [_recompute(RECOMPUTE, value)])

    def getRecomputeOutputInBackwardPass(
        self, nodeOutputName: Any = None, *, nodeOutputNames: Any = None
    ) -> bool:
        """Whether the results of a node are recomputed for the backward pass.

        Args:
            nodeOutputName: The id of the node's only output.
            nodeOutputNames: A set of the ids of all outputs, in place of `nodeOutputName`.
        """
        names = nodeOutputNames if nodeOutputName is None else nodeOutputName
        if not self.nodeHasAttribute(RECOMPUTE, names):
            return False
        value = value_of(self.found(RECOMPUTE, names), AttributeProto.INT)
        return value == RecomputeType.Recompute.value

    def setPartialsType(self, nodeOutputName: Any, partialsType: str) -> None:
        """Sets the type of the partial sums of a convolution or matrix product.

        Args:
            nodeOutputName: The id of the output of the node.
            partialsType: The type, either `"FLOAT"` or `"HALF"`.

        Raises:
            popart_exception: The type is another one, or there is no such node.
        """
        if partialsType not in _PARTIALS_TYPES:
            raise popart_exception(
                f"`partialsType` is FLOAT or HALF. Received: partialsType={partialsType!r}"
            )
        attribute = attribute_of(PARTIALS_TYPE, partialsType, AttributeProto.STRING)
        self._annotate(nodeOutputName, [attribute])

    def getPartialsType(self, nodeOutputName: Any) -> str:
        """Returns the type of the partial sums of a convolution or matrix product.

        Args:
            nodeOutputName: The id of the output of the node.

        Returns:
            The type that was set, or `"FLOAT"` if none was.
        """
        if not self.nodeHasAttribute(PARTIALS_TYPE, nodeOutputName):
            return _PARTIALS_TYPES[0]
        return value_of(self.found(PARTIALS_TYPE, nodeOutputName), AttributeProto.STRING)

    def setAvailableMemoryProportion(
        self, nodeOutputName: Any, availableMemoryProportion: float
    ) -> None:
        """Sets the share of tile memory that a convolution or matrix product may use.

        Args:
            nodeOutputName: The id of the output of the node.
            availableMemoryProportion: The share, above 0 and at most 1.

        Raises:
            popart_exception: The share is out of range, or there is no such node.
        """
        attribute = attribute_of(AVAILABLE_MEMORY, availableMemoryProportion, AttributeProto.FLOAT)
        if not 0 < availableMemoryProportion <= 1:
            raise popart_exception(
                "availableMemoryProportion must be in (0,1]. Received: "
                f"availableMemoryProportion={availableMemoryProportion!r}"
            )
        self._annotate(nodeOutputName, [attribute])

    def setSerializeMatMul(
        self, nodeOutputName: Any, mode: str, factor: int = 0, keep_precision: bool = False
    ) -> None:
        """Splits a matrix product into several that run one after the other, which saves memory.

        Args:
            nodeOutputName: A set of the ids of all outputs of the node.
            mode: The dimension that is split: `"input_channels"`, `"reducing_dim"`,
                `"output_channels"` or `"none"`.
            factor: The number of products that it is split into. Defaults to `0`.
            keep_precision: Whether products of a split `"reducing_dim"` are added up in float32.
                Defaults to `False`.

        Raises:
            popart_exception: The mode or factor is wrong, or the node is no MatMul.
        """
        if mode not in _SERIALIZE_MODES:
            raise popart_exception(
                f"Unsupported mat mul serialization mode '{mode}'. Supported modes are "
                f"{', '.join(map(repr, _SERIALIZE_MODES))}"
            )
        attributes = [
            attribute_of(SERIALIZE_MATMUL_MODE, mode, AttributeProto.STRING),
            attribute_of(SERIALIZE_MATMUL_FACTOR, factor, AttributeProto.INT),
            attribute_of(SERIALIZE_MATMUL_PRECISION, keep_precision, AttributeProto.INT),
        ]
        if factor < 0:
            raise popart_exception(f"`factor` is not negative. Received: factor={factor!r}")
        if self.node_of(nodeOutputName).op_type != "MatMul":
            raise popart_exception(
                "Builder::setSerializeMatMul should only be called on MatMul. Received: "
                f"{self.node_of(nodeOutputName).op_type}"
            )
        self._annotate(nodeOutputName, attributes)

    def excludePatterns(self, nodeOutputName: Any, patternNames: Sequence[str]) -> None:
        """Keeps patterns from rewriting a node.

        Args:
            nodeOutputName: The id of the output of the node.
            patternNames: The names of the patterns to exclude, such as `"SoftMaxGradDirect"`.
        """
        attribute = attribute_of(EXCLUDE_PATTERNS, patternNames, AttributeProto.STRINGS)
        self._annotate(nodeOutputName, [attribute])

    def setInplacePreferences(self, nodeOutputName: Any, prefs: Mapping[str, float]) -> None:
        """Says which in-place variants of an operation are preferred.

        Args:
            nodeOutputName: The id of the output of the node.
            prefs: The priorities, by names of operations that compute in place.
        """
        if not isinstance(prefs, Mapping):
            raise popart_exception(f"`prefs` is a dict. Received: prefs={prefs!r}")
        names = attribute_of(INPLACE_NAMES, list(prefs), AttributeProto.STRINGS)
        priorities = list(prefs.values())
        self._annotate(
            nodeOutputName,
            [names, attribute_of(INPLACE_PRIORITIES, priorities, AttributeProto.FLOATS)],
        )

    def _annotated(
        self, name: str, first: Any, value: Any, checked: Callable[[str, Any], AttributeProto]
    ) -> AttributeContextManager | None:
        # PopART overloads these methods: the first argument is either ids, which annotate a node,
        # or the value of a context manager.
        if isinstance(first, str | set | frozenset | list | tuple):
            self._annotate(first, [checked(name, value)])
            return None
        attribute = checked(name, value if first is None else first)
        return AttributeContextManager(self.draft.annotations, attribute)

    def _annotate(self, names: Any, attributes: Iterable[AttributeProto]) -> None:
        node = self.node_of(names)
        for attribute in attributes:
            for position, found in enumerate(node.attribute):
                if found.name == attribute.name:
                    del node.attribute[position]
                    break
            node.attribute.append(attribute)

    def _open_value(self, name: str) -> int:
        found = self.draft.annotations.get(name)
        if found is None:
            raise popart_exception(f"{_WORDS[name]} not set in current scope.")
        return found.i
