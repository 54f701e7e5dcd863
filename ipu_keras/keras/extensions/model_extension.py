"""The extension of Keras models: their steps become programs on an IPU device."""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf
from keras import saving as serialization_lib
from keras import tree

from ipu_keras.device import IpuDevice
from ipu_keras.feeds.dataset_feed import ElementFormat
from ipu_keras.internals.keras import backend
from ipu_keras.internals.keras.training import TensorFlowTrainer, TFEpochIterator
from ipu_keras.keras.extensions import data_checks
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList, StepLogs
from ipu_keras.keras.extensions.dataset_feeds import Check
from ipu_keras.keras.extensions.model_pipeline import StagedCalls
from ipu_keras.keras.extensions.named_parts import with_named_parts
from ipu_keras.keras.extensions.pipeline_checks import check_ipus
from ipu_keras.keras.extensions.prediction import predict_feed
from ipu_keras.keras.extensions.run import Run
from ipu_keras.keras.extensions.saved_options import SavedOptions
from ipu_keras.keras.extensions.step_function import Layout, StepFunction, batch_format
from ipu_keras.keras.extensions.symbolic_build import build_from
from ipu_keras.keras.extensions.training import (
    TrainingParts,
    summing_gradients,
    with_dtype_of_logs,
)
from ipu_keras.program import Accumulation, OutfeedMode, Pipeline
from ipu_keras.program.compilation_history import CompilationHistory

_MAKERS = ("make_train_function", "make_test_function", "make_predict_function")
_STEPS = ("train_step", "test_step", "predict_step")


class ModelExtension(SavedOptions, TensorFlowTrainer):
    """What a model made in an `IPUStrategy`'s scope gains.

    `fit`, `evaluate`, `predict` and the `*_on_batch` methods compile the
    model's steps into programs and dispatch them to the strategy's device,
    `steps_per_execution` steps at a time, wherever they are called from.

    It stands between `keras.Model` and Keras's trainer, whose methods it
    overrides: those that a model's class overrides in turn get their arguments
    unchanged, and reach this extension with `super()`.

    Example:

    >>> import keras, numpy as np
    >>> from ipu_keras.ipu_strategy import IPUStrategy
    >>> with IPUStrategy().scope():
    ...     model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse", steps_per_execution=2)
    >>> data = np.zeros((16, 4), np.float32), np.zeros((16, 1), np.float32)
    >>> history = model.fit(*data, batch_size=4, verbose=0)
    >>> print(history.history["loss"])
    [0.0]
    """

    # Names of the extension's own begin with `_ipu`: users' models have many names.
    # `jit_compile` of `compile`, if it was given.
    _ipu_compiled: bool | None = None
    # The call of `fit`, `evaluate` or `predict` that is going on.
    _ipu_run: Run | None = None
    # Of its programs; outlives the functions that `compile` throws away.
    _ipu_history: CompilationHistory | None = None

    def __init__(self, *args, **kwargs):
        # Not for models: `keras.Model` calls the initialiser of Keras's trainer by name.
        raise TypeError(
            f"{type(self).__name__} is no model by itself. Make a keras.Model in the scope of an "
            "IPUStrategy, which adds it."
        )

    def __reduce__(self):
        # As a model of Keras's class: an extended class has no name to import.
        _, saved = super().__reduce__()
        return keras.Model._unpickle_model, saved

    def compile(self, *args, **kwargs) -> None:
        """As `keras.Model.compile`; refuses to run eagerly.

        Args:
            *args: As in Keras.
            **kwargs: As in Keras. `jit_compile` chooses how the host runs the
                programs; leave it at `"auto"` for the fastest way.

        Raises:
            RuntimeError: `run_eagerly=True`.
        """
        call = _bound(TensorFlowTrainer.compile, self, args, kwargs)
        _refuse_eager(call["run_eagerly"])
        asked = call["jit_compile"]
        self._ipu_compiled = asked if isinstance(asked, bool) else None
        with self._ipu_scope():
            super().compile(**call)

    def compile_from_config(self, config) -> None:
        """As in Keras; what a saved `jit_compile="auto"` once became is not kept."""
        if type(self).compile is not ModelExtension.compile:
            super().compile_from_config(config)
            return
        # Keras takes any `compile` but its own for one that it cannot call.
        arguments = serialization_lib.deserialize_keras_object(config)
        self.compile(**{**arguments, "jit_compile": "auto"})
        if self.optimizer is not None and self.built:
            self._ipu_adopt_optimizers()
            with self._ipu_scope():
                self.optimizer.build(self.trainable_variables)

    def fit(self, *args, **kwargs):
        """As `keras.Model.fit`, on the IPU device.

        The number of batches of an epoch has to be known and a multiple of
        `steps_per_execution`; all batches have one shape.

        Args:
            *args: As in Keras.
            **kwargs: As in Keras.

        Returns:
            Keras's `History`.
        """
        call = _bound(TensorFlowTrainer.fit, self, args, kwargs)
        data_checks.refuse_generators(call["validation_data"])
        epochs = max(call["epochs"] - call["initial_epoch"], 0)
        with self._ipu_running("train", call, epochs, add_history=True):
            return super().fit(**call)

    def evaluate(self, *args, **kwargs):
        """As `keras.Model.evaluate`, on the IPU device.

        Args:
            *args: As in Keras.
            **kwargs: As in Keras.

        Returns:
            The loss and the metrics as Keras returns them.
        """
        call = _bound(TensorFlowTrainer.evaluate, self, args, kwargs)
        with self._ipu_running("test", call):
            return super().evaluate(**call)

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """As `keras.Model.predict`, on the IPU device.

        Args:
            x: As in Keras.
            batch_size: As in Keras.
            verbose: As in Keras.
            steps: As in Keras.
            callbacks: As in Keras.

        Returns:
            NumPy arrays `(samples, ...)` in the model's output structure.
        """
        call = {"x": x, "callbacks": callbacks, "verbose": verbose}
        with self._ipu_running("predict", call):
            epoch_iterator = TFEpochIterator(
                x=x,
                batch_size=batch_size,
                steps_per_epoch=steps,
                distribute_strategy=self.distribute_strategy,
                steps_per_execution=self.steps_per_execution,
            )
            self._ipu_check_data(iterator=epoch_iterator)
            callbacks = call["callbacks"]
            if not isinstance(callbacks, keras.callbacks.CallbackList):
                callbacks = keras.callbacks.CallbackList(
                    callbacks,
                    add_progbar=verbose != 0,
                    verbose=verbose,
                    epochs=1,
                    steps=epoch_iterator.num_batches,
                    model=self,
                )
            return predict_feed(self, epoch_iterator, callbacks)

    def predict_on_batch(self, x):
        """As `keras.Model.predict_on_batch`, on the IPU device.

        Args:
            x: As in Keras.

        Returns:
            NumPy arrays `(batch, ...)` in the model's output structure.
        """
        self._ipu_check_data(data_batch=(x,))
        self.make_predict_function()
        return tree.map_structure(lambda output: output[0], self.predict_function([(x,)]))

    def make_train_function(self, force=False):
        """Makes what Keras calls for each execution of training."""
        if self.train_function is None or force:
            step, layout = self._ipu_training()
            self.train_function = self._ipu_logging_function("train", step, layout)

    def make_test_function(self, force=False):
        """Makes what Keras calls for each execution of evaluation."""
        if self.test_function is None or force:
            layout = self._ipu_layout("test")
            self.test_function = self._ipu_logging_function("test", self.test_step, layout)

    def make_predict_function(self, force=False):
        """Makes what `predict` calls for each execution."""
        if self.predict_function is None or force:
            layout = self._ipu_layout("predict")
            self.predict_function = self._ipu_step_function(
                "predict", self.predict_step, OutfeedMode.ALL, layout
            )

    def _ipu_training(self) -> tuple[Callable, Layout]:
        """The step of training, and how it is spread."""
        layout, options = self._ipu_layout("train"), self._ipu_options
        pipelined = self._ipu_staged_calls() is not None
        chosen = options.pipelining if pipelined else options.accumulation
        count = chosen.steps_per_replica or 1
        if count == 1 and not pipelined:
            if layout.num_replicas == 1:
                return self.train_step, layout
            if self._ipu_overrides("train_step"):
                return summing_gradients(self, self.train_step), layout
        by_pipeline, by_accumulation = options.pipelining, options.accumulation
        dtype = by_pipeline.gradient_accumulation_dtype if pipelined else by_accumulation.dtype
        parts = TrainingParts(self, dtype)
        accumulation = Accumulation(count=count, reduction=chosen.reduction)
        update = with_named_parts(self, parts.update)
        return parts.step, replace(layout, update=update, accumulation=accumulation)

    def _ipu_layout(self, name: str) -> Layout:
        def pipeline_of(num_steps: int) -> Pipeline | None:
            return self._ipu_pipeline(name == "train", num_steps, name)

        return Layout(num_replicas=self._ipu_num_replicas(), pipeline_of=pipeline_of)

    def _ipu_staged_calls(self) -> StagedCalls | None:
        run = self._ipu_run
        if run is None or not self._ipu_is_built():
            return super()._ipu_staged_calls()
        if run.staged_calls is None:
            # Of a subclass of `keras.Model` it takes a trace to find out.
            run.staged_calls = (super()._ipu_staged_calls(),)
        return run.staged_calls[0]

    def _ipu_num_replicas(self) -> int:
        num_ipus = len(self._ipu_device().ipus)
        staged = self._ipu_staged_calls()
        if staged is None:
            return num_ipus
        needed = self._ipu_pipeline_of(staged).num_ipus
        check_ipus(num_ipus, needed)
        return num_ipus // needed

    def _ipu_replicas_for(self, element: ElementFormat) -> int:
        if len(self._ipu_device().ipus) > 1 and not self.built:
            # The stages of a model are known when it is built.
            x, _, _ = keras.utils.unpack_x_y_sample_weight(_keras_tensors(element))
            with self._ipu_scope():
                backend.compute_output_spec(self, x)
        return self._ipu_num_replicas()

    def _ipu_accumulates_logs(self, name: str) -> bool:
        """Whether the outfeed of a program has the mean of what its steps return."""
        accumulates = name != "predict" and self._ipu_options.pipelining.accumulate_outfeed
        return bool(accumulates) and self._ipu_staged_calls() is not None

    def _get_metrics_result_or_logs(self, logs):
        """Keras's hook: by default it looks metrics up on the host, which are replica 0's."""
        if self._ipu_num_replicas() > 1 or self._ipu_accumulates_logs("test"):
            return logs
        return super()._get_metrics_result_or_logs(logs)

    def _ipu_logging_function(self, name: str, step: Callable, layout: Layout) -> Callable:
        options = self._ipu_options
        if self._ipu_accumulates_logs(name):
            step = with_dtype_of_logs(step, options.pipelining.accumulate_outfeed_dtype)
            return self._ipu_step_function(name, step, OutfeedMode.MEAN, layout)
        if not options.asynchronous_callbacks:
            return self._ipu_step_function(name, step, OutfeedMode.LAST, layout)
        function = self._ipu_step_function(name, step, OutfeedMode.ALL, layout)
        return lambda source: StepLogs(function(source), layout.num_replicas)

    def _ipu_step_function(
        self, name: str, step: Callable, mode: OutfeedMode, layout: Layout
    ) -> StepFunction:
        if self._ipu_history is None:
            self._ipu_history = CompilationHistory()
        return StepFunction(
            name,
            with_named_parts(self, self._ipu_in_stages(step)),
            self.distribute_strategy,
            self._ipu_device(),
            outfeed_mode=mode,
            layout=layout,
            compiled=self._ipu_compiled,
            history=self._ipu_history,
        )

    def _ipu_scope(self) -> contextlib.AbstractContextManager:
        return self.distribute_strategy.scope()

    @contextlib.contextmanager
    def _ipu_running(
        self, name: str, call: dict[str, Any], epochs: int = 1, **callback_lists: bool
    ) -> Iterator[None]:
        """Checks the model, sets up callbacks in `call`, and closes what the call opened."""
        self._ipu_check_runnable()
        data_checks.refuse_generators(call["x"])
        callbacks = self._ipu_asynchronous(name, call, callback_lists)
        # A callback may evaluate and predict, and `fit` itself evaluates.
        outer = self._ipu_run
        self._ipu_run = run = self._ipu_new_run(name, epochs, callbacks)
        try:
            # The strategy's scope, if we are in it, would have Keras's datasets
            # on the device, and every batch copied to it and back.
            with tf.device(None):
                yield
        finally:
            self._ipu_run = outer
            run.close()

    def _ipu_new_run(self, name: str, epochs: int, callbacks: AsyncCallbackList | None) -> Run:
        return Run(
            self._ipu_options,
            self._ipu_device().engine,
            replicas_for=self._ipu_replicas_for,
            epochs=epochs,
            trains=name == "train",
            callbacks=callbacks,
        )

    def _ipu_asynchronous(
        self, name: str, call: dict[str, Any], callback_lists: dict[str, bool]
    ) -> AsyncCallbackList | None:
        given = call["callbacks"]
        if not self._ipu_options.asynchronous_callbacks or self._ipu_accumulates_logs(name):
            return None
        if isinstance(given, keras.callbacks.CallbackList):  # of `fit`, or the user's own
            return None
        call["callbacks"] = AsyncCallbackList(
            given,
            add_progbar=call["verbose"] != 0,
            verbose=call["verbose"],
            epochs=call.get("epochs", 1),
            steps=None,  # set when the data is known
            model=self,
            **callback_lists,
        )
        return call["callbacks"]

    def _ipu_check_runnable(self) -> None:
        self._ipu_device()
        _refuse_eager(self.run_eagerly)
        for maker in _MAKERS:
            function = getattr(getattr(self, maker), "__func__", None)
            if function is not getattr(ModelExtension, maker):
                raise RuntimeError(
                    f"The function `{maker}` for the model {self.name} has been overridden. This "
                    "is not supported when using Keras within an IPUStrategy, which makes the "
                    "function itself. Override the step instead, such as `train_step`."
                )

    def _ipu_device(self) -> IpuDevice:
        strategy = self.distribute_strategy
        if strategy.device is None:
            raise ValueError(
                f"{type(self).__name__} can only be used on an IPU device. Received: a strategy on "
                f"{strategy.extended.worker_devices[0]}; make the model in the scope of an "
                "IPUStrategy for '/device:IPU:0'."
            )
        return strategy.device

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Keras's hook before any data is read: checks the data and builds from its format."""
        self._ipu_build(self._ipu_check_data(iterator, data_batch))

    def _ipu_build(self, element: ElementFormat) -> None:
        # Keras reads shapes and dtypes only.
        specs = element.unflatten([tf.TensorSpec(s.shape, s.dtype) for s in element.specs])
        self._ipu_adopt_optimizers()
        with self._ipu_scope():
            try:
                build_from(self, specs)
            except (RuntimeError, ValueError):
                # A step of the user's own may do without `call`, or call the
                # model on other data. Then tracing it builds the model.
                if not self._ipu_has_own_step():
                    raise

    def _ipu_check_data(self, iterator=None, data_batch=None) -> ElementFormat:
        """Checks the data, and makes an iterator of Keras's give feeds."""
        if iterator is not None:
            assert self._ipu_run is not None
            element = self._ipu_run.open_feeds(iterator, self._ipu_batch_check)
            if self._ipu_run.trains:
                self._ipu_check_training(iterator.steps_per_execution)
            return element
        self._ipu_check_runnable()
        element = batch_format(data_batch)
        check = self._ipu_batch_check(element)
        if check is not None:
            check(element.flatten(data_batch))
        return element

    def _ipu_batch_check(self, element: ElementFormat) -> Check | None:
        return data_checks.nan_label_check(element, self.loss) if self.compiled else None

    def _ipu_has_own_step(self) -> bool:
        return any(map(self._ipu_overrides, _STEPS))

    def _ipu_overrides(self, step: str) -> bool:
        return getattr(type(self), step) is not getattr(TensorFlowTrainer, step)

    def _ipu_adopt_optimizers(self) -> None:
        """Lets the strategy make the variables of optimizers that were made outside its scope.

        Keras ties an optimizer to the strategy in whose scope it was made, which
        may be none; before it has variables nothing depends on that yet.
        """
        found = [value for value in vars(self).values() if isinstance(value, keras.Optimizer)]
        while found:
            optimizer = found.pop()
            if not optimizer.built:
                optimizer._distribution_strategy = self.distribute_strategy
            if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
                found.append(optimizer.inner_optimizer)


def _keras_tensors(element: ElementFormat) -> Any:
    return element.unflatten([keras.KerasTensor(s.shape, s.dtype) for s in element.specs])


def _refuse_eager(run_eagerly: bool) -> None:
    if run_eagerly:
        raise RuntimeError(
            "Keras models cannot run eagerly when using `IPUStrategy`. Set `run_eagerly=False` "
            "when calling `compile`."
        )


def _bound(function: Callable, model: keras.Model, args, kwargs) -> dict[str, Any]:
    """The arguments of a call by name, defaults included."""
    bound = inspect.signature(function).bind(model, *args, **kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    arguments.pop("self")
    arguments.update(arguments.pop("kwargs", {}))
    return arguments
