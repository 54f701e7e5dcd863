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
from ipu_keras.popart.model.data_types import dtype_of, name_of, number_of, values_outside
from ipu_keras.popart.model.external_data import ExternalData
from ipu_keras.popart.model.loading import load
from ipu_keras.popart.model.messages import all_graphs, all_tensors, names_taken
from ipu_keras.popart.model.saving import DATA_FIELDS, move_data_outside, serialised
from ipu_keras.popart.model.tensors import array_of, tensor_of

# Attributes whose integer is a data type, by kind of node.
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
# Values of a Constant that are no tensors, and what they are.
_PLAIN_VALUES = {
    "value_float": TensorProto.FLOAT,
    "value_floats": TensorProto.FLOAT,
    "value_int": TensorProto.INT64,
    "value_ints": TensorProto.INT64,
}
# Of BatchNormalization, behind its first.
_TRAINING_OUTPUTS = ("mean", "var", "saved_mean", "saved_var")


class GraphTransformer:
    """Changes an ONNX model, such as the types of its tensors; the file stays as it is.

    Args:
        modelProtoOrFilename: The path of a model, or a serialised one.

    Raises:
        popart_exception: It is no model; the text says why.

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
        """The model as it is now, serialised.

        Raises:
            popart_exception: It is larger than 2 GB; `saveInitializersExternally` makes it smaller.
        """
        return serialised(self._proto)

    def removeUnusedInputs(self) -> None:
        """Removes inputs and initialisers of the main graph that nothing takes."""
        graph = self._proto.graph
        used = {name for node in graph.node for name in names_taken(node)}
        used.update(each.name for each in graph.output)
        for tensors in (graph.input, graph.initializer):
            _remove(tensors, {each.name for each in tensors} - used)

    def prepareNodesForTraining(self) -> None:
        """Gives each BatchNormalization of one output the four others that training needs."""
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
        """Makes tensors of FLOAT such of FLOAT16, also constants and results of casts."""
        self._convert(TensorProto.FLOAT, TensorProto.FLOAT16)

    def convertDoublesToFloats(self) -> None:
        """Makes tensors of DOUBLE such of FLOAT, also constants and results of casts."""
        self._convert(TensorProto.DOUBLE, TensorProto.FLOAT)

    def convertDoublesToHalfs(self) -> None:
        """Makes tensors of DOUBLE such of FLOAT16, also constants and results of casts."""
        self._convert(TensorProto.DOUBLE, TensorProto.FLOAT16)

    def convertBFloats16ToFloat32(self) -> None:
        """Makes tensors of BFLOAT16 such of FLOAT, also constants and results of casts."""
        self._convert(TensorProto.BFLOAT16, TensorProto.FLOAT)

    def convertUINT8ToINT32(self) -> None:
        """Makes tensors of UINT8 such of INT32, also constants and results of casts."""
        self._convert(TensorProto.UINT8, TensorProto.INT32)

    def convertUINT16ToINT32(self) -> None:
        """Makes tensors of UINT16 such of INT32, also constants and results of casts."""
        self._convert(TensorProto.UINT16, TensorProto.INT32)

    def convertINT8ToINT32(self) -> None:
        """Makes tensors of INT8 such of INT32, also constants and results of casts."""
        self._convert(TensorProto.INT8, TensorProto.INT32)

    def convertINT16ToINT32(self) -> None:
        """Makes tensors of INT16 such of INT32, also constants and results of casts."""
        self._convert(TensorProto.INT16, TensorProto.INT32)

    def convertINT64ToINT32(self, clip: bool = False) -> None:
        """Makes tensors of INT64 such of INT32, also constants and results of casts.

        Args:
            clip: Whether values that INT32 does not have become the nearest that it has, as is
                right for the ends of slices. Defaults to `False`: they are refused.

        Raises:
            popart_exception: There is such a value, and `clip` is `False`.
        """
        if not isinstance(clip, bool):
            raise popart_exception(f"`clip` must be True or False. Received: clip={clip!r}")
        self._convert(TensorProto.INT64, TensorProto.INT32, clip)

    def convertInitializersToConstants(self, ids: Sequence[str]) -> None:
        """Makes initialisers constants, which no training changes.

        Args:
            ids: Names of initialisers.

        Raises:
            popart_exception: One of them is none.
        """
        graph = self._proto.graph
        tensors = {each.name: each for each in graph.initializer}
        names = _checked_names(ids, tensors)
        constants = [_constant(tensors[name]) for name in names]
        _remove(graph.initializer, names)
        _remove(graph.input, names)
        nodes = [*constants, *graph.node]
        del graph.node[:]
        graph.node.extend(nodes)

    def convertAllFixedPointInitializersToConstants(self) -> None:
        """Makes all initialisers of integers, and of truth values, constants."""
        self.convertInitializersToConstants(
            [
                each.name
                for each in self._proto.graph.initializer
                if dtype_of(each.data_type).kind in "iub"
            ]
        )

    def saveInitializersExternally(self, ids: Sequence[str], filename: str | os.PathLike) -> None:
        """Writes the data of initialisers into a file; the model refers to it from then on.

        Args:
            ids: Names of initialisers.
            filename: Of the file, which is best within the folder in which the model is saved:
                others than this process read no other files.

        Raises:
            popart_exception: One of them is no initialiser, or nothing can be written there.
        """
        tensors = {each.name: each for each in self._proto.graph.initializer}
        move_data_outside(self._proto, _checked_names(ids, tensors), filename)

    def _convert(self, old: int, new: int, clip: bool = False) -> None:
        """Makes tensors of one type such of another; changes nothing if one cannot be."""
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
    """A name for a tensor that none has yet."""
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
    """Has a Constant whose value is a number or a list, of a type, have a tensor of it."""
    for each in node.attribute if node.op_type == "Constant" else ():
        if _PLAIN_VALUES.get(each.name) == kind:
            array = np.asarray(get_attribute_value(each), dtype_of(kind))
            each.Clear()
            each.name, each.type = "value", AttributeProto.TENSOR
            each.t.MergeFrom(tensor_of(array, "value"))


def _convert_node(node: NodeProto, old: int, new: int) -> None:
    """Has a node make tensors of another type, if it says or implies that it makes the old one."""
    name = _TYPE_ATTRIBUTES.get(node.op_type)
    given = next((each for each in node.attribute if each.name == name), None)
    if given is not None and given.i == old:
        given.i = new
    if old != TensorProto.FLOAT:
        return
    # These make FLOAT if they say nothing.
    names = {each.name for each in node.attribute}
    if node.op_type in ("RandomNormal", "RandomUniform") and "dtype" not in names:
        node.attribute.add(name="dtype", type=AttributeProto.INT, i=new)
    if node.op_type == "ConstantOfShape" and "value" not in names:
        value = node.attribute.add(name="value", type=AttributeProto.TENSOR)
        value.t.MergeFrom(tensor_of(np.zeros(1, dtype_of(new)), "value"))
