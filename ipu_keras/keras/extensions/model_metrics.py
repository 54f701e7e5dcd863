"""The metrics of a model, between the executions of its programs."""

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from ipu_keras.internals.keras.backend import in_stateless_scope
from ipu_keras.internals.keras.training import CompileMetrics, TensorFlowTrainer
from ipu_keras.keras.extensions.step_function import StepFunction

# What the classes are from that Keras has itself.
_KERAS = "keras.src."
# What a user may override to have other logs than the results of all metrics.
_METHODS = ("compute_metrics", "get_metrics_result", "metrics", "test_step", "train_step")
# What a user may set of a metric.
_ATTRIBUTES = {"reset_state", "result"}


class ModelMetrics:
    """Resets the metrics of a model, and tells whether they are what a step has returned.

    Keras computes op by op where it begins and ends an epoch, which takes as long as a step.

    Args:
        model: The model.
    """

    def __init__(self, model: Any):
        self._model = model
        # By device, dtype and shape.
        self._zeros: dict[tuple, tf.Tensor] = {}

    def reset(self) -> None:
        """Resets all metrics, as `keras.Model.reset_metrics` does."""
        at_once = tf.executing_eagerly() and not in_stateless_scope()
        for metric in _single(self._model.metrics):
            if at_once and _is_of_keras(metric):
                # All of Keras's own set all of their variables to zero.
                for variable in metric.variables:
                    self._set_to_zero(variable.value)
            else:
                metric.reset_state()

    def are_in(self, logs: Any) -> bool:
        """Whether what the last step has logged are the results of all metrics still.

        Args:
            logs: What the last step returned.
        """
        functions = self._model.train_function, self._model.test_function
        return (
            any(isinstance(made, StepFunction) and made.is_last(logs) for made in functions)
            and not any(map(self._overrides, _METHODS))
            and all(
                _is_of_keras(metric) and self._is_on_device(metric)
                for metric in _single(self._model.metrics)
            )
        )

    def _overrides(self, method: str) -> bool:
        model = self._model
        of_keras = getattr(TensorFlowTrainer, method)
        return method in vars(model) or getattr(type(model), method) is not of_keras

    def _is_on_device(self, metric: keras.Metric) -> bool:
        """Whether the device, which counts what is written on it, has the state of a metric."""
        device = self._model.distribute_strategy.device.name
        return all(variable.value.device == device for variable in metric.variables)

    def _set_to_zero(self, variable: tf.Variable) -> None:
        key = variable.device, variable.dtype, tuple(variable.shape)
        if key not in self._zeros:
            with tf.device(variable.device):
                self._zeros[key] = tf.zeros(variable.shape, variable.dtype)
        # Its method takes ten times as long.
        tf.raw_ops.AssignVariableOp(resource=variable.handle, value=self._zeros[key])


def _single(metrics: list[keras.Metric]) -> Iterator[keras.Metric]:
    """Metrics, with those that `compile` was given in place of the one that has them."""
    for metric in metrics:
        if type(metric) is CompileMetrics:
            yield from metric.metrics
        else:
            yield metric


def _is_of_keras(metric: keras.Metric) -> bool:
    """Whether it is known what the methods of a metric do."""
    return type(metric).__module__.startswith(_KERAS) and not _ATTRIBUTES & vars(metric).keys()
