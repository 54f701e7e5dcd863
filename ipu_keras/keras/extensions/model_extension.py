"""The extension of Keras models: their steps become programs on an IPU device."""

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src import tree
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer, TFEpochIterator
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

from ipu_keras.feeds import DatasetFeed, ElementFormat, element_format
from ipu_keras.keras.extensions import data_checks, options
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList, StepLogs
from ipu_keras.keras.extensions.step_function import StepFunction, batch_format
from ipu_keras.program import OutfeedMode

_MAKERS = ("make_train_function", "make_test_function", "make_predict_function")


class ModelExtension:
    """What a model made in an `IPUStrategy`'s scope gains.

    `fit`, `evaluate`, `predict` and the `*_on_batch` methods compile the
    model's steps into programs and dispatch them to the strategy's device,
    `steps_per_execution` steps at a time, wherever they are called from.

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
    # The run that is going on: its feeds, callbacks and number of epochs.
    _ipu_run: "_Run | None" = None

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
        """As `keras.Model.compile`; refuses to run eagerly, and forgets what was compiled.

        Args:
            *args: As in Keras.
            **kwargs: As in Keras. `jit_compile` chooses how the host runs the
                programs; leave it at `"auto"` for the fastest way.

        Raises:
            RuntimeError: `run_eagerly=True`.
        """
        asked = _bound(keras.Model.compile, self, args, kwargs)["jit_compile"]
        self._ipu_compiled = asked if isinstance(asked, bool) else None
        with self.distribute_strategy.scope():
            super().compile(*args, **kwargs)
        # Keras ties an optimizer to the strategy it was made in, which may be
        # none; before it has variables nothing depends on that yet.
        if isinstance(self.optimizer, keras.Optimizer) and not self.optimizer.built:
            self.optimizer._distribution_strategy = self.distribute_strategy
        self._refuse_eager()
        self._forget_functions()

    def compile_from_config(self, config) -> None:
        """As in Keras. What a saved "auto" once became on another machine is not kept."""
        super().compile_from_config({**config, "jit_compile": "auto"})

    def fit(self, *args, **kwargs):
        """As `keras.Model.fit`, on the IPU device.

        The number of batches of an epoch has to be known and a multiple of
        `steps_per_execution`; all batches have one shape.

        Returns:
            Keras's `History`.
        """
        call = _bound(TensorFlowTrainer.fit, self, args, kwargs)
        epochs = max(call["epochs"] - (self._initial_epoch or call["initial_epoch"]), 0)
        with self._running(call, epochs, add_history=True):
            return super().fit(**call)

    def evaluate(self, *args, **kwargs):
        """As `keras.Model.evaluate`, on the IPU device."""
        call = _bound(TensorFlowTrainer.evaluate, self, args, kwargs)
        if self._ipu_run is not None:  # the validation of `fit`
            return super().evaluate(**call)
        with self._running(call, epochs=1):
            return super().evaluate(**call)

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """As `keras.Model.predict`, on the IPU device.

        Returns:
            NumPy arrays `(samples, ...)` in the model's output structure.
        """
        call = {"x": x, "callbacks": callbacks, "verbose": verbose, "epochs": 1}
        with self._running(call, epochs=1):
            return self._predict(call, batch_size, steps)

    def predict_on_batch(self, x):
        """As `keras.Model.predict_on_batch`, on the IPU device."""
        self._check_runnable()
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

    def _logging_function(self, name: str, step):
        if not self._ipu_options.asynchronous_callbacks:
            return self._step_function(name, step, OutfeedMode.LAST)
        function = self._step_function(name, step, OutfeedMode.ALL)
        return lambda source: StepLogs(function(source))

    def _step_function(self, name: str, step, mode: OutfeedMode) -> StepFunction:
        return StepFunction(
            name,
            step,
            self.distribute_strategy,
            outfeed_mode=mode,
            compiled=self._ipu_compiled,
        )

    def _forget_functions(self) -> None:
        self.train_function = self.test_function = self.predict_function = None

    def _set_options(self, **changes) -> None:
        self._ipu_options = dataclasses.replace(self._ipu_options, **changes)

    @contextlib.contextmanager
    def _running(self, call: dict[str, Any], epochs: int, **callback_lists) -> Iterator[None]:
        """Checks the model, sets up callbacks in `call`, and closes what the run opened."""
        self._check_runnable()
        data_checks.refuse_generators(call["x"])
        run = _Run(epochs)
        if self._ipu_options.asynchronous_callbacks and not isinstance(
            call["callbacks"], keras.callbacks.CallbackList
        ):
            run.callbacks = call["callbacks"] = AsyncCallbackList(
                call["callbacks"],
                add_progbar=call["verbose"] != 0,
                verbose=call["verbose"],
                epochs=call.get("epochs", 1),
                model=self,
                **callback_lists,
            )
        self._ipu_run = run
        try:
            yield
        finally:
            self._ipu_run = None
            run.close()

    def _check_runnable(self) -> None:
        self._refuse_eager()
        if self.distribute_strategy.device is None:
            raise ValueError(
                f"{type(self).__name__} can only be used on an IPU device. Received: a strategy on "
                f"{self.distribute_strategy.extended.worker_devices[0]}; make the model in the "
                "scope of an IPUStrategy for '/device:IPU:0'."
            )
        for maker in _MAKERS:
            if getattr(type(self), maker) is not getattr(ModelExtension, maker):
                raise RuntimeError(
                    f"The function `{maker}` for the model {self.name} has been overridden. This "
                    "is not supported when using Keras within an IPUStrategy, which makes the "
                    "function itself. Override the step instead, such as `train_step`."
                )

    def _refuse_eager(self) -> None:
        if self.run_eagerly:
            raise RuntimeError(
                "Keras models cannot run eagerly when using `IPUStrategy`. Set `run_eagerly=False` "
                "when calling `compile`."
            )

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Keras's hook before any data is read: checks the data and builds from its format."""
        if iterator is None:
            element = batch_format(data_batch)
        else:
            element = self._open_feeds(iterator)
        # Keras reads shapes and dtypes only.
        specs = element.unflatten([tf.TensorSpec(s.shape, s.dtype) for s in element.specs])
        with self.distribute_strategy.scope():
            self._symbolic_build(data_batch=specs)

    def _open_feeds(self, epoch_iterator: TFEpochIterator) -> ElementFormat:
        """Makes Keras's iterator give feeds instead of datasets."""
        feeds = epoch_iterator._distributed_dataset
        if isinstance(feeds, _DatasetFeeds):  # the cached validation data of `fit`
            return feeds.element
        batches = data_checks.num_batches(epoch_iterator)
        data_checks.refuse_shortage(epoch_iterator, self._ipu_run.epochs)
        num_steps = data_checks.executed_steps(
            epoch_iterator.steps_per_execution,
            batches,
            per_epoch=epoch_iterator.steps_per_epoch is not None,
        )
        element = _element_format(epoch_iterator.data_adapter, feeds)
        epoch_iterator.steps_per_execution = num_steps
        epoch_iterator._distributed_dataset = _DatasetFeeds(
            feeds, element, self._ipu_run, num_steps, self._ipu_options, self._label_check(element)
        )
        if self._ipu_run.callbacks is not None:
            parameters = {**self._ipu_run.callbacks.params, "steps": batches}
            self._ipu_run.callbacks.set_params(parameters)
        return element

    def _label_check(self, element: ElementFormat):
        """Refuses labels that are not a number, which would destroy the weights.

        Losses of the user's own may give such labels a meaning.
        """
        if not self.compiled or not _is_keras_loss(self.loss):
            return None
        _, labels, weights = data_adapter_utils.unpack_x_y_sample_weight(element.structure)
        if weights is not None:
            return None
        positions = [
            position
            for position in tf.nest.flatten(labels)
            if position is not None and element.specs[position].dtype.startswith("float")
        ]

        def check(arrays: list[np.ndarray]) -> None:
            for position in positions:
                if np.isnan(arrays[position]).any():
                    raise ValueError(
                        "The labels contain NaN, which would make the loss and the weights NaN. "
                        "Remove these samples, or give them a weight of zero with a loss that "
                        f"masks them. Received: {np.isnan(arrays[position]).sum()} NaN values in "
                        f"a batch of labels of shape {arrays[position].shape}"
                    )

        return check

    def _predict(self, call: dict[str, Any], batch_size, steps):
        epoch_iterator = TFEpochIterator(
            x=call["x"],
            batch_size=batch_size,
            steps_per_epoch=steps,
            shuffle=False,
            distribute_strategy=self.distribute_strategy,
            steps_per_execution=self.steps_per_execution if self.compiled else 1,
        )
        self._maybe_symbolic_build(iterator=epoch_iterator)
        epoch_iterator.reset()
        callbacks = call["callbacks"]
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = keras.callbacks.CallbackList(
                callbacks,
                add_progbar=call["verbose"] != 0,
                verbose=call["verbose"],
                epochs=1,
                steps=epoch_iterator.num_batches,
                model=self,
            )
        self.make_predict_function()
        self.stop_predicting = False
        executions = []
        callbacks.on_predict_begin()
        for first, last, feed in epoch_iterator:
            callbacks.on_predict_batch_begin(first)
            outputs = self.predict_function(feed)
            executions.append(outputs)
            callbacks.on_predict_batch_end(last, self._predict_logs(outputs))
            if self.stop_predicting:
                break
        callbacks.on_predict_end()
        return tree.map_structure(_joined, *executions)

    def _predict_logs(self, outputs) -> dict[str, Any]:
        if self._ipu_options.asynchronous_callbacks:
            return StepLogs({"outputs": outputs})
        return {"outputs": tree.map_structure(_merged, outputs)}


class _Run:
    """What one call of `fit`, `evaluate` or `predict` has open."""

    def __init__(self, epochs: int):
        self.epochs = epochs
        self.callbacks: AsyncCallbackList | None = None
        self.feeds: list[DatasetFeed] = []

    def close(self) -> None:
        for feed in self.feeds:
            feed.close()
        if self.callbacks is not None:
            self.callbacks.close()


class _DatasetFeeds:
    """What Keras iterates in place of a dataset: a new feed for each pass."""

    def __init__(
        self,
        dataset: tf.data.Dataset,
        element: ElementFormat,
        run: _Run,
        num_steps: int,
        feed_options: options.ExtensionOptions,
        check,
    ):
        self.element = element
        self._dataset = dataset
        self._run = run
        self._arguments = {
            "num_steps": num_steps,
            "prefetch_depth": feed_options.prefetch_depth,
            "check": check,
            "name": feed_options.infeed_name or "infeed",
        }

    def __iter__(self) -> DatasetFeed:
        feed = DatasetFeed(self._dataset, self.element, **self._arguments)
        self._run.feeds.append(feed)
        return feed


def _bound(function, model, args, kwargs) -> dict[str, Any]:
    """The arguments of a call by name, defaults included."""
    bound = inspect.signature(function).bind(model, *args, **kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    arguments.pop("self")
    arguments.update(arguments.pop("kwargs", {}))
    return arguments


def _element_format(adapter, dataset: tf.data.Dataset) -> ElementFormat:
    """The format of a data adapter's batches.

    Keras leaves the batch axis of arrays and of `PyDataset`s open, though it is
    known: arrays were checked to fill their batches, and a `PyDataset` has to
    keep the shape of its first batch.
    """
    if isinstance(adapter, PyDatasetAdapter):
        return batch_format(tuple(adapter.py_dataset[0]))
    spec = dataset.element_spec
    if isinstance(adapter, ArrayDataAdapter):
        spec = tf.nest.map_structure(
            lambda leaf: tf.TensorSpec([adapter.batch_size, *leaf.shape[1:]], leaf.dtype), spec
        )
    return element_format(spec)


def _is_keras_loss(loss: Any) -> bool:
    def known(one) -> bool:
        return isinstance(one, str) or getattr(one, "__module__", "").startswith("keras.src.losses")

    return all(known(one) for one in tree.flatten(loss) if one is not None)


def _merged(stacked: np.ndarray) -> np.ndarray:
    """Batches `(steps, batch, ...)` as samples."""
    return stacked.reshape(-1, *stacked.shape[2:])


def _joined(*executions: np.ndarray) -> np.ndarray:
    return np.concatenate([_merged(outputs) for outputs in executions])
