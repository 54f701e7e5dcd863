"""Sessions that train a model, under the names that PopART's bindings have."""

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
    """A model on a device, for training.

    Args:
        model: A serialized model, or the path of a file.
        dataFlow: What a step takes and returns.
        loss: Name of the scalar that becomes less.
        optimizer: How weights are trained.
        deviceInfo: The device.
        inputShapeInfo: Shapes of inputs that the model leaves open.
        userOptions: Options.
        patterns: Which rewrites of graphs are allowed. `SoftMaxGradDirect` counts; else the
            emulator rewrites by rules of its own, and warns of a choice.
        name: What programs are called in counters and reports.

    Raises:
        popart_exception: The model cannot be trained so.
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
        """Copies the device's weights, and what the optimizer keeps, to where `readWeights` reads.

        Raises:
            popart_exception: Nothing was prepared.
        """
        self._session.weights_to_host()

    def readWeights(self, arg0: IWeightsIO) -> None:
        """Fills arrays with the weights that `weightsToHost` has copied.

        Args:
            arg0: A `PyWeightsIO` with them.

        Raises:
            popart_exception: Nothing was copied, there is no such weight, or one has another shape
                or type. Nothing is written.
        """
        self._session.read_weights(arg0)

    def updateOptimizerFromHost(self, arg0: Optimizer) -> None:
        """Takes the numbers of another optimizer, from the next run on. Nothing is compiled.

        Args:
            arg0: It.

        Raises:
            popart_exception: It differs in more than numbers that are not constant. Nothing is
                changed.
        """
        self._session.update_optimizer(arg0)

    def connectStreamToCallback(self, arg0: str, arg1: Callable[[Any], None], arg2: int) -> None:
        """Would connect a stream of gradients or weights to the host; there are none.

        Args:
            arg0: Of `getHostReduceStreamIds`.
            arg1: What would be called.
            arg2: For which replica.

        Raises:
            popart_exception: Always.
        """
        raise popart_exception(
            f"There is no stream {arg0!r} to connect to a callback: there are some with "
            "SessionOptions.hostAllReduce only, which is not available. Replicas reduce their "
            "gradients on the device; read them as anchors 'Gradient___<weight>'."
        )

    def getHostReduceStreamIds(self) -> list[str]:
        """Streams of gradients and weights to the host: none, as `hostAllReduce` is not available.

        Returns:
            An empty list.
        """
        return []

    def getIr(self) -> Any:
        """Would return PopART's intermediate representation; there is none.

        Raises:
            popart_exception: Always.
        """
        raise popart_exception(
            "There is no popart.Ir: models become TensorFlow functions. getSerializedGraph returns "
            "the operations of the prepared program as JSON."
        )
