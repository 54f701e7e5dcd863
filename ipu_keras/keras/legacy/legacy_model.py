"""What the models of `tensorflow.python.ipu.keras` have in common."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ipu_keras.ipu_strategy import current_ipu_strategy
from ipu_keras.keras.extensions.accumulation_options import AccumulationOptions
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList
from ipu_keras.keras.extensions.model_extension import ModelExtension
from ipu_keras.keras.legacy.epoch_run import EpochRun
from ipu_keras.optimizers.accumulator_options import dtype_choice


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

    # Whether it is one of our own programs that calls the model, or builds it.
    _ipu_by_program = False

    def __call__(self, *args, **kwargs):
        """Refuses to be called.

        Raises:
            ValueError: It always is refused.
        """
        if not self._ipu_by_program:
            self._ipu_refuse_call()
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

    def train_on_batch(self, *args, **kwargs) -> NoReturn:
        """Refuses, as a step may take several batches.

        Raises:
            ValueError: It always is refused.
        """
        self._ipu_refuse_call()

    def test_on_batch(self, *args, **kwargs) -> NoReturn:
        """Refuses, like `train_on_batch`.

        Raises:
            ValueError: It always is refused.
        """
        self._ipu_refuse_call()

    def predict_on_batch(self, *args, **kwargs) -> NoReturn:
        """Refuses, like `train_on_batch`.

        Raises:
            ValueError: It always is refused.
        """
        self._ipu_refuse_call()

    def save(self, *args, **kwargs) -> NoReturn:
        """Refuses to save the model; `save_weights` saves its weights.

        Raises:
            NotImplementedError: It always is refused.
        """
        self._ipu_refuse_to_save()

    def get_config(self) -> NoReturn:
        """Refuses, as what saves models by other ways than `save` asks for it.

        Raises:
            NotImplementedError: It always is refused.
        """
        self._ipu_refuse_to_save()

    def __reduce__(self) -> NoReturn:
        # Pickling would save the model.
        self._ipu_refuse_to_save()

    def _ipu_refuse_call(self) -> NoReturn:
        raise ValueError(
            f"{type(self).__name__} can only be called through the `fit`, `evaluate` or `predict` "
            "interfaces. For a training loop of your own, or as a part of another model, use a "
            "`keras.Model`."
        )

    def _ipu_refuse_to_save(self) -> NoReturn:
        raise NotImplementedError(
            "IPU Keras models do not support the `save` interface. Save the weights with "
            "`save_weights`, and load them into a model made by the same code. "
            f"Received: {type(self).__name__} {self.name}"
        )

    def _ipu_check_runnable(self) -> None:
        check_scope(type(self))
        super()._ipu_check_runnable()

    # In a step as Keras counts them.
    def _ipu_batches_per_step(self, name: str) -> int:
        count = self._ipu_options.accumulation.steps_per_replica or 1
        return count if name == "train" else 1

    def _ipu_new_run(self, name: str, epochs: int, callbacks: AsyncCallbackList | None) -> EpochRun:
        return EpochRun(
            self._ipu_options,
            self._ipu_device().engine,
            model_name=type(self).__name__,
            batches_per_step=self._ipu_batches_per_step(name),
            replicas_for=self._ipu_replicas_for,
            epochs=epochs,
            trains=name == "train",
            callbacks=callbacks,
        )

    def _ipu_check_training(self, num_steps: int) -> None:
        # Keras counts weight updates.
        super()._ipu_check_training(num_steps * self._ipu_batches_per_step("train"))

    @contextlib.contextmanager
    def _ipu_called_by_program(self) -> Iterator[None]:
        outer, self._ipu_by_program = self._ipu_by_program, True
        try:
            yield
        finally:
            self._ipu_by_program = outer

    def _ipu_in_stages(self, step: Callable) -> Callable:
        staged_step = super()._ipu_in_stages(step)

        @functools.wraps(step)
        def own_step(*args, **kwargs):
            with self._ipu_called_by_program():
                return staged_step(*args, **kwargs)

        return own_step

    def _ipu_replicas_for(self, element) -> int:
        with self._ipu_called_by_program():
            return super()._ipu_replicas_for(element)

    def _symbolic_build(self, *args, **kwargs):
        with self._ipu_called_by_program():
            return super()._symbolic_build(*args, **kwargs)


def check_scope(model_class: type) -> None:
    """Checks that the scope of an `IPUStrategy` is entered.

    Args:
        model_class: Of the model that is made or run, for the error.

    Raises:
        ValueError: It is not.
    """
    if current_ipu_strategy() is None:
        raise ValueError(
            f"{model_class.__name__} can only be used on an IPU device. Make the model, and call "
            "`fit`, `evaluate` and `predict`, inside the scope of an IPUStrategy: "
            "`with strategy.scope():`"
        )


def check_count(count: Any) -> None:
    """Checks how many batches are accumulated.

    Raises:
        ValueError: It is not a positive integer.
    """
    if isinstance(count, int) and count < 0:
        raise ValueError(
            "gradient_accumulation_count must be >= 0. It is how many batches each replica takes "
            f"for a weight update: give 1 or more. Received: {count}"
        )
    if not isinstance(count, int) or isinstance(count, bool) or count == 0:
        raise ValueError(
            "`gradient_accumulation_count` must be a positive integer, of the batches that each "
            f"replica takes for a weight update. Received: {count!r}"
        )


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
    check_count(count)
    return AccumulationOptions(
        steps_per_replica=count, dtype=dtype_choice("gradient_accumulation_dtype", dtype)
    )
