"""What the models of `tensorflow.python.ipu.keras` have in common."""

import functools
from typing import Any, NoReturn

from ipu_keras.keras.extensions.accumulation_options import AccumulationOptions
from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.keras.legacy.legacy_on_ipu import LegacyOnIpu
from ipu_keras.ops.argument_checks import integer_in, received
from ipu_keras.optimizers.accumulator_options import dtype_choice
from ipu_keras.settings.argument_errors import noted


class _InConstructor:
    """Stands where models of `keras.ipu` have a method for what the constructor is given here."""

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

    It stands before a class of Keras's, as what it refuses is Keras's own.
    """

    set_asynchronous_callbacks = _InConstructor()
    set_gradient_accumulation_options = _InConstructor()
    set_pipelining_options = _InConstructor()
    set_pipeline_stage_assignment = _InConstructor()
    reset_pipeline_stage_assignment = _InConstructor()

    _ipu = functools.cached_property(lambda model: LegacyOnIpu(model, LegacyModel))

    def __call__(self, *args, **kwargs):
        """Refuses to be called.

        Raises:
            ValueError: It always is refused.
        """
        if not self._ipu.is_called_by_program:
            _refuse_call(self)
        return super().__call__(*args, **kwargs)

    def compile(self, optimizer="rmsprop", loss=None, **kwargs) -> None:
        """As `keras.Model.compile`.

        Args:
            optimizer: As in Keras.
            loss: As in Keras.
            **kwargs: As in Keras. `steps_per_execution` can only be 1, its default: all
                steps of an epoch are one execution.

        Raises:
            ValueError: `steps_per_execution` is given.
            RuntimeError: `run_eagerly=True`.
        """
        given = kwargs.get("steps_per_execution", 1)
        if given != 1:
            raise ValueError(
                f"{type(self).__name__} has no `steps_per_execution`: it runs all steps of an "
                f"epoch in one execution. Leave it out. Received: steps_per_execution={given!r}"
            )
        super().compile(optimizer, loss, **kwargs)

    def evaluate(self, *args, **kwargs):
        """As `keras.Model.evaluate`, on the IPU device.

        Args:
            *args: As in Keras.
            **kwargs: As in Keras.

        Returns:
            A list of the loss and the metrics, also if there are none; with `return_dict=True` a
            dictionary.
        """
        results = super().evaluate(*args, **kwargs)
        return results if isinstance(results, dict | list) else [results]

    def train_on_batch(self, *args, **kwargs) -> NoReturn:
        """Refuses, as a step may take several batches.

        Raises:
            ValueError: It always is refused.
        """
        _refuse_call(self)

    def test_on_batch(self, *args, **kwargs) -> NoReturn:
        """Refuses, like `train_on_batch`.

        Raises:
            ValueError: It always is refused.
        """
        _refuse_call(self)

    def predict_on_batch(self, *args, **kwargs) -> NoReturn:
        """Refuses, like `train_on_batch`.

        Raises:
            ValueError: It always is refused.
        """
        _refuse_call(self)

    def save(self, *args, **kwargs) -> NoReturn:
        """Refuses to save the model; `save_weights` saves its weights.

        Raises:
            NotImplementedError: It always is refused.
        """
        _refuse_to_save(self)

    def get_config(self) -> NoReturn:
        """Refuses, as what saves models by other ways than `save` asks for it.

        Raises:
            NotImplementedError: It always is refused.
        """
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
    """How many batches are accumulated.

    Raises:
        ValueError: It is not a positive integer.
    """
    number = integer_in(count)
    if number is not None and number < 0:
        raise noted(
            ValueError("gradient_accumulation_count must be >= 0."),
            "It is how many batches each replica takes for a weight update: give 1 or more. "
            f"Received: {number}",
        )
    if not number:
        raise ValueError(
            "`gradient_accumulation_count` must be a positive integer, of the batches that each "
            "replica takes for a weight update. "
            f"Received: {received('gradient_accumulation_count', count)}"
        )
    return number


def accumulation(count: Any, dtype: Any) -> AccumulationOptions:
    """The options of a model that is not pipelined.

    The gradients are added, not averaged. The documents of these releases say that
    `GradientAccumulationOptimizerV2`, which such a model wraps its optimizer in,
    accumulates gradients and uses "their accumulated gradients", and that those are then
    "reduced across replicas"; only of `CrossReplicaOptimizer`, which Keras models do not
    use, they say that it averages. Models of `keras.ipu`, whose method to reduce can be
    chosen, have the sum as the default too.

    Args:
        count: Batches per weight update.
        dtype: Of the accumulators.

    Raises:
        ValueError: `count` is not a positive integer.
        TypeError: `dtype` is no floating point type and no function.
    """
    count = checked_count(count)
    return AccumulationOptions(
        steps_per_replica=count, dtype=dtype_choice("gradient_accumulation_dtype", dtype)
    )
