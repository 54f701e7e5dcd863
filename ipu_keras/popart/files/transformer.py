"""`popart.GraphTransformer`: changes ONNX models before they are built into a session."""

import itertools
import os
import warnings
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto
from onnx.helper import get_attribute_value

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.files.messages import all_graphs, all_tensors, names_taken
from ipu_keras.popart.files.saving import DATA_FIELDS, move_data_outside, serialised
from ipu_keras.popart.model.data_types import dtype_of, name_of, number_of, values_outside
from ipu_keras.popart.model.external_data import ExternalData
from ipu_keras.popart.model.tensors import array_of, tensor_of

# By kind of node: the attribute that is the number of a data type.
_TYPE_ATTRIBUTES = {
    "Bernoulli": "dtype",
    "BlackmanWindow": "output_datatype",
    "Cast": "to",
    "DequantizeLinear": "output_dtype",
    "EyeLike": "dtype",
    "HammingWindow": "output_datatype",
    "HannWindow": "output_datatype",
    "Multinomial": "dtype",
    "RandomNormal": "dtype",
    "RandomNormalLike": "dtype",
    "RandomUniform": "dtype",
    "RandomUniformLike": "dtype",
}
# Attributes of Constant that are not tensors, and the types of what they make.
_PLAIN_VALUES = {
    "value_float": TensorProto.FLOAT,
    "value_floats": TensorProto.FLOAT,
    "value_int": TensorProto.INT64,
    "value_ints": TensorProto.INT64,
}
# The outputs of BatchNormalization after the first, by which a node says that it trains.
_TRAINING_OUTPUTS = ("mean", "var", "saved_mean", "saved_var")


class GraphTransformer:
    """Changes an ONNX model in memory, such as the types of its tensors; the file stays as it is.

    Args:
        modelProtoOrFilename: The path of a model, or a serialised model as bytes.

    Raises:
        popart_exception: The argument is no model; the message says why.

    Example:

    ```python
    transformer = popart.GraphTransformer("model.onnx")
    transformer.convertFloatsToHalfs()
    session = popart.InferenceSession(transformer.getModelProto(), ...)
    ```
    """

    def __init__(self, modelProtoOrFilename: bytes | str | os.PathLike):
        self._proto: ModelProto = load(modelProtoOrFilename).proto

    def getModelProto(self) -> bytes:
        """Returns the model as it is now, as bytes.

        Raises:
            popart_exception: The model is larger than 2 GB; `saveInitializersExternally` makes it
                smaller.
        """
        return serialised(self._proto)

    def removeUnusedInputs(self) -> None:
        """Removes the inputs and initialisers of the main graph that no node and no output uses."""
        graph = self._proto.graph
        used = {name for node in graph.node for name in names_taken(node)}
        used.update(each.name for each in graph.output)
        for tensors in (graph.input, graph.initializer):
            _remove(tensors, {each.name for each in tensors} - used)

    def prepareNodesForTraining(self) -> None:
        """Gives each BatchNormalization with one output the four others that training needs."""
        graphs = list(all_graphs(self._proto.graph))
        names = {name for graph in graphs for name in _names_in(graph)}
        for graph in graphs:
            for node in graph.node:
                if node.op_type == "BatchNormalization" and len(node.output) == 1:
                    made = [
                        _unused(f"{node.output[0]}_{each}", names) for each in _TRAINING_OUTPUTS
                    ]
                    node.output.extend(made)

    def convertFloatsToHalfs(self) -> None:
        """Converts tensors of FLOAT to FLOAT16, also constants and results of casts."""
        self._convert(TensorProto.FLOAT, TensorProto.FLOAT16)

    def convertDoublesToFloats(self) -> None:
        """Converts tensors of DOUBLE to FLOAT, also constants and results of casts."""
        self._convert(TensorProto.DOUBLE, TensorProto.FLOAT)

    def convertDoublesToHalfs(self) -> None:
        """Converts tensors of DOUBLE to FLOAT16, also constants and results of casts."""
        self._convert(TensorProto.DOUBLE, TensorProto.FLOAT16)

    def convertBFloats16ToFloat32(self) -> None:
        """Converts tensors of BFLOAT16 to FLOAT, also constants and results of casts."""
        self._convert(TensorProto.BFLOAT16, TensorProto.FLOAT)

    def convertUINT8ToINT32(self) -> None:
        """Converts tensors of UINT8 to INT32, also constants and results of casts."""
        self._convert(TensorProto.UINT8, TensorProto.INT32)

    def convertUINT16ToINT32(self) -> None:
        """Converts tensors of UINT16 to INT32, also constants and results of casts."""
        self._convert(TensorProto.UINT16, TensorProto.INT32)

    def convertINT8ToINT32(self) -> None:
        """Converts tensors of INT8 to INT32, also constants and results of casts."""
        self._convert(TensorProto.INT8, TensorProto.INT32)

    def convertINT16ToINT32(self) -> None:
        """Converts tensors of INT16 to INT32, also constants and results of casts."""
        self._convert(TensorProto.INT16, TensorProto.INT32)

    def convertINT64ToINT32(self, clip: bool = False) -> None:
        """Converts tensors of INT64 to INT32, also constants and results of casts.

        Args:
            clip: Whether values out of the range of INT32 become the nearest in it, as is right
                for the ends of slices. Defaults to `False`, which refuses such values.

        Raises:
            popart_exception: A value is out of range, and `clip` is `False`.
        """
        if not isinstance(clip, bool):
            raise popart_exception(f"`clip` must be True or False. Received: clip={clip!r}")
        self._convert(TensorProto.INT64, TensorProto.INT32, clip)

    def convertInitializersToConstants(self, ids: Sequence[str]) -> None:
        """Turns initialisers into constants, which training does not change.

        Args:
            ids: The names of the initialisers to convert.

        Raises:
            popart_exception: A name is not that of an initialiser.
        """
        graph = self._proto.graph
        tensors = {each.name: each for each in graph.initializer}
        names = _checked_names(ids, tensors)
        constants = [_constant(tensors[name]) for name in names]
        _remove(graph.initializer, names)
        _remove(graph.input, names)
        # ONNX wants a node after those whose results it takes, so constants come first.
        nodes = [*constants, *graph.node]
        del graph.node[:]
        graph.node.extend(nodes)

    def convertAllFixedPointInitializersToConstants(self) -> None:
        """Turns all initialisers of integers and booleans into constants."""
        self.convertInitializersToConstants(
            [
                each.name
                for each in self._proto.graph.initializer
                if dtype_of(each.data_type).kind in "iub"
            ]
        )

    def saveInitializersExternally(self, ids: Sequence[str], filename: str | os.PathLike) -> None:
        """Writes the data of initialisers into a file, to which the model refers from then on.

        Args:
            ids: The names of the initialisers to write.
            filename: The file to write, which should be within the folder in which the model is
                saved: processes other than this one read no files outside of it.

        Raises:
            popart_exception: A name is not that of an initialiser, or the file cannot be written.
        """
        tensors = {each.name: each for each in self._proto.graph.initializer}
        move_data_outside(self._proto, _checked_names(ids, tensors), filename)

    def _convert(self, old: int, new: int, clip: bool = False) -> None:
        """Converts tensors of one type to another; if one cannot be, no tensor is changed."""
        graph = self._proto.graph
        for node in (one for each in all_graphs(graph) for one in each.node):
            _make_tensor_of_value(node, old)
        external = ExternalData(Path())
        found = [each for each in all_tensors(graph) if each[0].data_type == old]
        arrays = []
        for tensor, what in found:
            array = array_of(tensor, what, external)
            arrays.append(_converted(array, what, dtype_of(new), clip))
        for (tensor, _), array in zip(found, arrays, strict=True):
            _put(tensor, array)
        for each in all_graphs(graph):
            for value in (*each.input, *each.output, *each.value_info):
                _convert_type(value.type, old, new)
            for node in each.node:
                _convert_node(node, old, new)


def _checked_names(ids: Any, tensors: Container[str]) -> list[str]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise popart_exception(f"`ids` must be a list of names. Received: ids={ids!r}")
    names = list(dict.fromkeys(ids))
    for name in names:
        if name not in tensors:
            raise popart_exception(f"There is no initialiser {name!r}. Received: ids={names!r}")
    return names


def _names_in(graph: GraphProto) -> Iterator[str]:
    for each in (*graph.input, *graph.initializer):
        yield each.name
    for node in graph.node:
        yield from node.output


def _remove(messages: Any, names: Container[str]) -> None:
    for position in reversed(range(len(messages))):
        if messages[position].name in names:
            del messages[position]


def _constant(tensor: TensorProto) -> NodeProto:
    node = NodeProto(op_type="Constant", output=[tensor.name])
    attribute = node.attribute.add(name="value", type=AttributeProto.TENSOR)
    attribute.t.MergeFrom(tensor)
    return node


def _unused(name: str, names: set[str]) -> str:
    """Returns a name that no tensor has yet, with PopART's suffix such as `/1` if need be."""
    candidates = (f"{name}/{number}" if number else name for number in itertools.count())
    unused = next(each for each in candidates if each not in names)
    names.add(unused)
    return unused


def _converted(array: np.ndarray, what: str, dtype: np.dtype, clip: bool) -> np.ndarray:
    if dtype.itemsize >= array.dtype.itemsize:
        return array.astype(dtype)
    outside = values_outside(array, dtype)
    if outside.size and dtype.kind == "f":
        warnings.warn(
            f"{what} has values that {name_of(dtype)} cannot hold, such as {outside[0]}, which "
            "become infinite.",
            stacklevel=4,
        )
        with np.errstate(over="ignore"):
            return array.astype(dtype)
    if outside.size and not clip:
        raise popart_exception(
            f"{what} has the value {outside[0]}, which {name_of(dtype)} cannot hold. "
            "`convertINT64ToINT32(clip=True)` takes the nearest value for it."
        )
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    return (array if limits is None else array.clip(limits.min, limits.max)).astype(dtype)


def _put(tensor: TensorProto, array: np.ndarray) -> None:
    for field in DATA_FIELDS:
        tensor.ClearField(field)
    tensor.data_type = number_of(array.dtype)
    tensor.raw_data = array.tobytes()


def _convert_type(kind: TypeProto, old: int, new: int) -> None:
    while kind.HasField("sequence_type"):
        kind = kind.sequence_type.elem_type
    if kind.HasField("tensor_type") and kind.tensor_type.elem_type == old:
        kind.tensor_type.elem_type = new


def _make_tensor_of_value(node: NodeProto, kind: int) -> None:
    """Rewrites a Constant whose value is a number or a list of a type to have a tensor instead.

    Numbers in attributes have a fixed type, and only tensors can be converted.
    """
    for each in node.attribute if node.op_type == "Constant" else ():
        if _PLAIN_VALUES.get(each.name) == kind:
            array = np.asarray(get_attribute_value(each), dtype_of(kind))
            each.Clear()
            each.name, each.type = "value", AttributeProto.TENSOR
            each.t.MergeFrom(tensor_of(array, "value"))


def _convert_node(node: NodeProto, old: int, new: int) -> None:
    """Changes the type of the tensors that a node makes, if it names or implies the old type."""
    name = _TYPE_ATTRIBUTES.get(node.op_type)
    given = next((each for each in node.attribute if each.name == name), None)
    if given is not None and given.i == old:
        given.i = new
    if old != TensorProto.FLOAT:
        return
    # These operations make FLOAT if no attribute says otherwise.
    names = {each.name for each in node.attribute}
    if node.op_type in ("RandomNormal", "RandomUniform") and "dtype" not in names:
        node.attribute.add(name="dtype", type=AttributeProto.INT, i=new)
    if node.op_type == "ConstantOfShape" and "value" not in names:
        value = node.attribute.add(name="value", type=AttributeProto.TENSOR)
        value.t.MergeFrom(tensor_of(np.zeros(1, dtype_of(new)), "value"))
