"""Trains ONNX models on a device; names of PopART's bindings are in `training`."""

import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.optimizers.optimizer import Optimizer
from ipu_keras.popart.options.patterns import SOFTMAX_GRAD_DIRECT, Patterns
from ipu_keras.popart.options.prefixes import reservedGradientPrefix
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


class TrainedSession(Session):
    """A model that is trained on a device.

    Raises a `popart_exception` if the model cannot be trained so.

    Args:
        model: A serialized model, or the path of a file. Initialisers named like the optimizer's
            state are what the optimizer goes on with.
        patterns: Only `SoftMaxGradDirect` has an effect.
        name: What programs are called in counters and reports.
    """

    _trains = True

    def __init__(
        self,
        model: bytes | str | os.PathLike[str],
        flow: DataFlow,
        loss: str,
        optimizer: Optimizer,
        device: Any,
        infos: InputShapeInfo,
        options: Any,
        patterns: Patterns,
        name: str = "training",
    ):
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
        super().__init__(model, flow, device, infos, options)
        if device.isAttached or is_absent(device):
            # Only a trace finds losses and anchors that cannot be, which the constructor has to
            # refuse.
            self._make_sure_of_infos()

    def weights_to_host(self) -> None:
        """Fetches the device's weights, for `read_weights`."""
        self._prepared("weightsToHost")
        self._weights.from_device()

    def read_weights(self, weights_io: IWeightsIO) -> None:
        """Fills arrays with the weights that were fetched.

        Raises a `popart_exception` if nothing was fetched, or an array fits no weight.
        """
        self._weights.read(dict(weights_io._items()))

    def reset_weights(self, model: bytes | str | os.PathLike[str], *, ignores_others: bool) -> None:
        """Changes the host's weights to a model's; `run` then waits for `weights_to_device`."""
        super().reset_weights(model, ignores_others=ignores_others)
        self._weights.are_on_device = False

    def update_optimizer(self, optimizer: Optimizer) -> None:
        """Takes the numbers of another optimizer, from the next run on.

        Raises a `popart_exception` if it differs in more than numbers that are not constant.
        """
        self._update.replace(optimizer)

    @property
    def host_streams(self) -> list[str]:
        return [] if self._host_reduction is None else self._host_reduction.streams

    def connect(self, stream: str, callback: Callable[[Any], None], replica: int) -> None:
        """Connects a stream of a replica to a callback, which takes a capsule with an address.

        Raises a `popart_exception` if there is no such stream or replica.
        """
        if self._host_reduction is None:
            raise popart_exception(
                f"There is no stream {stream!r} to connect to a callback: there are some with "
                "SessionOptions.hostAllReduce only. Without it replicas reduce their gradients on "
                "the device; read them as anchors 'Gradient___<weight>'."
            )
        self._host_reduction.connect(stream, callback, replica)

    def _program(self) -> Program:
        step = self._step()
        returned = map(self.flow.art, self._anchors_of(updates=True))
        return replace(
            super()._program(),
            step=step,
            update=step.update,
            update_modes=tuple(map(mode_of, returned)),
            accumulation=Accumulation(count=self.size.accumulation),
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
        self._trained = trained_weights(graph, self._loss)
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
        tracked = factors_of_products(self._loaded.model.graph, self._loss)
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
        for name in self.flow.anchors():
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
        return [name for name in self.flow.anchors() if (name in results) == updates]

    def _more_content(self) -> list[Any]:
        return [self._loss, self._passes_softmax, self._update.content]

    def _place(self, device: str) -> None:
        super()._place(device)
        self._update.scalars.place(device, self._device.num_attachments)
