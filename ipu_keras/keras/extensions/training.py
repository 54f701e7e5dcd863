"""Training in two parts: the gradients of a batch, and the update from those of many batches."""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf
from keras import tree

from ipu_keras.internals.keras.training import compute_loss, loss_tracker, takes_training
from ipu_keras.keras.extensions.replaced_attributes import replaced
from ipu_keras.ops.cross_replica_ops import cross_replica_sum
from ipu_keras.optimizers.accumulator_options import dtype_for

_OPTIMIZER = keras.optimizers.Optimizer


class TrainingParts:
    """What `train_step` of a Keras model does, with the weight update apart.

    Args:
        model: A compiled model.
        accumulator_dtype: Of the accumulated gradients: `None` for that of each variable, a
            dtype, or a function from a variable to its dtype.
    """

    def __init__(self, model: keras.Model, accumulator_dtype: Any = None):
        self._model = model
        self._accumulator_dtype = accumulator_dtype
        # Which weights the loss depends on, by position; known when `step` has been traced.
        self._present: list[int] = []

    def step(self, data: Any) -> tuple[dict[str, Any], list[tf.Tensor]]:
        """Computes the gradients of one batch.

        Args:
            data: As of `train_step`.

        Returns:
            The logs, and the gradients in the dtypes of the accumulators.
        """
        model = self._model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True) if takes_training(model) else model(x)
            loss = compute_loss(model, x, y, y_pred, sample_weight=sample_weight, training=True)
            batch_size = tf.shape(next(i for i in tree.flatten(x) if i is not None))[0]
            loss_tracker(model).update_state(loss, sample_weight=batch_size)
            loss = model.optimizer.scale_loss(loss)
        gradients = self._gradients(tape, loss)
        return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight), gradients

    @property
    def trained(self) -> list[Any]:
        """The weights of the gradients that `step` returns, once it has been traced."""
        weights = self._model.trainable_weights
        return [weights[position] for position in self._present]

    def update(self, gradients: Sequence[tf.Tensor]) -> None:
        """Updates the weights.

        Args:
            gradients: Accumulated ones, in the order of those that `step` returns.
        """
        weights = self._model.trainable_weights
        if not weights:
            return
        # Keras warns of weights without a gradient.
        given: list[Any] = [None] * len(weights)
        for position, gradient in zip(self._present, gradients, strict=True):
            given[position] = tf.cast(gradient, weights[position].dtype)
        self._model.optimizer.apply_gradients(zip(given, weights, strict=True))

    def _gradients(self, tape: tf.GradientTape, loss: tf.Tensor) -> list[tf.Tensor]:
        weights = self._model.trainable_weights
        if not weights:
            warnings.warn("The model does not have any trainable weights.", stacklevel=2)
        found = tape.gradient(loss, weights)
        self._present = [k for k, gradient in enumerate(found) if gradient is not None]
        # As on an IPU, accumulators are dense also for the gradients of lookups.
        return [
            tf.cast(tf.convert_to_tensor(found[k]), dtype_for(weights[k], self._accumulator_dtype))
            for k in self._present
        ]


def summing_gradients(model: keras.Model, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A train step of the user's own, whose optimizers add the gradients of all replicas.

    Args:
        model: Its attributes may be further optimizers.
        step: Its train step.
    """

    def summing_step(data: Any) -> Any:
        optimizers = [value for value in vars(model).values() if isinstance(value, _OPTIMIZER)]
        with contextlib.ExitStack() as stack:
            for optimizer in optimizers:
                stack.enter_context(_summed(optimizer))
            return step(data)

    return summing_step


def _summed(optimizer: keras.Optimizer) -> AbstractContextManager[None]:
    """Has an optimizer add gradients over replicas first.

    Every way to apply gradients ends in `apply`.
    """
    original = optimizer.apply

    def apply(grads, trainable_variables=None):
        return original([_sum(gradient) for gradient in grads], trainable_variables)

    return replaced(optimizer, "apply", apply)


def _sum(gradient: Any) -> Any:
    if gradient is None:
        return None
    return cross_replica_sum(tf.convert_to_tensor(gradient))


def with_dtype_of_logs(step: Callable[[Any], Any], dtype: Any) -> Callable[[Any], Any]:
    """A step whose logs, which are accumulated, have the data type of the accumulators.

    Args:
        step: Returns logs, alone or with gradients.
        dtype: `None` for that of each, a dtype, or a function from a tensor to one.
    """

    def cast(value: tf.Tensor) -> tf.Tensor:
        return tf.cast(value, dtype_for(value, dtype))

    def casting_step(data: Any) -> Any:
        returned = step(data)
        if isinstance(returned, tuple):
            logs, gradients = returned
            return tf.nest.map_structure(cast, logs), gradients
        return tf.nest.map_structure(cast, returned)

    return casting_step
