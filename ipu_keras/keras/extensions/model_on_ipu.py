"""What this package keeps for one model: its options, its stages, its steps and its runs."""

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from ipu_keras.device import IpuDevice
from ipu_keras.feeds.dataset_feed import ElementFormat
from ipu_keras.internals.keras.backend import compute_output_spec
from ipu_keras.internals.keras.data import train_validation_split
from ipu_keras.internals.keras.models import layers_in
from ipu_keras.internals.keras.training import (
    TFEpochIterator,
    forget_validation_iterator,
    set_validation_iterator,
)
from ipu_keras.keras.extensions import data_checks
from ipu_keras.keras.extensions.accumulation_options import with_wrapped
from ipu_keras.keras.extensions.array_data import with_array_data
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList
from ipu_keras.keras.extensions.batch_formats import BatchFormats
from ipu_keras.keras.extensions.dataset_feeds import Check
from ipu_keras.keras.extensions.epoch_data import EpochData
from ipu_keras.keras.extensions.model_metrics import ModelMetrics
from ipu_keras.keras.extensions.model_stages import ModelStages, stages_of
from ipu_keras.keras.extensions.model_steps import ModelSteps
from ipu_keras.keras.extensions.option_checks import OF_FEEDS, ExtensionOptions
from ipu_keras.keras.extensions.pipeline_checks import check_ipus
from ipu_keras.keras.extensions.pipeline_stage import take_mark
from ipu_keras.keras.extensions.policies import refuse_policies
from ipu_keras.keras.extensions.run import Run
from ipu_keras.keras.extensions.step_function import StepFunction
from ipu_keras.keras.extensions.symbolic_build import build_from, is_built
from ipu_keras.machine.system import SYSTEM
from ipu_keras.settings.arguments import noted

# Attributes of Keras's trainer.
_FUNCTIONS = ("train_function", "test_function", "predict_function")


class ModelOnIpu:
    """The one object of this package that a model made in an `IPUStrategy`'s scope holds.

    The model keeps it as `_ipu`, a single name, since users' models have many names of their
    own.

    Args:
        model: The model, at any time between its making and its first use.
        extension: The class whose methods make the functions that Keras calls.
        make_stages: Makes the model's pipeline stages; called once the model is initialised.

    Attributes:
        compiled: The `jit_compile` that `compile` was given; `None` for `"auto"`.
        stage: The stage in whose `PipelineStage` scope the model was made; `None` for none.
    """

    def __init__(
        self,
        model: Any,
        extension: Any,
        make_stages: Callable[[keras.Model], ModelStages] = stages_of,
    ):
        self.options = ExtensionOptions()
        self.compiled: bool | None = None
        self.stage: int | None = take_mark(model)
        self.formats = BatchFormats()
        # The runs of all threads, then the one of each: several threads may predict with one
        # model.
        self._runs: list[Run] = []
        self._of_thread = threading.local()
        self._model = model
        self._extension = extension
        self._make_stages = make_stages
        # The configuration of the system when the model last ran, which functions were made for.
        self._config: Any = None

    @property
    def run(self) -> Run | None:
        """The call of `fit`, `evaluate` or `predict` that is going on in this thread."""
        return getattr(self._of_thread, "run", None)

    @property
    def is_running(self) -> bool:
        """Whether such a call is going on in any thread."""
        return bool(self._runs)

    @functools.cached_property
    def steps(self) -> ModelSteps:
        """Makes the functions that Keras calls for the model's steps."""
        return ModelSteps(self._model, self)

    @functools.cached_property
    def metrics(self) -> ModelMetrics:
        """Resets and reads the metrics of the model."""
        return ModelMetrics(self._model, self._extension)

    @functools.cached_property
    def stages(self) -> ModelStages:
        """The pipeline stages of the model."""
        return self._make_stages(self._model)

    @property
    def device(self) -> IpuDevice:
        """The device of the model's strategy, which must be one of IPUs."""
        strategy = self._model.distribute_strategy
        if strategy.device is None:
            raise noted(
                ValueError(f"{type(self._model).__name__} can only be used on an IPU device."),
                f"Received: a strategy on {strategy.extended.worker_devices[0]}; make the model "
                "in the scope of an IPUStrategy for '/device:IPU:0'.",
            )
        return strategy.device

    @property
    def num_replicas(self) -> int:
        """How many replicas of the model the device's IPUs have room for, without any left
        over."""
        num_ipus = len(self.device.ipus)
        staged = self.stages.staged_calls()
        if staged is None:
            return num_ipus
        needed = self.stages.pipeline_of(staged).num_ipus
        check_ipus(num_ipus, needed)
        return num_ipus // needed

    def set(self, **changes) -> None:
        """Changes fields of the options, whose values the caller has checked."""
        self.options = dataclasses.replace(self.options, **changes)
        if not changes.keys() <= OF_FEEDS:
            self.drop_functions()

    def drop_functions(self) -> None:
        """Makes the next call compile its programs again, as those were made for other options."""
        for name in _FUNCTIONS:
            setattr(self._model, name, None)

    def scope(self) -> AbstractContextManager:
        """The scope of the strategy that the model was made in."""
        return self._model.distribute_strategy.scope()

    def called_by_program(self) -> AbstractContextManager:
        """A context in which one of this package's programs calls or builds the model."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def running(
        self, name: str, call: dict[str, Any], epochs: int = 1, **callback_lists: bool
    ) -> Iterator[None]:
        """Checks that the model can run as `name`, sets up callbacks in `call`, and closes it in
        the end.

        `call` has the arguments of the call by name, `epochs` share the data, and
        `callback_lists` are further arguments of `keras.callbacks.CallbackList`.
        """
        self.check_runnable(name)
        data_checks.refuse_generators(call["x"])
        callbacks = self._asynchronous(name, call, callback_lists)
        # Runs nest: a callback may evaluate and predict, and `fit` itself evaluates.
        outer = self.run
        self._of_thread.run = run = self._new_run(name, epochs, callbacks)
        self._runs.append(run)
        try:
            # In the strategy's scope, Keras's datasets would be on the device, and every batch
            # copied to it and back.
            with tf.device(None):
                yield
        finally:
            self._of_thread.run = outer
            self._runs.remove(run)
            run.close()

    @contextlib.contextmanager
    def validating(self, call: dict[str, Any], epochs: int) -> Iterator[None]:
        """Has the validation data of `fit` checked before anything is trained, and split off
        first.

        Keras makes an iterator over it only after the first epoch, when an error comes late.
        """
        names = ("x", "y", "sample_weight")
        if call["validation_split"] and call["validation_data"] is None:
            arrays = tuple(call[name] for name in names)
            arrays, call["validation_data"] = train_validation_split(
                arrays, call["validation_split"]
            )
            call.update(zip(names, arrays, strict=True), validation_split=0.0)
        own_evaluate = type(self._model).evaluate is not self._extension.evaluate
        if call["validation_data"] is not None and not own_evaluate:
            self._check_maker("test")
        if call["validation_data"] is not None and epochs and not own_evaluate:
            assert self.run is not None
            x, y, weights = keras.utils.unpack_x_y_sample_weight(call["validation_data"])
            size, steps = (
                call["validation_batch_size"] or call["batch_size"],
                call["validation_steps"],
            )
            data = {"x": x, "y": y, "sample_weight": weights, "batch_size": size}
            self.run.validation_iterator = lambda: TFEpochIterator(
                **self.with_array_data(data, steps),
                distribute_strategy=self._model.distribute_strategy,
                steps_per_execution=self._model.steps_per_execution,
                steps_per_epoch=steps,
                shuffle=False,
            )
        try:
            yield
        finally:
            forget_validation_iterator(self._model)

    def with_array_data(self, call: dict[str, Any], steps: int | None) -> dict[str, Any]:
        """Returns the arguments of a call as `array_data.with_array_data` does."""
        return with_array_data(call, steps)

    def check_validation(self) -> None:
        """Checks the validation data of the `fit` that is going on, once the model is built."""
        if self.run is not None and self.run.validation_iterator is not None:
            iterator = self.run.validation_iterator()
            run = self._new_run("test", 1, None)
            element = run.open_feeds(EpochData(iterator), self._batch_check)
            # Calling a large model takes a second, and samples are mostly as in training.
            alike = _samples(element) == _samples(self.run.element)
            if not alike and not self.steps.overrides("test_step"):
                self._call_on(element)
            # Keras keeps this iterator for the validations of all epochs.
            set_validation_iterator(self._model, iterator)

    def batch(self, name: str, data: tuple) -> tuple:
        """Checks that the model can run on a single batch; returns it with integers that
        programs take."""
        self.check_runnable(name)
        return data if data in self.formats else data_checks.with_ipu_integers(data)

    def check_data(self, iterator=None, data_batch=None) -> ElementFormat:
        """Checks data before it is read, and returns its format.

        The data is Keras's iterator of the call that is going on, which is made to give feeds,
        or else a single batch.
        """
        if iterator is not None:
            assert self.run is not None
            data = EpochData(iterator)
            element = self.run.open_feeds(data, self._batch_check)
            self.run.element = element
            if self.run.trains:
                self._check_training(data.steps_per_execution)
            return element
        element = self.formats.of(data_batch)
        check = self._batch_check(element)
        if check is not None:
            check(element.flatten(data_batch))
        return element

    def check_runnable(self, name: str) -> None:
        """Checks that the model can run as `"train"`, `"test"` or `"predict"`, before any data
        is read.

        The device must be one of IPUs and still configured. The model must neither run eagerly or
        in the graph of a session, nor make the function of the step itself, nor compute in numbers
        that IPUs lack.
        """
        if not self.device.ipus:
            SYSTEM.device(self.device.name)  # says whether nothing is configured, or not this one
        refuse_eager(self._model.run_eagerly)
        refuse_graphs()
        self._drop_functions_of_other_configurations()
        if getattr(self._model, f"{name}_function") is None:
            # An existing function was made for these layers, and to look at them takes longer
            # than a step.
            refuse_policies(self._model)
        self._check_maker(name)

    def _drop_functions_of_other_configurations(self) -> None:
        """Drops functions that were made for other replicas, or for other groups of replicas
        that normalize their batches together, than the system is configured for now."""
        if SYSTEM.config is self._config:
            return
        self._config = SYSTEM.config
        configured = self.num_replicas, SYSTEM.norm_group_size
        for name in _FUNCTIONS:
            made = getattr(self._model, name)
            # Others than the extension's are a script's own.
            if isinstance(made, StepFunction):
                layout = made.layout
                if (layout.num_replicas, layout.norm_group_size) != configured:
                    setattr(self._model, name, None)

    def build(self, element: ElementFormat) -> None:
        """Builds the model for batches of this format, of which Keras reads shapes and dtypes
        only. Data that lack labels which the model's loss needs are a ValueError."""
        self.adopt_optimizers()
        if not self.steps.any_overridden:
            self.steps.check_labels(element)
        if is_built(self._model):
            return  # even if for other data: Keras builds nothing a second time
        specs = element.unflatten([tf.TensorSpec(s.shape, s.dtype) for s in element.specs])
        with self.scope():
            try:
                build_from(self._model, specs)
            except (RuntimeError, ValueError):
                # A user's own step may do without `call`, or call the model on other data. Then
                # the trace of the step builds the model.
                if not self.steps.any_overridden:
                    raise

    def adopt_optimizers(self) -> None:
        """Lets the strategy make the variables of optimizers that were made outside its scope.

        Keras ties an optimizer to the strategy in whose scope it was made, which may be none.
        Nothing depends on that until the optimizer has variables.
        """
        values = vars(self._model).values()
        for value in [value for value in values if isinstance(value, keras.Optimizer)]:
            for optimizer in with_wrapped(value, keras.Optimizer):
                if not optimizer.built:
                    optimizer._distribution_strategy = self._model.distribute_strategy

    def in_stages(self, step: Callable) -> Callable:
        """Returns a step whose operations are traced in the name scopes of their stages."""
        return self.stages.in_stages(step)

    def _new_run(self, name: str, epochs: int, callbacks: AsyncCallbackList | None) -> Run:
        return Run(
            self.options,
            self.device.engine,
            replicas_for=self._replicas_for,
            epochs=epochs,
            trains=name == "train",
            callbacks=callbacks,
        )

    def _replicas_for(self, element: ElementFormat) -> int:
        if len(self.device.ipus) > 1 and not all(layer.built for layer in layers_in(self._model)):
            # The stages of a model are known only when its layers are built, and how many IPUs a
            # replica needs only with the stages.
            self._call_on(element)
        return self.num_replicas

    def _call_on(self, element: ElementFormat) -> None:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(_keras_tensors(element))
        with self.scope(), self.called_by_program():
            compute_output_spec(self._model, x)

    def _asynchronous(
        self, name: str, call: dict[str, Any], callback_lists: dict[str, bool]
    ) -> AsyncCallbackList | None:
        given = call["callbacks"]
        if not self.options.asynchronous_callbacks or self.steps.accumulates_logs(name):
            return None
        if isinstance(given, keras.callbacks.CallbackList):  # from `fit`, or the user's own
            return None
        # Keras takes a `CallbackList` as it is, and would make one of its own class of anything
        # else.
        call["callbacks"] = AsyncCallbackList(
            given,
            add_progbar=call["verbose"] != 0,
            verbose=call["verbose"],
            epochs=call.get("epochs", 1),
            steps=None,  # set when the data is known
            model=self._model,
            **callback_lists,
        )
        return call["callbacks"]

    def _check_maker(self, name: str) -> None:
        model, maker = self._model, f"make_{name}_function"
        function = getattr(getattr(model, maker), "__func__", None)
        if function is not getattr(self._extension, maker):
            raise noted(
                RuntimeError(
                    f"The function `{maker}` for the model {model.name} has been overridden. "
                    "This is not supported when using Keras within an IPUStrategy."
                ),
                "The strategy makes the function itself: override the step instead, "
                f"`{name}_step`.",
            )

    def _check_training(self, num_steps: int) -> None:
        self.stages.check_training(num_steps)

    def _batch_check(self, element: ElementFormat) -> Check | None:
        model = self._model
        return data_checks.nan_label_check(element, model.loss) if model.compiled else None


def refuse_eager(run_eagerly: bool) -> None:
    """Refuses `run_eagerly`: a program runs as a whole or not at all."""
    if run_eagerly:
        raise RuntimeError(
            "Keras models cannot run eagerly when using `IPUStrategy`. Set `run_eagerly=False` "
            "when calling `compile`."
        )


def refuse_graphs() -> None:
    """Refuses to run a model where TensorFlow builds the graph of a session.

    Raises:
        RuntimeError: Eager execution is switched off, as Keras 3 needs it, or a graph is open.
    """
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise RuntimeError(
            "Models of Keras 3 run where TensorFlow executes eagerly. Leave out "
            "`tf.compat.v1.disable_v2_behavior()` or `disable_eager_execution()`, and call the "
            "model's methods outside of `tf.Graph().as_default()`; or write the model with "
            "`tf.compat.v1` for `ipu_compiler.compile`. Received: eager execution is switched off"
        )


def _samples(element: ElementFormat | None) -> list[tuple] | None:
    return None if element is None else [(s.shape[1:], s.dtype) for s in element.specs]


def _keras_tensors(element: ElementFormat) -> Any:
    return element.unflatten([keras.KerasTensor(s.shape, s.dtype) for s in element.specs])
