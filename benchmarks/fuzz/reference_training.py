"""Accumulation and replicas with TensorFlow alone: what the emulated machine is held against."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Batch = tuple[Any, ...]


class ReferenceTraining:
    """Trains a stock model as an IPU does, one batch after another.

    Every replica has its own state and metrics; weights change together, by the
    gradients of all batches of an update. What is read afterwards is the state of the
    first replica, and the metrics of the last one.

    Args:
        model: A compiled model that has been built.
        num_replicas: How many replicas share the batches.
        accumulation: How many batches each replica takes for one update.
        reduction: `"SUM"`, `"MEAN"` or `"RUNNING_MEAN"`, over the accumulated batches.
        jit_compile: Whether XLA compiles the gradients of a batch.
    """

    def __init__(
        self,
        model: keras.Model,
        num_replicas: int,
        accumulation: int,
        reduction: str,
        jit_compile: bool,
    ):
        self._model = model
        self._num_replicas = num_replicas
        self._accumulation = accumulation
        self._reduction = reduction
        self._gradients = tf.function(self._gradients_of_batch, jit_compile=jit_compile)

    def epoch(self, batches: Sequence[Batch]) -> dict[str, np.ndarray]:
        """Trains on the batches and returns the metrics."""
        for metric in self._model.metrics:
            metric.reset_state()
        states: list[list[np.ndarray] | None] = [None] * self._num_replicas
        start = self._state()
        for update in self._updates(batches):
            sums = None
            for replica in range(self._num_replicas):
                own = states[replica]
                self._restore(start if own is None else own)
                given = [
                    self._gradients(*update[step * self._num_replicas + replica])
                    for step in range(self._accumulation)
                ]
                total = self._reduced(given)
                sums = total if sums is None else [a + b for a, b in zip(sums, total, strict=True)]
                states[replica] = self._state()
            self._model.optimizer.apply(sums, self._model.trainable_variables)
        self._restore(states[-1])
        logs = {name: np.array(value) for name, value in self._model.get_metrics_result().items()}
        self._restore(states[0])
        return logs

    def _updates(self, batches: Sequence[Batch]) -> Iterator[Sequence[Batch]]:
        size = self._num_replicas * self._accumulation
        return (batches[first : first + size] for first in range(0, len(batches), size))

    def _reduced(self, given: list[list[tf.Tensor]]) -> list[tf.Tensor]:
        scale = 1.0 if self._reduction == "SUM" else 1.0 / len(given)
        return [
            tf.cast(scale, parts[0].dtype) * tf.add_n(parts) for parts in zip(*given, strict=True)
        ]

    def _gradients_of_batch(self, x, y, weights=None):
        with tf.GradientTape() as tape:
            outputs = self._model(x, training=True)
            loss = self._model.compute_loss(x, y, outputs, weights, training=True)
            scaled = self._model.optimizer.scale_loss(loss)
        # The metric of the loss counts samples, as that of stock Keras does.
        size = tf.shape(tf.nest.flatten(x)[0])[0]
        self._model._loss_tracker.update_state(loss, sample_weight=size)
        self._model.compute_metrics(x, y, outputs, weights)
        variables = self._model.trainable_variables
        gradients = tape.gradient(scaled, [variable.value for variable in variables])
        return [
            tf.zeros_like(variable.value) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, variable in zip(gradients, variables, strict=True)
        ]

    def _own_variables(self) -> list:
        metrics = [variable for metric in self._model.metrics for variable in metric.variables]
        return [*self._model.non_trainable_variables, *metrics]

    def _state(self) -> list[np.ndarray]:
        return [np.array(variable) for variable in self._own_variables()]

    def _restore(self, state: list[np.ndarray]) -> None:
        for variable, value in zip(self._own_variables(), state, strict=True):
            variable.assign(value)
