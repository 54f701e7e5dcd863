"""Trains ONNX models on a device."""

import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.optimizers.optimizer import Optimizer
from ipu_keras.popart.options.patterns import SOFTMAX_GRAD_DIRECT, warn_of_patterns
from ipu_keras.popart.options.prefixes import reservedGradientPrefix
from ipu_keras.popart.options.session_options import warn_of_idle
from ipu_keras.popart.sessions.dataflow import DataFlow
from ipu_keras.popart.sessions.host_reduction import HostReduction
from ipu_keras.popart.sessions.input_shapes import InputShapeInfo
from ipu_keras.popart.sessions.loss_scaler import LossScaler
from ipu_keras.popart.sessions.offline import is_absent
from ipu_keras.popart.sessions.reached import (
    factors_of_products,
    kept_statistics,
    trained_weights,
)
from ipu_keras.popart.sessions.session import Session, no_such_anchor
from ipu_keras.popart.sessions.step_io import IWeightsIO
from ipu_keras.popart.sessions.streams import mode_of
from ipu_keras.popart.sessions.trained_step import TrainedStep
from ipu_keras.popart.sessions.weight_update import WeightUpdate
from ipu_keras.popart.sessions.weights import Weights, check_like
from ipu_keras.program import Accumulation, Program
from ipu_keras.settings.arguments import legible
from ipu_keras.settings.option_warnings import OPTION_WARNINGS


class _TrainingSessionCore(Session):
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

    _trains = True

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
            if not isinstance(optimizer, Optimizer):
                raise TypeError(
                    "`optimizer` must be an SGD, ConstSGD, Adam or Adaptive. Received: "
                    f"optimizer={optimizer!r} of type {type(optimizer).__name__}"
                )
            self._program_name = legible(name)
            self._loss = loss
            self._passes_softmax = patterns.isPatternEnabled(SOFTMAX_GRAD_DIRECT)
            self._optimizer = optimizer.copy()
            self._trained: tuple[str, ...] = ()
            self._loss_scaler: LossScaler | None = None
            self._host_reduction: HostReduction | None = None
            super().__init__(model, dataFlow, deviceInfo, inputShapeInfo, userOptions)
            if deviceInfo.isAttached or is_absent(deviceInfo):
                # Only a trace finds losses and anchors that cannot be, which the constructor has to
                # refuse.
                self._make_sure_of_infos()

    def weightsToHost(self) -> None:
        """Copies the device's weights and the optimizer's state to where `readWeights` reads.

        Raises:
            popart_exception: The device was not prepared.
        """
        self._prepared("weightsToHost")
        self._weights.from_device()

    def readWeights(self, arg0: IWeightsIO) -> None:
        """Fills arrays with the weights that `weightsToHost` has copied.

        Args:
            arg0: A `PyWeightsIO` with the arrays to fill.

        Raises:
            popart_exception: Nothing was copied, there is no such weight, or one has another shape
                or type. Nothing is written.
        """
        self._weights.read(dict(arg0._items()))

    def resetHostWeights(
        self,
        modelProtoOrFilename: bytes | str | os.PathLike[str],
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        super().resetHostWeights(
            modelProtoOrFilename, ignoreWeightsInModelWithoutCorrespondingHostWeight
        )
        # `run` waits for `weightsFromHost`.
        self._weights.are_on_device = False

    def updateOptimizerFromHost(self, arg0: Optimizer) -> None:
        """Takes the numbers of another optimizer, from the next run on. Nothing is compiled.

        Args:
            arg0: An optimizer of the same kind as the session's.

        Raises:
            popart_exception: The optimizer differs in more than numbers that are not constant.
                Nothing is changed.
        """
        self._update.replace(arg0)

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
        if self._host_reduction is None:
            raise popart_exception(
                f"There is no stream {arg0!r} to connect to a callback: there are some with "
                "SessionOptions.hostAllReduce only. Without it replicas reduce their gradients on "
                "the device; read them as anchors 'Gradient___<weight>'."
            )
        self._host_reduction.connect(arg0, arg1, arg2)

    def getHostReduceStreamIds(self) -> list[str]:
        """Returns the names of the streams that `hostAllReduce` puts between device and host.

        Returns:
            For each weight `"gradientStoreStream__Gradient___<weight>"` and
            `"gradientLoadStream__Gradient___<weight>"`, or with `hostWeightUpdate`
            `"weightLoadStream__<weight>"` in place of the latter. An empty list without
            `hostAllReduce`.
        """
        return [] if self._host_reduction is None else self._host_reduction.streams

    def getIr(self) -> Any:
        """Would return PopART's intermediate representation, which the emulator has not.

        Raises:
            popart_exception: Whenever it is called.
        """
        raise popart_exception(
            "There is no popart.Ir: models become TensorFlow functions. getSerializedGraph returns "
            "the operations of the prepared program as JSON."
        )

    def _program(self) -> Program:
        step = self._step()
        returned = map(self._flow.art, self._anchors_of(updates=True))
        return replace(
            super()._program(),
            step=step,
            update=step.update,
            update_modes=tuple(map(mode_of, returned)),
            accumulation=Accumulation(count=self._size.accumulation),
            # Steps may begin op by op, as many as pay. XLA takes over after a write of weights,
            # which inference has none of, so there it would never begin.
            first_steps=None,
        )

    def _step(self) -> TrainedStep:
        return TrainedStep(
            **self._step_arguments(),
            loss=self._loss,
            trained=self._trained,
            weight_update=self._update,
            updated=self._updated,
            of_updates=tuple(self._anchors_of(updates=True)),
            passes_softmax=self._passes_softmax,
            loss_scaler=self._loss_scaler,
            host_reduction=self._host_reduction_of_device(),
        )

    def _made_weights(self, arrays: Mapping[str, np.ndarray]) -> Weights:
        graph = self._loaded.model.graph
        if self._loss not in graph.tensor_names():
            raise popart_exception(
                f"Could not find loss tensor '{self._loss}' in main graph tensors. There are: "
                f"{', '.join(graph.tensor_names())}"
            )
        self._trained = trained_weights(graph, self._loss, arrays)
        self._optimizer.check_weights(self._trained)
        options = self._configuration
        self._loss_scaler = self._made_loss_scaler()
        trained = {name: arrays[name] for name in self._trained}
        if options.options.hostAllReduce:
            self._host_reduction = HostReduction(
                trained, options.num_replicas, options.options.hostWeightUpdate
            )
        self._update = WeightUpdate(
            self._optimizer,
            options.factors,
            options.options.enableGradientAccumulation,
            trained,
            self._loss_scaler,
            self._host_reduction_of_device(),
        )
        states = self._update.states
        for name, state in states.items():
            if name in arrays:
                check_like(name, arrays[name], state)
        statistics = {name: name for _, name, _ in kept_statistics(graph)}
        return Weights(
            {**states, **arrays}, are_known=False, owners={**statistics, **self._update.owners}
        )

    def _made_loss_scaler(self) -> LossScaler | None:
        settings = self._configuration.options.automaticLossScalingSettings
        if not settings.enabled:
            return None
        if self._optimizer.loss_scaling.isConst():
            raise popart_exception(
                "With automatic loss scaling the optimizer must have non-const loss scaling: give "
                'it "lossScaling": (number, False), or leave '
                "SessionOptions.automaticLossScalingSettings disabled. Received: "
                f"lossScaling={self._optimizer.loss_scaling}"
            )
        tracked = factors_of_products(self._loaded.model.graph, self._loss, self._trained)
        if not tracked:
            raise popart_exception(
                "Automatic loss scaling counts the gradients of what matrix products and "
                f"convolutions multiply. Received: a model in which the loss {self._loss!r} "
                "depends on none that follows from trained weights. Leave "
                "SessionOptions.automaticLossScalingSettings disabled."
            )
        edge, threshold = settings.binEdgeLocation, settings.thresholdUpperCountProportion
        return LossScaler(edge, threshold, tracked)

    def _check_anchors(self) -> None:
        names = self._loaded.model.graph.tensor_names()
        known = {*names, *self._update.infos, *self._update.scalars.names}
        known.update(reservedGradientPrefix() + name for name in names)
        for name in self._flow.anchors():
            if name not in known:
                others = [*self._update.infos, *self._update.scalars.names]
                raise no_such_anchor(name, [*names, *(n for n in others if n not in names)])

    def _check_weights(self) -> None:
        if len(self._weights) and not self._weights.are_on_device:
            raise popart_exception(
                "Must call weightsFromHost before run as the model has initializers (and the "
                "session has been created in training mode). Call it after prepareDevice, and "
                "again after resetHostWeights."
            )
        if self._host_reduction is not None:
            self._host_reduction.check_connected(self._updated)

    def _host_reduction_of_device(self) -> Any:
        """Returns the host reduction as steps keep it.

        Devices keep steps, and must not keep callbacks, which may keep the device.
        """
        return None if self._host_reduction is None else weakref.proxy(self._host_reduction)

    def _anchors_of(self, *, updates: bool) -> list[str]:
        results = self._update.infos
        return [name for name in self._flow.anchors() if (name in results) == updates]

    def _more_content(self) -> list[Any]:
        return [self._loss, self._passes_softmax, self._update.content]

    def _place(self, device: str) -> None:
        super()._place(device)
        self._update.scalars.place(device, self._device.num_attachments)
