"""`popart.writer`: the base of writers that turn models of a framework into ONNX."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ipu_keras.popart.sessions.dataflow import DataFlow
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo


class NetWriter:
    """The base class of writers of a framework's models as ONNX, one for each framework.

    A subclass defines `saveModel`. `infer` and `train` are for those who compare a session with
    their framework, and may be left out. The arguments become attributes of the same names.

    Args:
        inNames: The names of the inputs of the ONNX model, in order.
        outNames: The names of the outputs of the ONNX model.
        optimizer: The optimizer for training, or `None` for inference.
        dataFlow: The batches of a step, and the anchors that it returns.
        inputShapeInfo: The shape and type of every input.

    Raises:
        TypeError: Names are no list of `str`, or the last two arguments are of other classes.

    Example:

    >>> import popart
    >>> class Doubling(NetWriter):
    ...     def saveModel(self, filename):
    ...         builder = popart.Builder()
    ...         (name,) = self.inNames
    ...         x = builder.addInputTensor(self.inputShapeInfo.get(name), name)
    ...         builder.addOutputTensor(builder.aiOnnx.add([x, x]))
    ...         builder.saveModelProto(filename)
    ...     def infer(self, inputsMap):
    ...         return {self.outNames[0]: 2 * inputsMap[self.inNames[0]]}
    >>> infos = popart.InputShapeInfo()
    >>> infos.add("x", popart.TensorInfo("FLOAT", [2]))
    >>> writer = Doubling(["x"], ["Add:0"], None, popart.DataFlow(1, ["Add:0"]), infos)
    >>> writer.infer({"x": np.float32([1, 2])})
    {'Add:0': array([2., 4.], dtype=float32)}
    """

    def __init__(
        self,
        inNames: Sequence[str],
        outNames: Sequence[str],
        optimizer: Any,
        dataFlow: DataFlow,
        inputShapeInfo: InputShapeInfo,
    ):
        self.inNames = _names("inNames", inNames)
        self.outNames = _names("outNames", outNames)
        self.optimizer = optimizer
        self.dataFlow = _instance("dataFlow", dataFlow, DataFlow)
        self.inputShapeInfo = _instance("inputShapeInfo", inputShapeInfo, InputShapeInfo)

    def infer(self, inputsMap: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Performs `batchesPerStep` inference steps in the framework.

        Args:
            inputsMap: The data of the inputs by name.

        Returns:
            The outputs by name.

        Raises:
            NotImplementedError: The subclass does not define the method.
        """
        raise self._without("infer", "the outputs of `batchesPerStep` batches by name")

    def saveModel(self, filename: str | os.PathLike[str]) -> None:
        """Writes the ONNX model to a file.

        Args:
            filename: The path of the file.

        Raises:
            NotImplementedError: The subclass does not define the method.
        """
        raise self._without("saveModel", "nothing, and write the ONNX model to the file")

    def train(self, inputsMap: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Performs `batchesPerStep` training steps in the framework.

        Args:
            inputsMap: The data of the inputs by name.

        Returns:
            The outputs by name.

        Raises:
            NotImplementedError: The subclass does not define the method.
        """
        raise self._without("train", "the outputs of `batchesPerStep` batches by name")

    def _without(self, method: str, returned: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} has no method {method!r} of its own, which frameworks bring. "
            f"Define it in your class that inherits NetWriter; it shall return {returned}."
        )


def _names(argument: str, names: Any) -> Sequence[str]:
    is_sequence = isinstance(names, Sequence) and not isinstance(names, str)
    if not is_sequence or not all(isinstance(name, str) for name in names):
        raise TypeError(f"`{argument}` must be a list of str. Received: {argument}={names!r}")
    return names


def _instance(argument: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(
            f"`{argument}` must be a popart.{kind.__name__}. Received: {argument}={value!r} of "
            f"type {type(value).__name__}"
        )
    return value
