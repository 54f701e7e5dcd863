"""From ONNX's protobuf messages to `Model`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ipu_keras.popart.model.graph import AI_ONNX, Graph, GraphInput, Model, Node


def parsed(proto: onnx.ModelProto) -> Model:
    """The model that a message describes; it has been checked.

    Args:
        proto: The message, with the data of all tensors.
    """
    opsets = {each.domain or AI_ONNX: each.version for each in proto.opset_import}
    return Model(parsed_graph(proto.graph), opsets)


def parsed_graph(proto: onnx.GraphProto) -> Graph:
    """The graph that a message describes.

    Args:
        proto: The message.
    """
    initialisers = {each.name: numpy_helper.to_array(each) for each in proto.initializer}
    return Graph(
        proto.name,
        tuple(_node(each) for each in proto.node),
        tuple(_input(each) for each in proto.input if each.name not in initialisers),
        tuple(each.name for each in proto.output),
        initialisers,
    )


def _node(proto: onnx.NodeProto) -> Node:
    return Node(
        kind=proto.op_type,
        domain=proto.domain or AI_ONNX,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        name=proto.name,
        attributes=_attributes(proto),
    )


def _attributes(proto: onnx.NodeProto) -> Mapping[str, Any]:
    return {each.name: _value(onnx.helper.get_attribute_value(each)) for each in proto.attribute}


def _value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SparseTensorProto):
        return _dense(value)
    if isinstance(value, onnx.GraphProto):
        return parsed_graph(value)
    if isinstance(value, list):
        return [_value(one) for one in value]
    return value


def _dense(proto: onnx.SparseTensorProto) -> np.ndarray:
    """All elements of a tensor that a message describes by those which are not 0."""
    values, indices = numpy_helper.to_array(proto.values), numpy_helper.to_array(proto.indices)
    array = np.zeros(tuple(proto.dims), values.dtype)
    if indices.ndim == 1:
        array.reshape(-1)[indices] = values
    else:
        array[tuple(indices.T)] = values
    return array


def _input(proto: onnx.ValueInfoProto) -> GraphInput:
    kind = proto.type.tensor_type
    if not proto.type.HasField("tensor_type") or not kind.elem_type:
        return GraphInput(proto.name)
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)).name
    if not kind.HasField("shape"):
        return GraphInput(proto.name, dtype)
    sizes = (d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
    return GraphInput(proto.name, dtype, tuple(sizes))
