"""Resets and reads a model's metrics between the executions of its programs."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from ipu_keras.internals.keras.backend import in_stateless_scope
from ipu_keras.internals.keras.training import CompileMetrics
from ipu_keras.keras.extensions.step_function import StepFunction
from ipu_keras.processes.process_collectives import all_reduce

# Modules of the classes whose methods are known: Keras's own.
_KERAS = "keras.src."
# Methods by which a user gives logs that are not the results of all metrics.
_METHODS = ("compute_metrics", "get_metrics_result", "metrics", "test_step", "train_step")
# Methods of a metric that a user may replace on the instance.
_ATTRIBUTES = {"reset_state", "result"}


class ModelMetrics:
    """Resets the metrics of a model, and tells whether a step has just returned their results.

    Keras does both op by op at the beginning and end of an epoch, which takes as long as a step.
    `extension` is the class whose methods the model has, if its own class has no others.
    """

    def __init__(self, model: Any, extension: Any):
        self._model = model
        self._extension = extension
        # Tensors of zeros by device, dtype and shape.
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

    @contextlib.contextmanager
    def of_all_processes(self) -> Iterator[None]:
        """While this is open, the states of metrics are their sums over all processes.

        States of Keras's metrics, such as totals and counts, can be added up.
        """
        variables = [v for metric in _single(self._model.metrics) for v in metric.variables]
        own = [variable.numpy() for variable in variables]
        for variable, total in zip(variables, all_reduce(own), strict=True):
            variable.assign(total)
        try:
            yield
        finally:
            for variable, value in zip(variables, own, strict=True):
                variable.assign(value)

    def means(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the means of logs over all processes, each of which has those of its replicas."""
        size = self._model.distribute_strategy.world.size
        totals = all_reduce([tf.cast(value, tf.float32) for value in logs.values()])
        return {name: total / size for name, total in zip(logs, totals, strict=True)}

    def are_in(self, logs: Any) -> bool:
        """Whether the logs that the last step returned are still the results of all metrics."""
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
        known = getattr(self._extension, method)
        return method in vars(model) or getattr(type(model), method) is not known

    def _is_on_device(self, metric: keras.Metric) -> bool:
        """Whether a metric's state lies on the device, which counts the writes to it."""
        device = self._model.distribute_strategy.device.name
        return all(variable.value.device == device for variable in metric.variables)

    def _set_to_zero(self, variable: tf.Variable) -> None:
        key = variable.device, variable.dtype, tuple(variable.shape)
        if key not in self._zeros:
            with tf.device(variable.device):
                self._zeros[key] = tf.zeros(variable.shape, variable.dtype)
        # `tf.Variable.assign` takes ten times as long.
        tf.raw_ops.AssignVariableOp(resource=variable.handle, value=self._zeros[key])


def _single(metrics: list[keras.Metric]) -> Iterator[keras.Metric]:
    """Yields the metrics, those given to `compile` in place of the one that holds them."""
    for metric in metrics:
        if type(metric) is CompileMetrics:
            yield from metric.metrics
        else:
            yield metric


def _is_of_keras(metric: keras.Metric) -> bool:
    """Whether a metric does what Keras's class does: neither subclassed nor patched."""
    return type(metric).__module__.startswith(_KERAS) and not _ATTRIBUTES & vars(metric).keys()
