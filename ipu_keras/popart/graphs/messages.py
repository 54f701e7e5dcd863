"""Turns graphs that are built into ONNX's messages, and messages into graphs to go on with."""

import os
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import numpy_helper
from onnx.helper import OP_SET_ID_VERSION_MAP

from ipu_keras.popart.files.messages import all_tensors
from ipu_keras.popart.graphs.draft import GraphDraft
from ipu_keras.popart.graphs.names import Names
from ipu_keras.popart.model.graph import AI_ONNX
from ipu_keras.popart.operations.newer_versions import LAST_OF_POPART

# PopART's IR version of models up to opset 8, and of newer ones. In the older one, each initialiser
# is an input as well.
_OLD_FORMAT, _NEW_FORMAT = 3, 4
_LAST_OPSET_OF_OLD_FORMAT = 8

# PopART's opset for models that have no operation of ai.onnx.
DEFAULT_AI_ONNX = 10


def model_of(draft: GraphDraft, folder: Path | None = None) -> onnx.ModelProto:
    """Returns the message of a model with a main graph.

    Files with data of initialisers are named from `folder`, in which the model will be saved; with
    `None` their names stay as users gave them.
    """
    opsets = {AI_ONNX: DEFAULT_AI_ONNX, **draft.opsets}
    is_old = opsets[AI_ONNX] <= _LAST_OPSET_OF_OLD_FORMAT
    form = _OLD_FORMAT if is_old else _NEW_FORMAT
    if opsets[AI_ONNX] > LAST_OF_POPART:
        # Such a model was read: builders add operations of PopART's opsets only.
        form = OP_SET_ID_VERSION_MAP[AI_ONNX, opsets[AI_ONNX]]
    model = onnx.ModelProto(
        ir_version=form,
        producer_name="popart",
        graph=draft.proto(has_all_inputs=is_old),
        opset_import=[
            onnx.OperatorSetIdProto(domain="" if domain == AI_ONNX else domain, version=version)
            for domain, version in opsets.items()
        ],
    )
    if folder is not None:
        _name_from(model.graph, folder)
    return model


def _name_from(graph: onnx.GraphProto, folder: Path) -> None:
    """Names files of data by paths from a folder if they are in it, else by their full paths."""
    for tensor, _ in all_tensors(graph):
        for entry in tensor.external_data:
            if entry.key == "location":
                root = Path(os.path.realpath(folder))
                path = Path(os.path.realpath(entry.value))
                is_within = path.is_relative_to(root)
                entry.value = str(path.relative_to(root) if is_within else path)


def resume(draft: GraphDraft, model: onnx.ModelProto) -> None:
    """Puts a model, which has the data of all tensors, into an empty graph."""
    graph = model.graph
    draft.name = graph.name
    draft.opsets.update({each.domain or AI_ONNX: each.version for each in model.opset_import})
    for tensor in graph.initializer:
        draft.note_initialiser(tensor.name, numpy_helper.to_array(tensor))
    for each in graph.input:
        if each.name not in draft.initialisers:
            draft.note_input(each.name, each.type)
    # Names within nodes are taken as well: ONNX wants them unique across a graph and those in it.
    within = Names(draft.names)
    for node in graph.node:
        within.add(_names_within(node))
        draft.append(node, draft.opsets)
    # Declared types help where inference found nothing, such as behind unknown operations.
    for each in (*graph.value_info, *graph.output):
        draft.note_declared(each.name, each.type)
    for each in graph.output:
        draft.add_output(each.name)


def _names_within(node: onnx.NodeProto) -> Iterator[str]:
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (each.name for each in (*graph.input, *graph.initializer))
            for inner in graph.node:
                yield from inner.output
                yield from _names_within(inner)
