"""The methods of builders that read and write attributes of single nodes."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from onnx import AttributeProto, NodeProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.attributes import attribute_of_any, value_of
from ipu_keras.popart.graphs.draft import GraphDraft

Reader = TypeVar("Reader", bound=Callable[..., Any])


def _reading(method: Reader) -> Reader:
    """Documents what methods that return an attribute's value take and raise."""
    method.__doc__ = f"""{method.__doc__}

        Args:
            attributeName: The name of the attribute.
            nodeOutputNames: A set of the ids of all outputs of the node.

        Raises:
            popart_exception: The node has no such attribute, or one of another type.
        """
    return method


class NodeAttributes:
    """The methods of builders for attributes of nodes.

    A node is named by the set of all its outputs, as in PopART: nodes need not have names.

    Args:
        draft: The graph that the builder builds.
    """

    def __init__(self, draft: GraphDraft):
        self.draft = draft

    def addNodeAttribute(
        self, attributeName: str, attributeValue: Any, nodeOutputNames: Iterable[str]
    ) -> None:
        """Gives a node an attribute that it does not have yet.

        Args:
            attributeName: The name of the attribute.
            attributeValue: An integer, number or string, or a list of these.
            nodeOutputNames: A set of the ids of all outputs of the node.

        Raises:
            popart_exception: There is no such node, or it has the attribute.
        """
        node = self.node_of(nodeOutputNames)
        if any(each.name == attributeName for each in node.attribute):
            raise popart_exception(
                f"{node.op_type} has the attribute {attributeName!r} already: remove it first."
            )
        node.attribute.append(attribute_of_any(attributeName, attributeValue))

    def nodeHasAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> bool:
        """Whether a node has an attribute.

        Args:
            attributeName: The name of the attribute.
            nodeOutputNames: A set of the ids of all outputs of the node.

        Raises:
            popart_exception: There is no such node.
        """
        node = self.node_of(nodeOutputNames)
        return any(each.name == attributeName for each in node.attribute)

    @_reading
    def getInt64NodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> int:
        """Returns the value of an attribute that is an integer."""
        return self._value(attributeName, nodeOutputNames, AttributeProto.INT)

    @_reading
    def getInt64VectorNodeAttribute(
        self, attributeName: str, nodeOutputNames: Iterable[str]
    ) -> list[int]:
        """Returns the value of an attribute that is a list of integers."""
        return self._value(attributeName, nodeOutputNames, AttributeProto.INTS)

    @_reading
    def getFloatNodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> float:
        """Returns the value of an attribute that is a floating point number."""
        return self._value(attributeName, nodeOutputNames, AttributeProto.FLOAT)

    @_reading
    def getFloatVectorNodeAttribute(
        self, attributeName: str, nodeOutputNames: Iterable[str]
    ) -> list[float]:
        """Returns the value of an attribute that is a list of floating point numbers."""
        return self._value(attributeName, nodeOutputNames, AttributeProto.FLOATS)

    @_reading
    def getStringNodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> str:
        """Returns the value of an attribute that is a string."""
        return self._value(attributeName, nodeOutputNames, AttributeProto.STRING)

    @_reading
    def getStringVectorNodeAttribute(
        self, attributeName: str, nodeOutputNames: Iterable[str]
    ) -> list[str]:
        """Returns the value of an attribute that is a list of strings."""
        return self._value(attributeName, nodeOutputNames, AttributeProto.STRINGS)

    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: Iterable[str]) -> None:
        """Removes an attribute from a node.

        Args:
            attributeName: The name of the attribute.
            nodeOutputNames: A set of the ids of all outputs of the node.

        Raises:
            popart_exception: The node has no such attribute.
        """
        found = self.found(attributeName, nodeOutputNames)
        self.node_of(nodeOutputNames).attribute.remove(found)

    def getAllNodeAttributeNames(self, nodeOutputNames: Iterable[str]) -> list[str]:
        """Returns the names of all attributes of a node.

        Args:
            nodeOutputNames: A set of the ids of all outputs of the node.

        Raises:
            popart_exception: There is no such node.
        """
        return [each.name for each in self.node_of(nodeOutputNames).attribute]

    def _value(self, attributeName: str, nodeOutputNames: Iterable[str], kind: int) -> Any:
        return value_of(self.found(attributeName, nodeOutputNames), kind)

    def found(self, attributeName: str, nodeOutputNames: Any) -> AttributeProto:
        """Returns an attribute of a node, or raises a `popart_exception` if there is none."""
        node = self.node_of(nodeOutputNames)
        for each in node.attribute:
            if each.name == attributeName:
                return each
        names = ", ".join(each.name for each in node.attribute)
        raise popart_exception(
            f"Node does not have an attribute {attributeName}. {node.op_type} has: "
            f"{names or 'none'}"
        )

    def node_of(self, nodeOutputNames: Any) -> NodeProto:
        """Returns the node that has these outputs, or this only output, and no others.

        Raises:
            popart_exception: The graph of this builder has no such node.
        """
        if isinstance(nodeOutputNames, str):
            names = {nodeOutputNames}
        elif isinstance(nodeOutputNames, Iterable):
            names = set(nodeOutputNames)
        else:
            names = set()
        found = self.draft.node_with(names)
        if found is None:
            raise popart_exception(
                "Could not find a node with output name(s) "
                f"{', '.join(sorted(map(str, names))) or 'none'}: a node is named by a set of the "
                "ids of all its outputs, in the builder that has added it."
            )
        return found
