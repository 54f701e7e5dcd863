"""Sessions, which run ONNX models on a device."""

import os
from typing import Any

import numpy as np

from ipu_keras._missing_names import missing_attribute
from ipu_keras.popart.exceptions import OutOfMemoryError, popart_exception
from ipu_keras.popart.optimizers.optimizer import Optimizer
from ipu_keras.popart.options.patterns import Patterns
from ipu_keras.popart.options.session_options import SessionOptions
from ipu_keras.popart.sessions.arguments import check_arguments
from ipu_keras.popart.sessions.dataflow import DataFlow
from ipu_keras.popart.sessions.documented import SessionMethods
from ipu_keras.popart.sessions.inference import _InferenceSessionCore
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo
from ipu_keras.popart.sessions.training import _TrainingSessionCore

# With a path, `from popart.session import name` says that a documented name is missing.
__path__: list[str] = []


class OutOfMemoryException(popart_exception):
    """The program does not fit on the device.

    Args:
        e: The error that `prepareDevice` filled in.
    """

    def __init__(self, e: OutOfMemoryError):
        super().__init__(str(e))
        self._error = e

    def getSummaryReport(self) -> str:
        """Returns what the program needs, and what would help."""
        return self._error.getSummaryReport()

    def getProfilePath(self) -> str:
        """Returns the absolute path of the profile, or an empty text if none was written."""
        return self._error.getProfilePath()


def makedirsAndCheckWritable(path: str) -> None:
    """Makes a folder, and checks that files can be written to it.

    Args:
        path: The path of the folder.

    Raises:
        OSError: The folder cannot be made, or not written to.
    """
    os.makedirs(path, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise OSError(f"The folder {path!r} cannot be written to.")


class _NamedErrors(SessionMethods):
    """Methods that sessions of this module have besides, or in place of, the bindings' ones."""

    @property
    def dataFlow(self) -> DataFlow:
        """What a step takes and returns."""
        return self._session.flow

    @property
    def replicationFactor(self) -> int:
        """Copies of the graph that run at the same time."""
        return self._session.size.replicas

    @property
    def accumulationFactor(self) -> int:
        """Micro-batches of a batch on one of these copies."""
        return self._session.size.accumulation

    def compileAndExport(self, filename: str) -> None:  # type: ignore[override]
        """Compiles the program, and writes it to a file that `loadExecutable` reads.

        Args:
            filename: Path of the file; its folder is made.

        Raises:
            OutOfMemoryException: The program does not fit on the device.
            popart_exception: A node of the model cannot be computed, or the device cannot compile
                offline.
        """
        error = OutOfMemoryError()
        super().compileAndExport(filename, error)
        _raise_unless_successful(error)

    def initAnchorArrays(self) -> dict[str, np.ndarray]:
        """Makes arrays for the results of a step.

        Returns:
            By name of anchor, arrays of the device's types. For `"All"` their shape is that of
            the tensor behind batches per step, accumulation and replicas, of which those that are
            1 are left out; for `"EveryN"` so many batches fewer; else behind replicas only.
        """
        return self._session.anchor_arrays()

    def prepareDevice(self, loadEngine: bool = True) -> None:  # type: ignore[override]
        """Compiles the program for the device.

        Args:
            loadEngine: Whether it may run right away; `loadEngineAndConnectStreams` says so later.

        Raises:
            OutOfMemoryException: The program does not fit on the device.
            popart_exception: A node of the model cannot be computed, or the device is detached.
        """
        error = OutOfMemoryError()
        super().prepareDevice(loadEngine, error)
        _raise_unless_successful(error)


class InferenceSession(_NamedErrors, _InferenceSessionCore):
    """Runs an ONNX model for inference.

    Args:
        fnModel: A serialized model, such as `builder.getModelProto()` gives, or the path of a file.
        dataFlow: What a step takes and returns.
        deviceInfo: The device, which a `DeviceManager` gives.
        inputShapeInfo: Shapes and types of inputs; they go before those of the model.
        patterns: Which rewrites of graphs are allowed. The emulator rewrites by rules of its own,
            and warns of any choice but the default one.
        userOptions: Options of the session, which are copied.

    Raises:
        popart_exception: The model is damaged, has operations that do not exist, an anchor that
            it does not have, or options contradict each other, the model or the device.
        TypeError: An argument is of another type.

    Example:

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
        check_arguments(dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions)
        _InferenceSessionCore.__init__(
            self, fnModel, dataFlow, deviceInfo, inputShapeInfo, userOptions, patterns
        )


class TrainingSession(_NamedErrors, _TrainingSessionCore):
    """Trains an ONNX model.

    Args:
        fnModel: A serialized model, such as `builder.getModelProto()` gives, or the path of a file.
            One that `modelToHost` of such a session has written goes on where that was.
        dataFlow: What a step takes and returns. Besides tensors of the model, anchors may be
            `"Gradient___x"` of each of these, of the loss times its scaling; what the optimizer
            keeps, such as `"Accl___w"`, with momentum also `"AcclToUpdate___w"`, by which weights
            are updated; `"UpdatedVar___w"`; `"Accum___w"`, the sum of the gradients of a batch; and
            the optimizer's numbers, such as `"lossScaling_FLOAT"`. Weights and what is kept are
            as they are after the update of their batch.
        loss: Name of the scalar that becomes less.
        optimizer: `SGD`, `ConstSGD`, `Adam` or `Adaptive`. Floating initialisers that the loss
            depends on are trained.
        deviceInfo: The device, which a `DeviceManager` gives.
        inputShapeInfo: Shapes and types of inputs; they go before those of the model.
        patterns: Which rewrites of graphs are allowed. With `SoftMaxGradDirect`, as by default,
            the gradient of `nllloss` goes past the softmax that makes its probabilities, and so
            does not vanish where these do. Else the emulator rewrites by rules of its own, and
            warns of any choice but the default one.
        userOptions: Options of the session, which are copied.
        name: What programs are called in counters and reports.

    Raises:
        popart_exception: The model is damaged, has operations that do not exist, a loss or an
            anchor that it does not have, or options contradict each other, the model or the device.
        TypeError: An argument is of another type.

    Example:

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
        check_arguments(dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions)
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


def _raise_unless_successful(error: OutOfMemoryError) -> None:
    if not error.isSuccessful():
        raise OutOfMemoryException(error)


def __getattr__(name: str) -> Any:
    raise missing_attribute(__name__, name)
