"""Replaces operations by the nodes through which ONNX itself defines them.

ONNX's schemas have a graph for some operations, and for others build one from the types of the
inputs. The operations listed here were held against ONNX's own tests; one that another module
has as a function runs and is modelled as a whole instead.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx import AttributeProto, FunctionProto, NodeProto

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.model.data_types import number_of
from ipu_keras.popart.model.graph import AI_ONNX, Node, OnnxGraph
from ipu_keras.popart.model.parsing import parsed_graph
from ipu_keras.popart.model.tensors import tensor_of
from ipu_keras.popart.operations.operation import Operation
from ipu_keras.popart.operations.values import LaidOutTensor

_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional


def _expanded(kind: str, since: int) -> Operation:
    """Declares an operation that is computed as the nodes of its schema of a version.

    If the installed ONNX does not describe the version, the operation has no parameters; then no
    model can be loaded that would name it.
    """
    parameters: list[inspect.Parameter] = []
    if onnx.defs.has(kind, since, ""):
        schema = onnx.defs.get_schema(kind, since)
        parameters = [
            inspect.Parameter(
                f"input_{position}",
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=None if one.option == _OPTIONAL else inspect.Parameter.empty,
            )
            for position, one in enumerate(schema.inputs)
        ]
        parameters += [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if one.required or one.default_value.name else None,
            )
            for name, one in schema.attributes.items()
        ]

    def function(*inputs: Any, **attributes: Any) -> Any:
        raise AssertionError("Its nodes are computed, and it is not.")

    signature = inspect.Signature(parameters)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return Operation(kind, function, since, is_expanded=True)


attention_23 = _expanded("Attention", 23)
attention_24 = _expanded("Attention", 24)
attention_25 = _expanded("Attention", 25)
blackman_window = _expanded("BlackmanWindow", 17)
causal_conv_with_state = _expanded("CausalConvWithState", 27)
hamming_window = _expanded("HammingWindow", 17)
hann_window = _expanded("HannWindow", 17)
linear_attention = _expanded("LinearAttention", 27)
rotary_embedding = _expanded("RotaryEmbedding", 23)
swiglu = _expanded("SwiGLU", 28)


def expansion_of(
    operation: Operation, node: Node, given: Sequence[Any], version: int
) -> tuple[OnnxGraph, Mapping[str, int]]:
    """Returns the graph that stands for a node, and the opsets in which it is written.

    The inputs `given`, without those that are `None`, are the inputs of the graph.
    """
    proto = _message_of(node)
    schema = onnx.defs.get_schema(node.kind, version)
    types = [_type_of(each).SerializeToString() for each in given]
    # Such definitions depend on which attributes and optional inputs a node has, so ONNX wants the
    # node and the types of its inputs.
    if schema.has_context_dependent_function:
        written = _newest(schema.context_dependent_function_opset_versions, version)
        content = schema.get_context_dependent_function_with_opset_version(
            written, proto.SerializeToString(), types
        )
    else:
        written = _newest(schema.function_opset_versions, version)
        content = schema.get_function_with_opset_version(written)
    if not content:
        raise popart_exception(
            f"ONNX has no nodes for {operation.kind} with these inputs and attributes."
        )
    function = FunctionProto.FromString(content)
    attributes = {each.name: each for each in proto.attribute}
    for name, one in schema.attributes.items():
        if one.default_value.name:
            attributes.setdefault(name, one.default_value)
    absent = {
        name
        for position, name in enumerate(function.input)
        if position >= len(given) or given[position] is None
    }
    graph = onnx.GraphProto(
        name=operation.kind,
        node=[_resolved(each, attributes, absent) for each in function.node],
        input=[onnx.ValueInfoProto(name=name) for name in function.input if name not in absent],
        output=[onnx.ValueInfoProto(name=name) for name in function.output],
    )
    opsets = {each.domain or AI_ONNX: each.version for each in function.opset_import}
    return parsed_graph(graph), opsets


def _newest(versions: Sequence[int], version: int) -> int:
    """Returns the newest of the versions that is not newer than the model's."""
    return max((each for each in versions if each <= version), default=min(versions))


def _message_of(node: Node) -> NodeProto:
    proto = NodeProto(op_type=node.kind, input=node.inputs, output=node.outputs)
    for name, value in node.arguments.items():
        value = tensor_of(value, name) if isinstance(value, np.ndarray) else value
        proto.attribute.append(onnx.helper.make_attribute(name, value))
    return proto


def _type_of(given: Any) -> onnx.TypeProto:
    if not isinstance(given, LaidOutTensor):
        # ONNX takes an empty type for an input that is left out.
        return onnx.TypeProto()
    number = number_of(np.dtype(given.dtype.as_numpy_dtype))
    return onnx.helper.make_tensor_type_proto(number, given.shape)


def _resolved(
    node: NodeProto, attributes: Mapping[str, AttributeProto], absent: Iterable[str]
) -> NodeProto:
    """Fills in the attributes that a node of a function refers to, also within its graphs."""
    resolved = NodeProto()
    resolved.CopyFrom(node)
    resolved.input[:] = ["" if name in absent else name for name in node.input]
    del resolved.attribute[:]
    for each in node.attribute:
        if not each.ref_attr_name:
            added = resolved.attribute.add()
            added.CopyFrom(each)
            if each.type == AttributeProto.GRAPH:
                inner = [_resolved(one, attributes, absent) for one in each.g.node]
                del added.g.node[:]
                added.g.node.extend(inner)
        elif each.ref_attr_name in attributes:
            added = resolved.attribute.add()
            added.CopyFrom(attributes[each.ref_attr_name])
            added.name = each.name
    return resolved
