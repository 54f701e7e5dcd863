"""`popart_core._BuilderCore`: the methods of builders, but for those that add operations."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.graphs import opsets
from ipu_keras.popart.graphs.annotations import Annotations, NameContextManager
from ipu_keras.popart.graphs.attributes import attribute_of_any
from ipu_keras.popart.graphs.debug_context import debug_name, one_name
from ipu_keras.popart.graphs.draft import GraphDraft
from ipu_keras.popart.graphs.messages import DEFAULT_AI_ONNX, model_of, resume
from ipu_keras.popart.graphs.tensor_info import _TensorInfoCore, element_of
from ipu_keras.popart.graphs.tensor_types import (
    is_complete,
    lower_case,
    shape_of,
    tensor_type,
)
from ipu_keras.popart.model.data_types import number_of
from ipu_keras.popart.model.external_data import check_unused, note_written
from ipu_keras.popart.model.graph import AI_ONNX
from ipu_keras.popart.options.enumerations import RecomputeType
from ipu_keras.store.atomic_files import write_atomically

__all__ = ["defaultAiGraphcoreOpset", "defaultAiOnnxMlOpset", "defaultAiOnnxOpset"]

DEFAULT_AI_ONNX_ML = 1
DEFAULT_AI_GRAPHCORE = 1

# PopART's names for them.
defaultAiOnnxOpset = DEFAULT_AI_ONNX
defaultAiOnnxMlOpset = DEFAULT_AI_ONNX_ML
defaultAiGraphcoreOpset = DEFAULT_AI_GRAPHCORE


class _Opsets:
    """The opsets of a builder, under PopART's names."""

    draft: GraphDraft

    @property
    def aiOnnxOpset6(self) -> opsets.AiOnnxOpset6:
        """Adds operations of ai.onnx 6."""
        return opsets.AiOnnxOpset6(self.draft)

    @property
    def aiOnnxOpset7(self) -> opsets.AiOnnxOpset7:
        """Adds operations of ai.onnx 7."""
        return opsets.AiOnnxOpset7(self.draft)

    @property
    def aiOnnxOpset8(self) -> opsets.AiOnnxOpset8:
        """Adds operations of ai.onnx 8."""
        return opsets.AiOnnxOpset8(self.draft)

    @property
    def aiOnnxOpset9(self) -> opsets.AiOnnxOpset9:
        """Adds operations of ai.onnx 9."""
        return opsets.AiOnnxOpset9(self.draft)

    @property
    def aiOnnxOpset10(self) -> opsets.AiOnnxOpset10:
        """Adds operations of ai.onnx 10."""
        return opsets.AiOnnxOpset10(self.draft)

    @property
    def aiOnnxOpset11(self) -> opsets.AiOnnxOpset11:
        """Adds operations of ai.onnx 11."""
        return opsets.AiOnnxOpset11(self.draft)

    @property
    def aiOnnxMlOpset1(self) -> opsets.AiOnnxMlOpset1:
        """The opset ai.onnx.ml 1, of which PopART has no operation."""
        return opsets.AiOnnxMlOpset1(self.draft)

    @property
    def aiGraphcoreOpset1(self) -> opsets.AiGraphcoreOpset1:
        """Adds operations of ai.graphcore 1."""
        return opsets.AiGraphcoreOpset1(self.draft)


class _BuilderCore(Annotations, _Opsets):
    """Builds an ONNX model, operation by operation.

    Args:
        modelProtoOrFilename: A serialised model to go on with, or the path of its file; `None`
            begins a new model. Defaults to `None`.

    Raises:
        popart_exception: There is no such model, or it cannot be read.
    """

    def __init__(self, modelProtoOrFilename: bytes | str | os.PathLike | None = None):
        super().__init__(GraphDraft())
        if modelProtoOrFilename is not None:
            resume(self.draft, load(modelProtoOrFilename).proto)

    def setGraphName(self, name: str) -> None:
        """Sets the name of the graph in the model.

        Args:
            name: The name of the graph.
        """
        if not isinstance(name, str):
            raise popart_exception(f"The `name` of a graph is a string. Received: name={name!r}")
        self.draft.name = name

    def addInputTensor(self, *args: Any, **kwargs: Any) -> str:
        """Adds an input to the graph.

        Args:
            *args: Either a `tensorInfo`, which is a `TensorInfo`, or a `dataType` such as
                `"FLOAT"` and a `shape`; then a `debugContext`, the name of the input, which is
                `"input"` if it is left out.
            **kwargs: The same arguments by name; `debugPrefix` is another name of `debugContext`.

        Returns:
            The id of the input.

        Raises:
            popart_exception: There is no such dtype, or a size is negative.
            TypeError: The arguments fit neither form.
        """
        is_info = "tensorInfo" in kwargs or isinstance(next(iter(args), None), _TensorInfoCore)
        return (self._add_input if is_info else self._add_input_of)(*args, **kwargs)

    def _add_input(
        self, tensorInfo: _TensorInfoCore, debugContext: Any = "", *, debugPrefix: Any = ""
    ) -> str:
        if not isinstance(tensorInfo, _TensorInfoCore):
            raise popart_exception(f"`tensorInfo` is a TensorInfo. Received: {tensorInfo!r}")
        name = one_name(debugContext, debugPrefix) or "input"
        type_ = tensor_type(element_of(tensorInfo), tensorInfo.shape())
        return self.draft.add_input(name, type_)

    def _add_input_of(
        self, dataType: str, shape: Any, debugContext: Any = "", *, debugPrefix: Any = ""
    ) -> str:
        info = _TensorInfoCore(dataType, shape)
        return self._add_input(info, debugContext, debugPrefix=debugPrefix)

    def addUntypedInputTensor(self, debugContext: Any = "", *, debugPrefix: Any = "") -> str:
        """Adds an input to a subgraph, whose type follows from what it is called with.

        Args:
            debugContext: The name of the input. Defaults to `""`, which means `"input"`.
            debugPrefix: An older name of `debugContext`.

        Returns:
            The id of the input.

        Raises:
            popart_exception: This is the main graph.
        """
        if self.draft.parent is None:
            raise popart_exception(
                "The inputs of the main graph have a type: use addInputTensor. Untyped ones are "
                "for builders that createSubgraphBuilder makes."
            )
        name = one_name(debugContext, debugPrefix) or "input"
        return self.draft.add_input(name, None)

    def addInputTensorFromParentGraph(self, tensorId: str) -> None:
        """Takes a tensor of a graph around this one, which keeps its id.

        Where the graph is called, the tensor may be one of `args`, in the order of the inputs.

        Args:
            tensorId: The id of the tensor in the graphs around.

        Raises:
            popart_exception: There is no such tensor in the graphs around.
        """
        self.draft.take(tensorId)

    def addInitializedInputTensor(
        self, initVal: np.ndarray, debugContext: Any = "", *, debugPrefix: Any = ""
    ) -> str:
        """Adds an initialised tensor, such as weights, which training may change.

        Args:
            initVal: The value of the tensor as a NumPy array, which is copied.
            debugContext: The name of the tensor. Defaults to `""`, which means `"init_input"`.
            debugPrefix: An older name of `debugContext`.

        Returns:
            The id of the tensor.

        Raises:
            popart_exception: The value is no array, or has a dtype that ONNX has not.
        """
        if not isinstance(initVal, np.ndarray | np.generic):
            raise popart_exception(
                "`initVal` is a NumPy array. Received: an object of type "
                f"{type(initVal).__name__}. Use np.array(..., dtype=...)"
            )
        number_of(initVal.dtype)
        name = one_name(debugContext, debugPrefix) or "init_input"
        return self.draft.add_initialiser(name, np.array(initVal, order="C"))

    def addOutputTensor(self, outputName: str) -> None:
        """Makes a tensor an output of the graph.

        Args:
            outputName: The id of a tensor of this graph.

        Raises:
            popart_exception: There is no such tensor, or it is an output already.
        """
        self.draft.add_output(outputName)

    def customOp(
        self,
        opName: str,
        opVersion: int,
        domain: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any],
        numOutputs: int = 1,
        name: str = "",
    ) -> list[str]:
        """Adds an operation of any domain.

        Args:
            opName: The type of the operation, such as `"LeakyRelu"`.
            opVersion: The version of the operation's domain.
            domain: The domain of the operation, such as `"ai.graphcore"`.
            inputs: The ids of the inputs.
            attributes: By name, integers, numbers and strings, or lists of these.
            numOutputs: The number of results. Defaults to `1`.
            name: The name of the operation in reports. Defaults to `""`.

        Returns:
            The ids of the results.

        Raises:
            popart_exception: An argument is wrong, or the inputs do not fit the operation.
        """
        protos = [attribute_of_any(key, value) for key, value in attributes.items()]
        return self.draft.add_node(
            opName, domain or AI_ONNX, opVersion, inputs, numOutputs, protos, debug_name(name)
        )

    def checkpointOutput(self, nodeOutputNames: Sequence[str]) -> list[str]:
        """Has results kept for the backward pass, although those around them are recomputed.

        Args:
            nodeOutputNames: The ids of the tensors to keep.

        Returns:
            The ids of copies, which the model has to use from here on.
        """
        for id_ in nodeOutputNames:
            self.draft.check(id_, self.draft.types)
        version = self.draft.opsets.get(AI_ONNX, DEFAULT_AI_ONNX)
        kept = []
        for id_ in nodeOutputNames:
            (result,) = self.draft.add_node("Identity", AI_ONNX, version, [id_], 1, [])
            self.recomputeOutput(result, RecomputeType.Checkpoint)
            kept.append(result)
        return kept

    def getInputTensorIds(self) -> list[str]:
        """Returns the ids of the inputs, without initialised tensors."""
        return list(self.draft.inputs)

    def getOutputTensorIds(self) -> list[str]:
        """Returns the ids of the graph's outputs."""
        return list(self.draft.outputs)

    def getValueTensorIds(self) -> list[str]:
        """Returns the ids of the results of operations, including outputs."""
        return [id_ for node in self.draft.nodes for id_ in node.output if id_]

    def getTrainableTensorIds(self) -> list[str]:
        """Returns the ids of the initialised tensors."""
        return list(self.draft.initialisers)

    def getTensorShape(self, id: str) -> list[int]:
        """Returns the shape of a tensor as a list of sizes.

        Args:
            id: The id of the tensor.

        Raises:
            popart_exception: There is no such tensor, or its shape is not known.
        """
        self.draft.check(id, self.draft.types)
        type_ = self.draft.types[id]
        shape = shape_of(type_)
        if shape is None or not is_complete(type_):
            raise popart_exception(
                f"The shape of the tensor {id!r} is not known before the model runs. Received: "
                f"{shape if shape is not None else 'a tensor of unknown rank'}"
            )
        return [int(size) for size in shape if size is not None]

    def getTensorDtypeString(self, id: str) -> str:
        """Returns the dtype of a tensor, such as `"float32"`.

        Args:
            id: The id of the tensor.

        Raises:
            popart_exception: There is no such tensor, or its dtype is not known.
        """
        self.draft.check(id, self.draft.types)
        type_ = self.draft.types[id]
        if type_ is None or not type_.tensor_type.elem_type:
            raise popart_exception(f"The dtype of {id!r} is not known, or it is no tensor.")
        return lower_case(type_.tensor_type.elem_type)

    def isInitializer(self, id: str) -> bool:
        """Whether a tensor is initialised.

        Args:
            id: The id of the tensor.

        Raises:
            popart_exception: There is no tensor of this id.
        """
        self.draft.check(id, self.draft.types)
        return id in self.draft.initialisers

    def nameScope(self, name: str) -> NameContextManager:
        """Returns a context manager that puts a name and a slash before the names of what is added.

        Args:
            name: The name of the scope; scopes may be nested.
        """
        if not isinstance(name, str):
            raise popart_exception(f"The `name` of a scope is a string. Received: name={name!r}")
        names = self.draft.names
        return NameContextManager(lambda: names.open_scope(name), names.close_scope)

    def getNameScope(self, name: str = "") -> str:
        """Returns a name with those of the open scopes before it.

        Args:
            name: The name to put into the scopes. Defaults to `""`.
        """
        return self.draft.names.in_scope(name)

    def getModelProto(self) -> bytes:
        """Returns the model that was built so far, as bytes.

        Raises:
            popart_exception: The model is larger than 2 GB, protobuf's limit.
        """
        return _serialised(model_of(self.draft))

    def saveModelProto(self, filename: str | os.PathLike) -> None:
        """Writes the model that was built so far into a file.

        Args:
            filename: The path of the file to write.

        Raises:
            popart_exception: The file cannot be written, holds data of the model's initialisers,
                or the model is larger than 2 GB.
        """
        path = Path(filename)
        self._check_unused(path)
        _write(path, _serialised(model_of(self.draft, path.parent)))

    def saveInitializersExternally(self, ids: Sequence[str], filename: str | os.PathLike) -> None:
        """Writes the data of initialised tensors into a file, to which the model then refers.

        Args:
            ids: The ids of the initialised tensors to write.
            filename: The path of the file, which models name as it is given here.

        Raises:
            popart_exception: A tensor is not initialised, or has its data in a file already; or
                the file cannot be written, or holds data of other initialisers.
        """
        path = Path(filename)
        self._check_unused(path)
        for id_ in ids:
            self.draft.check(id_, self.draft.initialisers)
            if id_ in self.draft.external:
                raise popart_exception(f"The value of {id_!r} is in a file of its own already.")
        messages, parts, offset = {}, [], 0
        for id_ in dict.fromkeys(ids):
            array = self.draft.initialisers[id_]
            message = onnx.TensorProto(name=id_, data_type=number_of(array.dtype), dims=array.shape)
            data = onnx.numpy_helper.from_array(array).raw_data
            message.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (
                ("location", os.fspath(filename)),
                ("offset", str(offset)),
                ("length", str(len(data))),
            ):
                message.external_data.add(key=key, value=value)
            parts.append(data)
            offset += len(data)
            messages[id_] = message
        _write(path, parts)
        note_written(path)
        self.draft.external.update(messages)
        self.draft.files[Path(os.path.realpath(path))] = next(iter(messages), "")

    def _createSubgraphBuilder(self) -> "_BuilderCore":
        child = _BuilderCore()
        child.draft = GraphDraft(self.draft)
        return child

    def _check_unused(self, path: Path) -> None:
        check_unused(path, ((id_, file) for file, id_ in self.draft.files.items()))


def _serialised(model: onnx.ModelProto) -> bytes:
    try:
        return model.SerializeToString(deterministic=True)
    except ValueError as error:
        raise popart_exception(
            "The model is larger than 2 GB, the most that one message has. Save the values of "
            "large tensors by saveInitializersExternally first."
        ) from error


def _write(path: Path, content: bytes | list[bytes]) -> None:
    try:
        write_atomically(path, content)
    except (OSError, ValueError) as error:
        raise popart_exception(f"The file {str(path)!r} cannot be written. {error}") from error
