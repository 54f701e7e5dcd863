"""`popart.session`: the sessions that scripts use; their methods are in `popart/sessions`."""

import os
from typing import Any

from ipu_keras.popart.devices.info import DeviceInfo
from ipu_keras.popart.exceptions import OutOfMemoryError, popart_exception
from ipu_keras.popart.optimizers.optimizer import Optimizer
from ipu_keras.popart.options.patterns import Patterns
from ipu_keras.popart.options.session_options import SessionOptions
from ipu_keras.popart.sessions.dataflow import DataFlow
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo
from ipu_keras.popart.sessions.session import Session, _InferenceSessionCore
from ipu_keras.popart.sessions.trained import _TrainingSessionCore

# C++ bindings would refuse a wrong type with the signature of the overload; users need to know
# what makes the right one, as `acquire` methods return None when no device is free.
_HOW = {
    DataFlow: "Make one with popart.DataFlow(batchesPerStep, {'output': AnchorReturnType('All')}).",
    DeviceInfo: "Get one of a popart.DeviceManager; its acquire methods return None where none is "
    "free.",
    InputShapeInfo: "Make one with popart.InputShapeInfo(), and `add` shapes to it.",
    Patterns: "Make one with popart.Patterns(), or leave it out.",
    SessionOptions: "Make one with popart.SessionOptions(), or leave it out.",
}


class OutOfMemoryException(popart_exception):
    """The program does not fit on the device.

    Args:
        e: The error that `prepareDevice` of the session's core filled in.
    """

    def __init__(self, e: OutOfMemoryError):
        super().__init__(str(e))
        self._error = e

    def getSummaryReport(self) -> str:
        """Returns a text of what the program needs, and what would help."""
        return self._error.getSummaryReport()

    def getProfilePath(self) -> str:
        """Returns the absolute path of the profile, or an empty string if none was written."""
        return self._error.getProfilePath()


def makedirsAndCheckWritable(path: str) -> None:
    """Makes a folder, and checks that files can be written to it.

    Args:
        path: The path of the folder.

    Raises:
        OSError: The folder cannot be made, or cannot be written to.
    """
    os.makedirs(path, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise OSError(f"The folder {path!r} cannot be written to.")


class _RaisesOutOfMemory(Session):
    """Raises errors of programs that do not fit, which the bindings fill into an argument."""

    def compileAndExport(self, filename: str) -> None:  # type: ignore[override]
        """Compiles the program, and writes it to a file that `loadExecutable` reads.

        Args:
            filename: The path of the file, whose folder is made.

        Raises:
            OutOfMemoryException: The program does not fit on the device.
            popart_exception: A node of the model cannot be computed, or the device cannot compile
                offline.
        """
        error = OutOfMemoryError()
        super().compileAndExport(filename, error)
        _raise_unless_successful(error)

    def prepareDevice(self, loadEngine: bool = True) -> None:  # type: ignore[override]
        """Compiles the program for the device.

        Args:
            loadEngine: Whether the program is loaded, too; else `loadEngineAndConnectStreams` loads
                it later. Defaults to `True`.

        Raises:
            OutOfMemoryException: The program does not fit on the device.
            popart_exception: A node of the model cannot be computed, or the device is detached.
        """
        error = OutOfMemoryError()
        super().prepareDevice(loadEngine, error)
        _raise_unless_successful(error)


class InferenceSession(_RaisesOutOfMemory, _InferenceSessionCore):
    """Runs an ONNX model for inference.

    Args:
        fnModel: A serialized model, such as `builder.getModelProto()` gives, or the path of a file.
        dataFlow: The batches of a step, and the anchors that it returns.
        deviceInfo: The device to run on, which a `DeviceManager` gives.
        inputShapeInfo: The shapes and types of inputs, which override those of the model.
        patterns: Which rewrites of graphs are allowed. The emulator rewrites by rules of its own,
            and warns of any choice but the default one.
        userOptions: The options of the session.

    Raises:
        popart_exception: The model is damaged, or has unknown operations; there is no such anchor;
            or options contradict each other, the model or the device.
        TypeError: An argument is of a wrong type.

    Example:

    >>> import numpy as np
    >>> import popart
    >>> builder = popart.Builder()
    >>> x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    >>> y = builder.aiOnnx.relu([x])
    >>> session = popart.InferenceSession(
    ...     builder.getModelProto(),
    ...     popart.DataFlow(1, {y: popart.AnchorReturnType("All")}),
    ...     popart.DeviceManager().createIpuModelDevice({}))
    >>> session.prepareDevice()
    >>> anchors = session.initAnchorArrays()
    >>> session.run(popart.PyStepIO({x: np.float32([-1, 2])}, anchors))
    >>> anchors[y]
    array([0., 2.], dtype=float32)
    """

    def __init__(
        self,
        fnModel: bytes | str | os.PathLike[str],
        dataFlow: DataFlow,
        deviceInfo: Any,
        inputShapeInfo: InputShapeInfo = InputShapeInfo(),  # noqa: B008 - as documented
        patterns: Patterns | None = None,
        userOptions: SessionOptions = SessionOptions(),  # noqa: B008 - as documented
    ):
        patterns = Patterns() if patterns is None else patterns
        _check_arguments(dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions)
        _InferenceSessionCore.__init__(
            self, fnModel, dataFlow, deviceInfo, inputShapeInfo, userOptions, patterns
        )


class TrainingSession(_RaisesOutOfMemory, _TrainingSessionCore):
    """Trains an ONNX model.

    Args:
        fnModel: A serialized model, such as `builder.getModelProto()` gives, or the path of a file.
            A model that `modelToHost` of a training session has written goes on from there.
        dataFlow: The batches of a step, and the anchors that it returns. Besides tensors of the
            model, anchors may be `"Gradient___x"` of each of these, which is of the scaled loss;
            the optimizer's state, such as `"Accl___w"`, with momentum also `"AcclToUpdate___w"`, by
            which weights are updated, and where replicas accumulate gradients
            `"AcclToReduce___w"`, what each of them adds to it; `"UpdatedVar___w"`; `"Accum___w"`,
            the sum of the gradients of a batch; and the optimizer's numbers, such as
            `"lossScaling_FLOAT"`. Weights and state are those after the update of their batch.
        loss: The name of the scalar to minimise.
        optimizer: An `SGD`, `ConstSGD`, `Adam` or `Adaptive`, which trains the floating
            initialisers that the loss depends on.
        deviceInfo: The device to run on, which a `DeviceManager` gives.
        inputShapeInfo: The shapes and types of inputs, which override those of the model.
        patterns: Which rewrites of graphs are allowed. With `SoftMaxGradDirect`, as by default,
            the gradient of `nllloss` goes past the softmax that makes its probabilities, and so
            does not vanish where these do. Otherwise the emulator rewrites by rules of its own,
            and warns of any choice but the default one.
        userOptions: The options of the session.
        name: The name of the program in counters and reports.

    Raises:
        popart_exception: The model is damaged, or has unknown operations; there is no such loss or
            anchor; or options contradict each other, the model or the device.
        TypeError: An argument is of a wrong type, such as an `optimizer` that is none.

    Example:

    >>> import numpy as np
    >>> import popart
    >>> builder = popart.Builder()
    >>> x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1, 2]))
    >>> w = builder.addInitializedInputTensor(np.zeros((2, 1), np.float32))
    >>> y = builder.aiOnnx.matmul([x, w])
    >>> loss = builder.aiGraphcore.identityloss([y])
    >>> session = popart.TrainingSession(
    ...     builder.getModelProto(),
    ...     popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
    ...     loss,
    ...     popart.ConstSGD(0.5),
    ...     popart.DeviceManager().createIpuModelDevice({}))
    >>> session.prepareDevice()
    >>> session.weightsFromHost()
    >>> session.run(popart.PyStepIO({x: np.float32([1, 2])}, session.initAnchorArrays()))
    >>> session.weightsToHost()
    >>> found = np.empty((2, 1), np.float32)
    >>> session.readWeights(popart.PyWeightsIO({w: found}))
    >>> found.ravel()
    array([-0.5, -1. ], dtype=float32)
    """

    def __init__(
        self,
        fnModel: bytes | str | os.PathLike[str],
        dataFlow: DataFlow,
        loss: str,
        optimizer: Optimizer,
        deviceInfo: Any,
        inputShapeInfo: InputShapeInfo = InputShapeInfo(),  # noqa: B008 - as documented
        patterns: Patterns | None = None,
        userOptions: SessionOptions = SessionOptions(),  # noqa: B008 - as documented
        name: str = "training",
    ):
        patterns = Patterns() if patterns is None else patterns
        _check_arguments(dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions)
        _TrainingSessionCore.__init__(
            self,
            fnModel,
            dataFlow,
            loss,
            optimizer,
            deviceInfo,
            inputShapeInfo,
            userOptions,
            patterns,
            name,
        )


def _check_arguments(
    dataFlow: Any, deviceInfo: Any, inputShapeInfo: Any, patterns: Any, userOptions: Any
) -> None:
    """Raises a `TypeError` that says how to make the argument if one is of another type."""
    given = {
        "dataFlow": (dataFlow, DataFlow),
        "deviceInfo": (deviceInfo, DeviceInfo),
        "inputShapeInfo": (inputShapeInfo, InputShapeInfo),
        "patterns": (patterns, Patterns),
        "userOptions": (userOptions, SessionOptions),
    }
    for name, (value, kind) in given.items():
        if not isinstance(value, kind):
            raise TypeError(
                f"`{name}` must be a popart.{kind.__name__}. Received: {name}={value!r} of type "
                f"{type(value).__name__}. {_HOW[kind]}"
            )


def _raise_unless_successful(error: OutOfMemoryError) -> None:
    if not error.isSuccessful():
        raise OutOfMemoryException(error)
