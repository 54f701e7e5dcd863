"""The training session under the names of PopART's bindings."""

import os
from collections.abc import Callable
from typing import Any

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.optimizers.optimizer import Optimizer
from ipu_keras.popart.options.patterns import warn_of_patterns
from ipu_keras.popart.options.session_options import warn_of_idle
from ipu_keras.popart.sessions.dataflow import DataFlow
from ipu_keras.popart.sessions.documented import SessionMethods
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo
from ipu_keras.popart.sessions.step_io import IWeightsIO
from ipu_keras.popart.sessions.trained import TrainedSession
from ipu_keras.settings.option_warnings import OPTION_WARNINGS


class _TrainingSessionCore(SessionMethods):
    """Trains a model on a device.

    Args:
        model: A serialized model, or the path of a file.
        dataFlow: How many batches a step takes, and which tensors it returns.
        loss: Name of the scalar tensor that training makes less.
        optimizer: How weights are trained, such as `popart.SGD`.
        deviceInfo: The device that the model runs on.
        inputShapeInfo: Shapes of inputs that the model leaves open.
        userOptions: Options of the session, which are copied.
        patterns: Which rewrites of graphs are allowed. `SoftMaxGradDirect` counts; else the
            emulator rewrites by rules of its own, and warns of a choice.
        name: What programs are called in counters and reports.

    Raises:
        popart_exception: The model cannot be trained with these options on this device.
    """

    _session: TrainedSession

    def __init__(
        self,
        model: bytes | str | os.PathLike[str],
        dataFlow: DataFlow,
        loss: str,
        optimizer: Optimizer,
        deviceInfo: Any,
        inputShapeInfo: InputShapeInfo,
        userOptions: Any,
        patterns: Any,
        name: str = "training",
    ):
        with OPTION_WARNINGS.together(stacklevel=3):
            warn_of_idle(userOptions)
            warn_of_patterns(patterns, trains=True)
            session = TrainedSession(
                model,
                dataFlow,
                loss,
                optimizer,
                deviceInfo,
                inputShapeInfo,
                userOptions,
                patterns,
                name,
            )
        super().__init__(session)

    def weightsToHost(self) -> None:
        """Copies the device's weights and the optimizer's state to where `readWeights` reads.

        Raises:
            popart_exception: The device was not prepared.
        """
        self._session.weights_to_host()

    def readWeights(self, arg0: IWeightsIO) -> None:
        """Fills arrays with the weights that `weightsToHost` has copied.

        Args:
            arg0: A `PyWeightsIO` with the arrays to fill.

        Raises:
            popart_exception: Nothing was copied, there is no such weight, or one has another shape
                or type. Nothing is written.
        """
        self._session.read_weights(arg0)

    def updateOptimizerFromHost(self, arg0: Optimizer) -> None:
        """Takes the numbers of another optimizer, from the next run on. Nothing is compiled.

        Args:
            arg0: An optimizer of the same kind as the session's.

        Raises:
            popart_exception: The optimizer differs in more than numbers that are not constant.
                Nothing is changed.
        """
        self._session.update_optimizer(arg0)

    def connectStreamToCallback(self, arg0: str, arg1: Callable[[Any], None], arg2: int) -> None:
        """Connects a stream of gradients or weights to a function, for `hostAllReduce`.

        After each batch, callbacks of streams that store gradients are called for all weights
        and replicas, and then those of streams that load; all of them must be connected before
        `run`. An exception in one ends the run as a `poplar_exception`, before weights are
        updated.

        Args:
            arg0: A name that `getHostReduceStreamIds` returns.
            arg1: A function that is called with a capsule, a `PyCapsule` without a name, that
                has the address of the stream's memory: as many elements as the weight has, of
                its type, in the order of the model. A stream that stores has the gradient there,
                of the scaled loss; to one that loads, the callback writes what the device goes
                on with: the reduced gradient, or with `hostWeightUpdate` the weight. The memory
                stays where it is until the stream is connected again.
            arg2: The number of the replica. Replicas have to be given the same numbers.

        Raises:
            popart_exception: There is no such stream, or no such replica.
            TypeError: `arg1` cannot be called.

        Example:

        >>> import ctypes, numpy as np
        >>> address_of = ctypes.pythonapi.PyCapsule_GetPointer
        >>> address_of.argtypes = ctypes.py_object, ctypes.c_char_p
        >>> address_of.restype = ctypes.c_void_p
        >>> def array_of(capsule, shape):
        ...     memory = ctypes.cast(address_of(capsule, None), ctypes.POINTER(ctypes.c_float))
        ...     return np.ctypeslib.as_array(memory, shape)
        """
        self._session.connect(arg0, arg1, arg2)

    def getHostReduceStreamIds(self) -> list[str]:
        """Returns the names of the streams that `hostAllReduce` puts between device and host.

        Returns:
            For each weight `"gradientStoreStream__Gradient___<weight>"` and
            `"gradientLoadStream__Gradient___<weight>"`, or with `hostWeightUpdate`
            `"weightLoadStream__<weight>"` in place of the latter. An empty list without
            `hostAllReduce`.
        """
        return self._session.host_streams

    def getIr(self) -> Any:
        """Would return PopART's intermediate representation, which the emulator has not.

        Raises:
            popart_exception: Whenever it is called.
        """
        raise popart_exception(
            "There is no popart.Ir: models become TensorFlow functions. getSerializedGraph returns "
            "the operations of the prepared program as JSON."
        )
