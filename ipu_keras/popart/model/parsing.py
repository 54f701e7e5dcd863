"""Turns ONNX's protobuf messages, which have been checked, into frozen values."""

import dataclasses
from typing import Any

import onnx
from onnx import AttributeProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.data_types import dtype_of
from ipu_keras.popart.model.graph import AI_ONNX, GraphInput, Node, OnnxGraph, OnnxModel
from ipu_keras.popart.model.tensors import array_of, declared_sizes, dense_array_of, text_of


def parsed(proto: onnx.ModelProto) -> OnnxModel:
    """Returns the model of a message that was checked and has the data of all tensors in it."""
    opsets = {each.domain or AI_ONNX: each.version for each in proto.opset_import}
    return OnnxModel(parsed_graph(proto.graph), opsets)


def parsed_graph(proto: onnx.GraphProto) -> OnnxGraph:
    """Returns the graph of such a message."""
    # Old models have initialisers among the inputs as well; those are no inputs here.
    initialisers = {
        each.name: array_of(each, f"The initialiser {each.name!r}") for each in proto.initializer
    }
    return OnnxGraph(
        proto.name,
        tuple(_node(each) for each in proto.node),
        tuple(_input(each) for each in proto.input if each.name not in initialisers),
        tuple(each.name for each in proto.output),
        initialisers,
    )


def _node(proto: onnx.NodeProto) -> Node:
    node = Node(
        kind=proto.op_type,
        domain=proto.domain or AI_ONNX,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        name=proto.name,
    )
    if not proto.attribute:
        return node
    try:
        attributes = {each.name: _value(each) for each in proto.attribute}
    except popart_exception as error:
        raise popart_exception(f"In {node.title}: {error}") from error
    return dataclasses.replace(node, attributes=attributes)


def _value(proto: AttributeProto) -> Any:
    what = f"The attribute {proto.name!r}"
    match proto.type:
        case AttributeProto.FLOAT:
            return proto.f
        case AttributeProto.INT:
            return proto.i
        case AttributeProto.STRING:
            return text_of(proto.s, what)
        case AttributeProto.TENSOR:
            return array_of(proto.t, what)
        case AttributeProto.SPARSE_TENSOR:
            return dense_array_of(proto.sparse_tensor, what)
        case AttributeProto.GRAPH:
            return parsed_graph(proto.g)
        case AttributeProto.FLOATS:
            return list(proto.floats)
        case AttributeProto.INTS:
            return list(proto.ints)
        case AttributeProto.STRINGS:
            return [text_of(each, what) for each in proto.strings]
        case AttributeProto.TENSORS:
            return [array_of(each, what) for each in proto.tensors]
        case AttributeProto.GRAPHS:
            return [parsed_graph(each) for each in proto.graphs]
    raise popart_exception(
        f"{what} is of a type that no operation here takes. Received: type={proto.type}"
    )


def _input(proto: onnx.ValueInfoProto) -> GraphInput:
    kind = proto.type.tensor_type
    if not proto.type.HasField("tensor_type") or not kind.elem_type:
        return GraphInput(proto.name)
    dtype = dtype_of(kind.elem_type).name
    if not kind.HasField("shape"):
        return GraphInput(proto.name, dtype)
    return GraphInput(proto.name, dtype, tuple(declared_sizes(kind.shape)))
