"""Training in two parts: gradients of one batch, and the update from those of many batches."""

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
from ipu_keras.ops.collectives import all_reduce_sum, groups_of_process
from ipu_keras.optimizers.accumulator_options import dtype_for

_OPTIMIZER = keras.optimizers.Optimizer


class TrainingParts:
    """Does what `train_step` of a compiled Keras model does, with the weight update apart.

    Accumulators have `accumulator_dtype`: None for that of each variable, a dtype, or a function
    from a variable to one.
    """

    def __init__(self, model: keras.Model, accumulator_dtype: Any = None):
        self._model = model
        self._accumulator_dtype = accumulator_dtype
        # Positions of the weights that the loss depends on, known when `step` has been traced.
        self._present: list[int] = []

    def step(self, data: Any) -> tuple[dict[str, Any], list[tf.Tensor]]:
        """Returns the logs of one batch, and its gradients in the dtypes of the accumulators."""
        model = self._model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True) if takes_training(model) else model(x)
            loss = compute_loss(model, x, y, y_pred, sample_weight=sample_weight, training=True)
            batch_size = tf.shape(next(i for i in tree.flatten(x) if i is not None))[0]
            # Strategies of several processes have Keras divide the loss by the number of replicas.
            count = model.distribute_strategy.num_replicas_in_sync
            shown = loss if count == 1 else loss * tf.cast(count, loss.dtype)
            loss_tracker(model).update_state(shown, sample_weight=batch_size)
            # After the tracker, so that logs show the loss before it is scaled.
            loss = model.optimizer.scale_loss(loss)
        gradients = self._gradients(tape, loss)
        return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight), gradients

    @property
    def trained(self) -> list[Any]:
        """The weights of the gradients that `step` returns, once it has been traced."""
        weights = self._model.trainable_weights
        return [weights[position] for position in self._present]

    def update(self, gradients: Sequence[tf.Tensor]) -> None:
        """Updates the weights from accumulated gradients, in the order in which `step` returns
        them."""
        weights = self._model.trainable_weights
        if not weights:
            return
        # Weights without a gradient are passed with None, so that Keras warns of them.
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
        # Accumulators on an IPU are dense, also for the gradients of lookups.
        return [
            tf.cast(tf.convert_to_tensor(found[k]), dtype_for(weights[k], self._accumulator_dtype))
            for k in self._present
        ]


def summing_gradients(model: keras.Model, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a user's train step whose optimizers add the gradients of all replicas.

    The optimizers are those among the model's attributes.
    """

    def summing_step(data: Any) -> Any:
        optimizers = [value for value in vars(model).values() if isinstance(value, _OPTIMIZER)]
        with contextlib.ExitStack() as stack:
            for optimizer in optimizers:
                stack.enter_context(_summed(optimizer))
            return step(data)

    return summing_step


def _summed(optimizer: keras.Optimizer) -> AbstractContextManager[None]:
    """Makes an optimizer add gradients over replicas first, until the context ends.

    Every way to apply gradients ends in `apply`.
    """
    original = optimizer.apply

    def apply(grads, trainable_variables=None):
        return original([_sum(gradient) for gradient in grads], trainable_variables)

    return replaced(optimizer, "apply", apply)


def _sum(gradient: Any) -> Any:
    if gradient is None:
        return None
    # A strategy of several processes adds up over these.
    return all_reduce_sum(tf.convert_to_tensor(gradient), groups_of_process())


def with_dtype_of_logs(step: Callable[[Any], Any], dtype: Any) -> Callable[[Any], Any]:
    """Returns a step whose logs have the data type in which they are accumulated.

    `dtype` may be `None` for that of each log, a dtype, or a function from a tensor to one.
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
