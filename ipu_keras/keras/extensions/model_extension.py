"""The extension of Keras models: their steps become programs on an IPU device."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src import tree
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer, TFEpochIterator
from keras.src.saving import serialization_lib

from ipu_keras.device import IpuDevice
from ipu_keras.feeds import ElementFormat
from ipu_keras.keras.extensions import data_checks, options
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList, StepLogs
from ipu_keras.keras.extensions.dataset_feeds import Check
from ipu_keras.keras.extensions.prediction import predict_feed
from ipu_keras.keras.extensions.run import Run
from ipu_keras.keras.extensions.step_function import StepFunction, batch_format
from ipu_keras.program import OutfeedMode

_MAKERS = ("make_train_function", "make_test_function", "make_predict_function")
_STEPS = ("train_step", "test_step", "predict_step")


class ModelExtension(TensorFlowTrainer):
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

    _ipu_options = options.ExtensionOptions()
    # `jit_compile` of `compile`, if it was given.
    _ipu_compiled: bool | None = None
    # The call of `fit`, `evaluate` or `predict` that is going on.
    _ipu_run: Run | None = None

    train_function: Any
    test_function: Any
    predict_function: Any

    def __reduce__(self):
        # As a model of Keras's class: an extended class has no name to import.
        _, saved = super().__reduce__()
        return keras.Model._unpickle_model, saved

    def set_asynchronous_callbacks(self, asynchronous: bool = False) -> None:
        """Chooses when the callbacks of batches run.

        Args:
            asynchronous: `False`: after each execution, with the results of
                its last step. `True`: once per step, on a second thread.
        """
        self._set_options(asynchronous_callbacks=bool(asynchronous))
        self._forget_functions()

    def set_infeed_queue_options(self, **kwargs) -> None:
        """Sets options of the infeeds that `fit`, `evaluate` and `predict` make.

        Args:
            **kwargs: `prefetch_depth`, the executions whose data is prepared
                ahead, 1 to 255, `None` for the default; `feed_name`. The other
                arguments of `IPUInfeedQueue` take their defaults only.

        Raises:
            ValueError: A key is set by Keras itself, or a value cannot be
                honoured.
            TypeError: An infeed queue has no such argument.
        """
        depth, name = options.check_infeed_options(kwargs)
        self._set_options(prefetch_depth=depth, infeed_name=name)

    def set_outfeed_queue_options(self, **kwargs) -> None:
        """Checks options of the outfeeds; they have no effect, of which a warning tells.

        Args:
            **kwargs: `buffer_depth`, `feed_name`.

        Raises:
            ValueError: A key cannot be used with Keras, or a value cannot be
                honoured.
            TypeError: An outfeed queue has no such argument.
        """
        options.check_outfeed_options(kwargs)

    def set_gradient_accumulation_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        gradient_accumulation_reduction_method="sum",
        **gradient_accumulation_optimizer_kwargs,
    ) -> None:
        """Checks the options of gradient accumulation, which this release does not have.

        Args:
            gradient_accumulation_steps_per_replica: Steps per weight update;
                `None` or 1 for none.
            gradient_accumulation_reduction_method: `"sum"`, `"mean"` or
                `"running_mean"`.
            **gradient_accumulation_optimizer_kwargs: Forwarded arguments.

        Raises:
            ValueError: An argument is not valid.
            NotImplementedError: More than one step is asked for.
        """
        options.check_accumulation_steps(gradient_accumulation_steps_per_replica)
        options.GradientAccumulationReductionMethod.parse(gradient_accumulation_reduction_method)
        options.check_accumulation_kwargs(gradient_accumulation_optimizer_kwargs)
        if (gradient_accumulation_steps_per_replica or 1) > 1:
            options.check_minimize(getattr(self, "optimizer", None), keras.optimizers.Optimizer)
            raise NotImplementedError(
                "Gradient accumulation is not available in this release. Received: "
                "gradient_accumulation_steps_per_replica="
                f"{gradient_accumulation_steps_per_replica}. Use larger batches instead."
            )

    def set_pipelining_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        device_mapping: list[int] | None = None,
        accumulate_outfeed: bool | None = None,
        gradient_accumulation_reduction_method="sum",
        **pipelining_kwargs,
    ) -> None:
        """Checks the options of pipelining, which this release does not have.

        Args:
            gradient_accumulation_steps_per_replica: Steps per weight update.
            device_mapping: The IPU of each stage.
            accumulate_outfeed: Whether metrics are averaged on the device.
            gradient_accumulation_reduction_method: `"sum"`, `"mean"` or
                `"running_mean"`.
            **pipelining_kwargs: Forwarded to the pipeline.

        Raises:
            ValueError: An argument is not valid.
            NotImplementedError: All arguments are.
        """
        options.check_accumulation_steps(gradient_accumulation_steps_per_replica)
        options.check_device_mapping(device_mapping)
        options.GradientAccumulationReductionMethod.parse(gradient_accumulation_reduction_method)
        options.check_pipelining_kwargs(pipelining_kwargs)
        options.check_minimize(getattr(self, "optimizer", None), keras.optimizers.Optimizer)
        raise NotImplementedError(
            "Pipelined models are not available in this release. Received: pipelining options of "
            f"{type(self).__name__}. Run the model on one IPU without them."
        )

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
        with self._strategy_scope():
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
            self._adopt_optimizers()
            with self._strategy_scope():
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
        epochs = max(call["epochs"] - (self._initial_epoch or call["initial_epoch"]), 0)
        with self._running(call, epochs, add_history=True):
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
        with self._running(call):
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
        with self._running(call):
            epoch_iterator = TFEpochIterator(
                x=x,
                batch_size=batch_size,
                steps_per_epoch=steps,
                distribute_strategy=self.distribute_strategy,
                steps_per_execution=self.steps_per_execution,
            )
            self._check_data(iterator=epoch_iterator)
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
        self._check_data(data_batch=(x,))
        self.make_predict_function()
        return tree.map_structure(lambda output: output[0], self.predict_function([(x,)]))

    def make_train_function(self, force=False):
        """Makes what Keras calls for each execution of training."""
        if self.train_function is None or force:
            self.train_function = self._logging_function("train", self.train_step)

    def make_test_function(self, force=False):
        """Makes what Keras calls for each execution of evaluation."""
        if self.test_function is None or force:
            self.test_function = self._logging_function("test", self.test_step)

    def make_predict_function(self, force=False):
        """Makes what `predict` calls for each execution."""
        if self.predict_function is None or force:
            self.predict_function = self._step_function(
                "predict", self.predict_step, OutfeedMode.ALL
            )

    def _logging_function(self, name: str, step: Callable) -> Callable:
        if not self._ipu_options.asynchronous_callbacks:
            return self._step_function(name, step, OutfeedMode.LAST)
        function = self._step_function(name, step, OutfeedMode.ALL)
        return lambda source: StepLogs(function(source))

    def _step_function(self, name: str, step: Callable, mode: OutfeedMode) -> StepFunction:
        return StepFunction(
            name,
            step,
            self.distribute_strategy,
            self._device(),
            outfeed_mode=mode,
            compiled=self._ipu_compiled,
        )

    def _forget_functions(self) -> None:
        self.train_function = self.test_function = self.predict_function = None

    def _set_options(self, **changes) -> None:
        self._ipu_options = dataclasses.replace(self._ipu_options, **changes)

    def _strategy_scope(self) -> contextlib.AbstractContextManager:
        return self.distribute_strategy.scope()

    @contextlib.contextmanager
    def _running(
        self, call: dict[str, Any], epochs: int = 1, **callback_lists: bool
    ) -> Iterator[None]:
        """Checks the model, sets up callbacks in `call`, and closes what the call opened."""
        self._check_runnable()
        data_checks.refuse_generators(call["x"])
        callbacks = self._asynchronous_callbacks(call, callback_lists)
        # A callback may evaluate and predict, and `fit` itself evaluates.
        outer = self._ipu_run
        self._ipu_run = run = Run(self._ipu_options, epochs=epochs, callbacks=callbacks)
        try:
            # The strategy's scope, if we are in it, would have Keras's datasets
            # on the device, and every batch copied to it and back.
            with tf.device(None):
                yield
        finally:
            self._ipu_run = outer
            run.close()

    def _asynchronous_callbacks(
        self, call: dict[str, Any], callback_lists: dict[str, bool]
    ) -> AsyncCallbackList | None:
        given = call["callbacks"]
        if not self._ipu_options.asynchronous_callbacks:
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

    def _check_runnable(self) -> None:
        device = self._device()
        if len(device.ipus) > 1:
            # On hardware the spare IPUs would train replicas, with other results.
            raise NotImplementedError(
                "Models run on one IPU in this release; replication and pipelining are not "
                f"available. Received: {device.name[-5:]} has {len(device.ipus)} IPUs. Configure "
                "the device with one, for instance `config.auto_select_ipus = 1`."
            )
        _refuse_eager(self.run_eagerly)
        for maker in _MAKERS:
            function = getattr(getattr(self, maker), "__func__", None)
            if function is not getattr(ModelExtension, maker):
                raise RuntimeError(
                    f"The function `{maker}` for the model {self.name} has been overridden. This "
                    "is not supported when using Keras within an IPUStrategy, which makes the "
                    "function itself. Override the step instead, such as `train_step`."
                )

    def _device(self) -> IpuDevice:
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
        element = self._check_data(iterator, data_batch)
        # Keras reads shapes and dtypes only.
        specs = element.unflatten([tf.TensorSpec(s.shape, s.dtype) for s in element.specs])
        self._adopt_optimizers()
        with self._strategy_scope():
            try:
                self._symbolic_build(data_batch=specs)
            except (RuntimeError, ValueError):
                # A step of the user's own may do without `call`, or call the
                # model on other data. Then tracing it builds the model.
                if not self._has_own_step():
                    raise

    def _check_data(self, iterator=None, data_batch=None) -> ElementFormat:
        """Checks the data, and makes an iterator of Keras's give feeds."""
        if iterator is not None:
            assert self._ipu_run is not None
            return self._ipu_run.open_feeds(iterator, self._batch_check)
        self._check_runnable()
        element = batch_format(data_batch)
        check = self._batch_check(element)
        if check is not None:
            check(element.flatten(data_batch))
        return element

    def _batch_check(self, element: ElementFormat) -> Check | None:
        return data_checks.nan_label_check(element, self.loss) if self.compiled else None

    def _has_own_step(self) -> bool:
        return any(
            getattr(type(self), step) is not getattr(TensorFlowTrainer, step) for step in _STEPS
        )

    def _adopt_optimizers(self) -> None:
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
