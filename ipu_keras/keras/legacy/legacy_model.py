"""The base class of the models of `tensorflow.python.ipu.keras`."""

import functools
from typing import Any, NoReturn

from ipu_keras.keras.extensions.accumulation_options import AccumulationOptions
from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.keras.legacy.legacy_on_ipu import LegacyOnIpu
from ipu_keras.ops.argument_checks import integer_in, received
from ipu_keras.optimizers.accumulator_options import dtype_choice
from ipu_keras.settings.arguments import noted


class _InConstructor:
    """Stands for a method of `keras.ipu`'s models whose options a legacy constructor takes.

    Reading it raises an `AttributeError`, so that `hasattr` says that there is no such method.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__} has no `{self._name}`, which models of `keras.ipu` have. Pass its "
            f"options to the constructor of {owner.__name__}, or use a model of `keras.ipu`.",
            name=self._name,
            obj=instance,
        )


class LegacyModel(ModelExtension):
    """A model that runs by `fit`, `evaluate` and `predict` only, an epoch at a time.

    It is a base before any class of Keras's, since what it refuses are Keras's own methods.
    """

    set_asynchronous_callbacks = _InConstructor()
    set_gradient_accumulation_options = _InConstructor()
    set_pipelining_options = _InConstructor()
    set_pipeline_stage_assignment = _InConstructor()
    reset_pipeline_stage_assignment = _InConstructor()

    _ipu = functools.cached_property(lambda model: LegacyOnIpu(model, LegacyModel))

    def __call__(self, *args, **kwargs):
        """Raises a ValueError unless one of the model's programs calls."""
        if not self._ipu.is_called_by_program:
            _refuse_call(self)
        return super().__call__(*args, **kwargs)

    def compile(self, optimizer="rmsprop", loss=None, **kwargs) -> None:
        """Configures training as `keras.Model.compile` does.

        Args:
            optimizer: Name of an optimizer, or an optimizer.
            loss: Name of a loss, a loss, or a structure of these.
            **kwargs: Further arguments of `keras.Model.compile`. `steps_per_execution` can only
                be 1, the default: all steps of an epoch are one execution.

        Raises:
            ValueError: `steps_per_execution` is not 1.
        """
        given = kwargs.get("steps_per_execution", 1)
        if given != 1:
            raise ValueError(
                f"{type(self).__name__} has no `steps_per_execution`: it runs all steps of an "
                f"epoch in one execution. Leave it out. Received: steps_per_execution={given!r}"
            )
        super().compile(optimizer, loss, **kwargs)

    def evaluate(self, *args, **kwargs):
        """Evaluates on the IPU device, with the arguments of `keras.Model.evaluate`.

        Args:
            *args: Arguments of `keras.Model.evaluate`, in its order.
            **kwargs: Arguments of `keras.Model.evaluate` by name.

        Returns:
            A list of the loss and the metrics, also if there are none; with `return_dict=True` a
            dictionary.
        """
        results = super().evaluate(*args, **kwargs)
        return results if isinstance(results, dict | list) else [results]

    def train_on_batch(self, *args, **kwargs) -> NoReturn:
        """Raises a ValueError: a step may take several batches."""
        _refuse_call(self)

    def test_on_batch(self, *args, **kwargs) -> NoReturn:
        """Raises a ValueError, like `train_on_batch`."""
        _refuse_call(self)

    def predict_on_batch(self, *args, **kwargs) -> NoReturn:
        """Raises a ValueError, like `train_on_batch`."""
        _refuse_call(self)

    def save(self, *args, **kwargs) -> NoReturn:
        """Raises a NotImplementedError; `save_weights` saves the weights."""
        _refuse_to_save(self)

    def get_config(self) -> NoReturn:
        """Raises a NotImplementedError, since ways to save a model besides `save` ask for its
        config."""
        _refuse_to_save(self)

    def __reduce__(self) -> NoReturn:
        # Pickling would save the model.
        _refuse_to_save(self)

    def _symbolic_build(self, *args, **kwargs):
        with self._ipu.called_by_program():
            return super()._symbolic_build(*args, **kwargs)


def _refuse_call(model: LegacyModel) -> NoReturn:
    raise noted(
        ValueError(
            f"{type(model).__name__} can only be called through the `fit`, `evaluate` or "
            "`predict` interfaces."
        ),
        "For a training loop of your own, or as a part of another model, use a `keras.Model`.",
    )


def _refuse_to_save(model: LegacyModel) -> NoReturn:
    raise noted(
        NotImplementedError("IPU Keras models do not support the `save` interface."),
        "Save the weights with `save_weights`, and load them into a model made by the same "
        f"code. Received: {type(model).__name__} {model.name}",
    )


def checked_count(count: Any) -> int:
    """Returns a count of accumulated batches, or raises a `ValueError` if it is not positive."""
    number = integer_in(count)
    if number is not None and number < 0:
        raise noted(
            ValueError("gradient_accumulation_count must be >= 0."),
            "It is how many batches each replica takes for a weight update: give 1 or more. "
            f"Received: {number}",
        )
    # The documented error for negative counts says ">= 0"; 0 has a message of its own.
    if not number:
        raise ValueError(
            "`gradient_accumulation_count` must be a positive integer, of the batches that each "
            "replica takes for a weight update. "
            f"Received: {received('gradient_accumulation_count', count)}"
        )
    return number


def accumulation(count: Any, dtype: Any) -> AccumulationOptions:
    """Returns the options of a model that is not pipelined; `count` is batches per weight
    update.

    The gradients are added, not averaged. The documents of these releases say that
    `GradientAccumulationOptimizerV2`, which such a model wraps its optimizer in, accumulates
    gradients and uses "their accumulated gradients", and that those are then "reduced across
    replicas"; only of `CrossReplicaOptimizer`, which Keras models do not use, they say that it
    averages. Models of `keras.ipu`, whose method to reduce can be chosen, have the sum as the
    default too.
    """
    count = checked_count(count)
    return AccumulationOptions(
        steps_per_replica=count, dtype=dtype_choice("gradient_accumulation_dtype", dtype)
    )
