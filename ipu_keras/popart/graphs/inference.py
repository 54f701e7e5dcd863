"""Finds the types of a node's results as soon as the node is added to a graph.

ONNX infers them for most of its own operations. For others, and where ONNX leaves something open,
the operation is traced in an empty graph: a session will find the same.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import tensorflow as tf

from ipu_keras.internals.tensorflow.functions import new_trace
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.graphs.tensor_types import (
    is_complete,
    num_elements,
    shape_of,
    tensor_type,
    words_of,
)
from ipu_keras.popart.model.data_types import dtype_of, number_of
from ipu_keras.popart.model.graph import AI_GRAPHCORE, AI_ONNX, Node
from ipu_keras.popart.model.parsing import parsed_graph
from ipu_keras.popart.operations.evaluation import Environment, Evaluation
from ipu_keras.popart.operations.operation import Operation
from ipu_keras.popart.operations.table import OPERATIONS, operation_of
from ipu_keras.popart.operations.values import LaidOutTensor

# Values of up to so many elements are kept: shapes, axes and the like, on which other shapes
# depend. Weights are larger, and no shape depends on them.
MOST_KNOWN_ELEMENTS = 1024

# The IR version of the models that are made here, which ONNX's inference alone reads.
_IR_VERSION = 8

# The prefix of names that ONNX's inference makes up for unknown sizes.
_MADE_UP = "unk__"

# ONNX puts this before each error, and once before all.
_MARK = re.compile(r"\[\w+InferenceError\]")


@dataclass(frozen=True)
class Surroundings:
    """The types of the tensors that a node can name, `None` where unknown, and known values."""

    types: Mapping[str, onnx.TypeProto | None]
    known: Mapping[str, np.ndarray]
    opsets: Mapping[str, int]


@dataclass(frozen=True)
class Inferred:
    """The types of a node's results, `None` where unknown, and the values that are known."""

    types: Sequence[onnx.TypeProto | None]
    known: Mapping[str, np.ndarray] = field(default_factory=dict)


def infer(proto: onnx.NodeProto, around: Surroundings) -> Inferred:
    """Infers the types of a node's results, and the values on which shapes may depend."""
    domain = proto.domain or AI_ONNX
    is_constant = proto.op_type == "Constant" and domain == AI_ONNX
    # Since version 12, a Constant may have a number or a list in another attribute instead, which
    # is left to what follows.
    if is_constant and any(each.name == "value" for each in proto.attribute):
        return _constant(proto)
    if (proto.op_type, domain) == ("ReplicatedAllReduce", AI_GRAPHCORE):
        # Tracing would have to know the number of replicas, which only sessions know.
        return Inferred([around.types[proto.input[0]]])
    types: Sequence[onnx.TypeProto | None] = [None] * len(proto.output)
    if any(around.types.get(name) is None for name in _names(proto)):
        # So it is in a subgraph with untyped inputs, which get their types when it is called.
        return Inferred(types)
    is_known = onnx.defs.has(proto.op_type, around.opsets.get(domain, 1), proto.domain)
    if is_known and not _has_untyped_results(proto):
        types = _by_onnx(proto, around)
        _check_sizes(proto, types, around)
    if all(map(is_complete, types)) and not _may_be_a_shape(proto, around):
        return Inferred(types)
    return _by_tracing(proto, types, around)


def _may_be_a_shape(proto: onnx.NodeProto, around: Surroundings) -> bool:
    """Whether a result may decide other shapes: a shape, or computed from known integers alone."""
    names = [name for name in proto.input if name]
    if proto.op_type in ("Shape", "Constant"):
        return True
    return bool(names) and all(
        name in around.known and around.known[name].dtype.kind in "iu" for name in names
    )


def _constant(proto: onnx.NodeProto) -> Inferred:
    tensor = next(each.t for each in proto.attribute if each.name == "value")
    array = onnx.numpy_helper.to_array(tensor)
    known = {proto.output[0]: array} if array.size <= MOST_KNOWN_ELEMENTS else {}
    return Inferred([tensor_type(tensor.data_type, array.shape)], known)


def _by_onnx(proto: onnx.NodeProto, around: Surroundings) -> list[onnx.TypeProto | None]:
    names = _names(proto)
    model = onnx.ModelProto(ir_version=_IR_VERSION)
    model.graph.name = "node"
    model.graph.node.append(proto)
    for name in names:
        model.graph.input.append(onnx.ValueInfoProto(name=name, type=around.types[name]))
        if name in around.known:
            tensor = onnx.numpy_helper.from_array(around.known[name], name)
            model.graph.initializer.append(tensor)
    for domain, version in around.opsets.items():
        name = "" if domain == AI_ONNX else domain
        model.opset_import.append(onnx.OperatorSetIdProto(domain=name, version=version))
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        text = _MARK.split(str(error))[-1].strip()
        raise refusal(proto, text, around) from error
    found = {each.name: each.type for each in inferred.graph.value_info}
    return [_or_none(found.get(name)) for name in proto.output]


def _or_none(type_: onnx.TypeProto | None) -> onnx.TypeProto | None:
    if type_ is None or not type_.WhichOneof("value"):
        return None
    inner = type_.sequence_type.elem_type if type_.HasField("sequence_type") else type_
    for size in inner.tensor_type.shape.dim:
        if size.dim_param.startswith(_MADE_UP):
            # Each node is inferred alone, so ONNX makes up the same name for unrelated sizes.
            size.ClearField("dim_param")
    return type_


def _check_sizes(
    proto: onnx.NodeProto, types: Sequence[onnx.TypeProto | None], around: Surroundings
) -> None:
    for type_ in types:
        shape = shape_of(type_)
        if shape is not None and any(size is not None and size < 0 for size in shape):
            text = f"Its result would have negative sizes: {shape}."
            raise refusal(proto, text, around)
    if proto.op_type == "Reshape":
        # ONNX's inference does not compare the numbers of elements.
        numbers = {num_elements(each) for each in (around.types[proto.input[0]], types[0])}
        if None not in numbers and len(numbers) > 1:
            text = f"Its result would have another number of elements: {shape_of(types[0])}."
            raise refusal(proto, text, around)


def _has_untyped_results(proto: onnx.NodeProto) -> bool:
    """Whether a graph within a node has an untyped result, which ONNX's inference would refuse."""
    graphs = (graph for each in proto.attribute for graph in (each.g, *each.graphs))
    return any(not each.type.WhichOneof("value") for graph in graphs for each in graph.output)


def refusal(proto: onnx.NodeProto, text: str, around: Surroundings) -> popart_exception:
    """Makes the error that says why a node cannot be added, with the types of its inputs."""
    given = ", ".join(f"{name} {words_of(around.types.get(name))}" for name in proto.input if name)
    title = Node(proto.op_type, proto.domain, (), tuple(proto.output), proto.name).title
    end = "" if text.endswith((".", "!", "?")) else "."
    return popart_exception(f"In {title}: {text}{end} Received: {given or 'no inputs'}")


def _names(proto: onnx.NodeProto) -> list[str]:
    """Lists the tensors that a node takes, itself or in the graphs within it."""
    return list(dict.fromkeys([*filter(None, proto.input), *free_names(proto)]))


def free_names(proto: onnx.NodeProto) -> list[str]:
    """Lists the tensors around a node that the graphs within it name."""
    return [
        name
        for attribute in proto.attribute
        for graph in (attribute.g, *attribute.graphs)
        for name in _free_names_of(graph)
    ]


def _free_names_of(graph: onnx.GraphProto) -> list[str]:
    own = {each.name for each in (*graph.input, *graph.initializer)}
    found: list[str] = []
    for node in graph.node:
        found += [name for name in (*node.input, *free_names(node)) if name and name not in own]
        own.update(node.output)
    found += [each.name for each in graph.output if each.name not in own]
    return found


def _by_tracing(
    proto: onnx.NodeProto, types: Sequence[onnx.TypeProto | None], around: Surroundings
) -> Inferred:
    """Completes types by tracing the node; returns them as they are if it cannot be traced."""
    names = _names(proto)
    domain = proto.domain or AI_ONNX
    version = around.opsets.get(domain, 1)
    if not _exists(proto, around.opsets) or not all(
        shape_of(around.types[name]) is not None for name in names
    ):
        return Inferred(types)
    operation = operation_of(domain, proto.op_type, version)
    if not _are_static_ones_known(operation, proto, around.known):
        return Inferred(types)
    graph = parsed_graph(onnx.GraphProto(node=[proto]))
    with new_trace().as_default():
        environment: Environment = {name: _made(name, around) for name in names}
        evaluation = Evaluation(around.opsets, seed=lambda: tf.zeros(2, tf.int32))
        try:
            evaluation.run(graph, environment)
        except popart_exception as error:
            text = str(error).partition(": ")[2]
            raise refusal(proto, text, around) from error
        results = [environment.get(name) for name in proto.output]
    found = [
        given if is_complete(given) else _type_of(result, given)
        for result, given in zip(results, types, strict=True)
    ]
    known = {
        name: result.known
        for name, result in zip(proto.output, results, strict=True)
        if isinstance(result, LaidOutTensor)
        and result.known is not None
        and result.known.size <= MOST_KNOWN_ELEMENTS
    }
    return Inferred(found, known)


def _exists(proto: onnx.NodeProto, opsets: Mapping[str, int]) -> bool:
    """Whether the operations of a node, and of those in graphs within it, are known."""
    domain = proto.domain or AI_ONNX
    version = opsets.get(domain, 1)
    graphs = (graph for each in proto.attribute for graph in (each.g, *each.graphs))
    return any(
        each.since <= version for each in OPERATIONS.get((domain, proto.op_type), ())
    ) and all(_exists(node, opsets) for graph in graphs for node in graph.node)


def _are_static_ones_known(
    operation: Operation, proto: onnx.NodeProto, known: Mapping[str, np.ndarray]
) -> bool:
    parameters = operation.inputs
    return all(
        parameter.name not in operation.static or not name or name in known
        for parameter, name in zip(parameters, proto.input, strict=False)
    )


def _made(name: str, around: Surroundings) -> LaidOutTensor:
    """Returns a known value, or a placeholder of the tensor's type in the graph being traced."""
    if name in around.known:
        return LaidOutTensor(known=around.known[name])
    type_ = around.types[name]
    assert type_ is not None
    element = dtype_of(type_.tensor_type.elem_type)
    return LaidOutTensor(tf.compat.v1.placeholder(tf.as_dtype(element), shape_of(type_)))


def _type_of(result: Any, given: onnx.TypeProto | None) -> onnx.TypeProto | None:
    if isinstance(result, list):
        if not result:
            return given
        inner = _type_of(result[0], None)
        return None if inner is None else onnx.helper.make_sequence_type_proto(inner)
    if result is None:
        return given
    dtype = np.dtype(object) if result.dtype == tf.string else result.dtype.as_numpy_dtype
    return tensor_type(number_of(np.dtype(dtype)), _sizes(result.shape, shape_of(given)))


def _sizes(traced: Sequence[int | None], given: Sequence[int | None] | None) -> list[int | None]:
    """Returns the sizes that ONNX gives, and those of the trace where it gives none."""
    if given is None or len(given) != len(traced):
        return list(traced)
    return [found if size is None else size for found, size in zip(traced, given, strict=True)]
