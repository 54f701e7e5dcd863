"""The methods of all sessions under the names of PopART's bindings."""

import contextlib
import json
import os
from collections.abc import Iterator

import tensorflow as tf

from ipu_keras.popart.exceptions import OutOfMemoryError
from ipu_keras.popart.sessions.cbor import as_cbor
from ipu_keras.popart.sessions.session import Session
from ipu_keras.popart.sessions.step_io import IStepIO, IWeightsIO
from ipu_keras.popart.tensorinfo import TensorInfo
from ipu_keras.report import Report


class SessionMethods:
    """The methods that sessions for inference and for training have in common.

    Args:
        session: The session that the methods call.
    """

    def __init__(self, session: Session):
        self._session = session

    def prepareDevice(self, loadEngine: bool = True, err: OutOfMemoryError | None = None) -> None:
        """Compiles the program for the device.

        Args:
            loadEngine: Whether it may run right away; `loadEngineAndConnectStreams` says so later.
            err: Gets the error if the program does not fit, which is raised otherwise.

        Raises:
            popart_exception: A node of the model cannot be computed, or the device is detached.
        """
        with _noting(err):
            self._session.prepare(loads=loadEngine)

    def loadEngineAndConnectStreams(self) -> None:
        """Lets the prepared program run, after `prepareDevice(loadEngine=False)`."""
        self._session.load()

    def run(self, stepio: IStepIO, debugName: str = "") -> None:
        """Runs a step.

        Args:
            stepio: Gives the step's inputs, and takes its results.
            debugName: A name of the step in logs; ignored here.

        Raises:
            popart_exception: Nothing was prepared, the device is detached, or an array does not
                fit. Nothing has run then.
        """
        self._session.run(stepio)

    def weightsFromHost(self) -> None:
        """Gives the device the host's weights."""
        self._session.weights_to_device()

    def writeWeights(self, arg0: IWeightsIO) -> None:
        """Changes the host's weights; `weightsFromHost` gives them to the device.

        Args:
            arg0: A `PyWeightsIO` with them.

        Raises:
            popart_exception: `constantWeights` is set, there is no such weight, or one has another
                shape or type. Nothing is changed.
        """
        self._session.write_weights(arg0)

    def resetHostWeights(
        self,
        modelProtoOrFilename: bytes | str | os.PathLike[str],
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Changes the host's weights to those of a model; `weightsFromHost` follows.

        Args:
            modelProtoOrFilename: A serialized model, or the path of a file, that differs from the
                session's in weights only.
            ignoreWeightsInModelWithoutCorrespondingHostWeight: Whether it may have others.

        Raises:
            popart_exception: `constantWeights` is set, or the weights do not fit. Nothing is
                changed.
        """
        self._session.reset_weights(
            modelProtoOrFilename, ignores_others=ignoreWeightsInModelWithoutCorrespondingHostWeight
        )

    def modelToHost(self, arg0: str) -> None:
        """Writes the model, with the weights as they are, to a file.

        The weights are the host's from then on, too: `readWeights` and `weightsFromHost` go on
        from them.

        Args:
            arg0: The path of the file, which is replaced in one piece.
        """
        self._session.written_model.save(arg0)

    def updateExternallySavedTensorLocations(self, arg0: str, arg1: str) -> None:
        """Makes `modelToHost` write weights that came from one external file into another.

        Args:
            arg0: The file that they came from, as the model names it.
            arg1: The path of the other file, which must not exist.

        Raises:
            popart_exception: No weight came from that file, or the other exists.
        """
        self._session.written_model.move_external(arg0, arg1)

    def getInfo(self, arg0: str) -> TensorInfo:
        """Returns shape and type of a tensor of the main graph.

        Args:
            arg0: The name of the tensor.

        Raises:
            popart_exception: There is no such tensor.
        """
        return self._session.info(arg0)

    def setRandomSeed(self, seedValue: int) -> None:
        """Makes random operations begin anew with a seed.

        Args:
            seedValue: Any integer; the lowest 31 bits count.
        """
        self._session.random_seeds.set_seed(seedValue)

    def getRNGState(self) -> list[int]:
        """Returns the state of random operations, for `setRNGState`.

        Raises:
            popart_exception: `enableLoadAndOffloadRNGState` is not set.
        """
        return self._session.random_seeds.state()

    def setRNGState(self, rngValue: list[int]) -> None:
        """Makes random operations go on from where another session was.

        Args:
            rngValue: The list that `getRNGState` returned.

        Raises:
            popart_exception: `enableLoadAndOffloadRNGState` is not set, or it is no such state.
        """
        self._session.random_seeds.set_state(rngValue)

    def getCycleCount(self, id: str = "") -> int:
        """Returns the modelled cycles of a step.

        Args:
            id: Name of a counter; there is one, `""`.

        Raises:
            popart_exception: Nothing has run, or `instrumentWithHardwareCycleCounter` is not set.
        """
        return self._session.cycle_count(id)

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """Returns what the program would cost, as text.

        Args:
            resetProfile: Has no effect: reports are made of the model, which counts nothing.

        Raises:
            popart_exception: The device was not prepared.
        """
        return str(self._session.report())

    def getReport(self) -> Report:
        """Returns what the program would cost, as this package's `Report`.

        Raises:
            popart_exception: The device was not prepared.
        """
        return self._session.report()

    def getGraphReport(self, useCbor: bool = False) -> bytes:
        """Returns what the program would cost, as JSON.

        Args:
            useCbor: Whether to return CBOR, which says the same in fewer bytes.

        Raises:
            popart_exception: The device was not prepared.
        """
        return _encoded(self._session.report().to_json(), useCbor)

    def getExecutionReport(self, useCbor: bool = False, resetProfile: bool = True) -> bytes:
        """Returns what runs when, as JSON in the form of Chrome's traces.

        Args:
            useCbor: Whether to return CBOR, which says the same in fewer bytes.
            resetProfile: Has no effect: reports are made of the model, which counts nothing.

        Raises:
            popart_exception: The device was not prepared.
        """
        return _encoded(self._session.report().to_chrome_trace(), useCbor)

    def getSerializedGraph(self) -> bytes:
        """Returns the operations of a step as JSON: names, kinds, inputs, shapes and types.

        Raises:
            popart_exception: The device was not prepared.
        """
        return self._session.serialized_graph()

    def compileAndExport(self, filename: str, err: OutOfMemoryError | None = None) -> None:
        """Compiles the program, and writes it to a file that `loadExecutable` reads.

        Args:
            filename: Path of the file; its folder is made.
            err: Gets the error if the program does not fit, which is raised otherwise.

        Raises:
            popart_exception: The device cannot compile offline, or a node of the model cannot be
                computed.
        """
        with _noting(err):
            self._session.export(filename)

    def loadExecutable(self, filename: str) -> None:
        """Reads what `compileAndExport` has written, which `prepareDevice` then uses.

        Args:
            filename: Path of the file.

        Raises:
            popart_exception: There is no such file, or it is of another model or of other options.
        """
        self._session.load_exported(filename)


@contextlib.contextmanager
def _noting(found: OutOfMemoryError | None) -> Iterator[None]:
    """Stores the error of a program that does not fit in `found`, if there is one."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        if found is None:
            raise
        found.fail(error.message, error.message)


def _encoded(text: str, uses_cbor: bool) -> bytes:
    return as_cbor(json.loads(text)) if uses_cbor else text.encode()
