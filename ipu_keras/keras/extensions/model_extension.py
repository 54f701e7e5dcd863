"""The extension of Keras models, which turns their steps into programs on an IPU device."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import saving, tree

from ipu_keras.feeds.dataset_feed import mapped
from ipu_keras.internals.keras.backend import with_mask_of
from ipu_keras.internals.keras.training import TensorFlowTrainer, TFEpochIterator, plain_logs
from ipu_keras.internals.keras_2_habits import explained
from ipu_keras.keras.extensions import data_checks
from ipu_keras.keras.extensions.argument_notes import notes_arguments
from ipu_keras.keras.extensions.async_callbacks import AsyncCallbackList, StepLogs
from ipu_keras.keras.extensions.data_advice import data_advice
from ipu_keras.keras.extensions.model_on_ipu import ModelOnIpu
from ipu_keras.keras.extensions.model_options import ModelOptions
from ipu_keras.keras.extensions.model_pipeline import ModelPipeline
from ipu_keras.keras.extensions.saved_options import SavedOptions
from ipu_keras.ops.argument_checks import check_integer, converted
from ipu_keras.settings.arguments import MOST, positive_integer, positive_or_none


class Arguments:
    """The signature of a method of a model, kept because to inspect it takes as long as a look
    at the data.

    Example:

    >>> arguments = Arguments(lambda self, x, y=None: None)
    >>> arguments.bound(None, [1], {})
    {'x': 1, 'y': None}
    """

    def __init__(self, method: Callable):
        self._signature = inspect.signature(method)

    def bound(self, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a call by name, defaults included."""
        bound = self._signature.bind(model, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        arguments.pop("self")
        arguments.update(arguments.pop("kwargs", {}))
        return arguments


# Signatures of the methods whose arguments are changed on their way to Keras.
_OF_COMPILE = Arguments(TensorFlowTrainer.compile)
_OF_FIT = Arguments(TensorFlowTrainer.fit)
_OF_EVALUATE = Arguments(TensorFlowTrainer.evaluate)


class ModelExtension(SavedOptions, ModelPipeline, ModelOptions, TensorFlowTrainer):
    """Extension of a model that is made in an `IPUStrategy`'s scope.

    `fit`, `evaluate`, `predict` and the `*_on_batch` methods compile the model's steps into
    programs and dispatch them to the strategy's device, `steps_per_execution` steps at a time,
    wherever they are called from.

    The class stands between `keras.Model` and Keras's trainer, whose methods it overrides:
    methods that a model's own class overrides in turn get their arguments unchanged, and reach
    this extension with `super()`.

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

    # A cached property writes to the model's `__dict__`. An assignment would go through Keras,
    # which looks for weights in what is assigned.
    _ipu = functools.cached_property(lambda model: ModelOnIpu(model, ModelExtension))

    # Attributes of Keras's trainer.
    train_function: Any
    test_function: Any
    predict_function: Any

    def __init__(self, *args, **kwargs):
        # Models do not get here: `keras.Model` calls the initialiser of Keras's trainer by name.
        raise TypeError(
            f"{type(self).__name__} is no model by itself. Make a keras.Model in the scope of an "
            "IPUStrategy, which adds it."
        )

    def __reduce__(self):
        # Pickled as a model of Keras's class: an extended class has no name to import.
        _, saved = super().__reduce__()
        return keras.Model._unpickle_model, saved

    @explained
    def __call__(self, *args, **kwargs):
        """Calls the model as Keras does, and keeps the arguments, from which pipelines are
        traced."""
        self._ipu.stages.note_arguments(args, kwargs)
        return super().__call__(*args, **kwargs)

    @explained
    @notes_arguments(TensorFlowTrainer.compile)
    def compile(self, *args, **kwargs) -> None:
        """Configures training as `keras.Model.compile` does.

        With `run_eagerly` the model can be compiled, and `fit`, `evaluate` and `predict` refuse
        to run it, as no IPU program can be run so.

        Args:
            *args: Arguments of `keras.Model.compile`, in its order.
            **kwargs: Arguments of `keras.Model.compile` by name. `jit_compile` chooses how the
                host runs the programs; leave it at `"auto"` for the fastest way.

        Raises:
            ValueError: `steps_per_execution` is not a positive integer.
        """
        call = _OF_COMPILE.bound(self, args, kwargs)
        count = positive_integer("steps_per_execution", call["steps_per_execution"])
        call["steps_per_execution"] = count
        # Kept here, as Keras replaces `"auto"` by what it resolved that to.
        asked = call["jit_compile"]
        self._ipu.compiled = asked if isinstance(asked, bool) else None
        with self._ipu.scope():
            call["optimizer"] = converted("optimizer", keras.optimizers.get, call["optimizer"])
            super().compile(**call)

    def compile_from_config(self, config) -> None:
        """Compiles a loaded model as Keras does, with `jit_compile="auto"` again.

        What `"auto"` had become when the model was saved need not hold here.
        """
        if type(self).compile is not ModelExtension.compile:
            super().compile_from_config(config)
            return
        # Keras takes any `compile` but its own for one that it cannot call with saved arguments.
        arguments = saving.deserialize_keras_object(config)
        self.compile(**{**arguments, "jit_compile": "auto"})
        if self.optimizer is not None and self.built:
            self._ipu.adopt_optimizers()
            with self._ipu.scope():
                self.optimizer.build(self.trainable_variables)

    @explained
    @notes_arguments(TensorFlowTrainer.fit, data_advice)
    def fit(self, *args, **kwargs):
        """Trains on the IPU device, with the arguments of `keras.Model.fit`.

        The number of batches of an epoch has to be known, and all batches have one shape.
        Replicas share the batches, and so `steps_per_epoch`; what they cannot share evenly is
        dropped, with a warning. The steps of each replica are a multiple of
        `steps_per_execution`.

        Args:
            *args: Arguments of `keras.Model.fit`, in its order.
            **kwargs: Arguments of `keras.Model.fit` by name.

        Returns:
            Keras's `History`.
        """
        call = _OF_FIT.bound(self, args, kwargs)
        for count in ("steps_per_epoch", "validation_steps", "batch_size", "validation_batch_size"):
            call[count] = positive_or_none(count, call[count])
        for epoch in ("epochs", "initial_epoch"):
            call[epoch] = check_integer(epoch, call[epoch], 0, MOST)
        data_checks.refuse_generators(call["validation_data"])
        epochs = max(call["epochs"] - call["initial_epoch"], 0)
        with (
            self._ipu.running("train", call, epochs, add_history=True),
            self._ipu.validating(call, epochs),
        ):
            if self.compiled:  # if not, Keras says so before it looks at the data
                call = self._ipu.with_array_data(call, call["steps_per_epoch"])
            return super().fit(**call)

    @explained
    @notes_arguments(TensorFlowTrainer.evaluate, data_advice)
    def evaluate(self, *args, **kwargs):
        """Evaluates on the IPU device, with the arguments of `keras.Model.evaluate`.

        Args:
            *args: Arguments of `keras.Model.evaluate`, in its order.
            **kwargs: Arguments of `keras.Model.evaluate` by name.

        Returns:
            The loss and the metrics as Keras returns them.
        """
        call = _OF_EVALUATE.bound(self, args, kwargs)
        for count in ("steps", "batch_size"):
            call[count] = positive_or_none(count, call[count])
        with self._ipu.running("test", call):
            # `fit` validates with the iterator that it has kept from its first validation.
            if self.compiled and not call.get("_use_cached_eval_dataset"):
                call = self._ipu.with_array_data(call, call["steps"])
            return super().evaluate(**call)

    @explained
    @notes_arguments(TensorFlowTrainer.predict, data_advice)
    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """Predicts on the IPU device, with the arguments of `keras.Model.predict`.

        Args:
            x: Samples as arrays, a `tf.data.Dataset` or a `keras.utils.PyDataset`.
            batch_size: Rows of a batch if `x` is arrays; `None` for 32.
            verbose: Whether to show progress, as Keras takes it.
            steps: Batches of all replicas; `None` for all that there are.
            callbacks: Callbacks of Keras, or a `CallbackList`.

        Returns:
            NumPy arrays `(samples, ...)` in the model's output structure.
        """
        steps = positive_or_none("steps", steps)
        batch_size = positive_or_none("batch_size", batch_size)
        call = {"x": x, "batch_size": batch_size, "callbacks": callbacks, "verbose": verbose}
        with self._ipu.running("predict", call):
            epoch_iterator = TFEpochIterator(
                x=self._ipu.with_array_data(call, steps)["x"],
                batch_size=batch_size,
                steps_per_epoch=steps,
                distribute_strategy=self.distribute_strategy,
                steps_per_execution=self.steps_per_execution,
            )
            self._ipu.check_data(iterator=epoch_iterator)
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

    @explained
    @notes_arguments(TensorFlowTrainer.train_on_batch)
    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):
        """Takes one step of training on the IPU device, as `keras.Model.train_on_batch` does.

        Args:
            x: Inputs of one batch, which go without an infeed, so that their integers may also
                be of types that `fit` refuses, such as int64.
            y: Labels of the batch, with the same freedom as `x`.
            sample_weight: Weights of the samples, with the same freedom as `x`.
            class_weight: Weights by the index of the class, as in Keras.
            return_dict: Whether to return a dictionary instead of a list.

        Returns:
            The loss and the metrics as Keras returns them.
        """
        x, y, sample_weight = self._ipu.batch("train", (x, y, sample_weight))
        return super().train_on_batch(x, y, sample_weight, class_weight, return_dict)

    @explained
    @notes_arguments(TensorFlowTrainer.test_on_batch)
    def test_on_batch(self, x, y=None, sample_weight=None, return_dict=False):
        """Evaluates one batch on the IPU device, as `keras.Model.test_on_batch` does.

        Args:
            x: Inputs of one batch, as `train_on_batch` takes them.
            y: Labels of the batch, as `train_on_batch` takes them.
            sample_weight: Weights of the samples, as `train_on_batch` takes them.
            return_dict: Whether to return a dictionary instead of a list.

        Returns:
            The loss and the metrics as Keras returns them.
        """
        x, y, sample_weight = self._ipu.batch("test", (x, y, sample_weight))
        return super().test_on_batch(x, y, sample_weight, return_dict)

    @explained
    @notes_arguments(TensorFlowTrainer.predict_on_batch)
    def predict_on_batch(self, x):
        """Predicts one batch on the IPU device, as `keras.Model.predict_on_batch` does.

        Args:
            x: Inputs of one batch, as `train_on_batch` takes them.

        Returns:
            NumPy arrays `(batch, ...)` in the model's output structure.
        """
        data = self._ipu.batch("predict", (x,))
        self.make_predict_function()
        return mapped(lambda output: output[0], self.predict_function([data]))

    def make_train_function(self, force=False):
        """Makes the function that Keras calls for each execution of training."""
        if self.train_function is None or force:
            self.train_function = self._ipu.steps.train_function()

    def make_test_function(self, force=False):
        """Makes the function that Keras calls for each execution of evaluation."""
        if self.test_function is None or force:
            self.test_function = self._ipu.steps.test_function()

    def make_predict_function(self, force=False):
        """Makes the function that `predict` calls for each execution."""
        if self.predict_function is None or force:
            self.predict_function = self._ipu.steps.predict_function()

    def reset_metrics(self):
        """Resets the metrics as Keras does, in fewer operations."""
        self._ipu.metrics.reset()

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Computes metrics of halves in float32, as software for IPUs does.

        Keras 3 computes them in the type of the predictions: the square of an error of 256 would
        be 65504.
        """
        y, y_pred = tree.map_structure(_widened, (y, y_pred))
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def _get_metrics_result_or_logs(self, logs):
        """Returns a step's logs where Keras would look the metrics up on the host.

        The variables that the host sees are replica 0's, and those of accumulated logs are of
        the last step alone.
        """
        world = self.distribute_strategy.world
        if self._ipu.num_replicas > 1 or self._ipu.steps.accumulates_logs("test"):
            return plain_logs(logs if world.size == 1 else self._ipu.metrics.means(logs))
        if world.size > 1:
            with self._ipu.metrics.of_all_processes():
                return super()._get_metrics_result_or_logs(logs)
        if self._ipu.metrics.are_in(logs):
            return plain_logs(logs)  # sorted by name, as Keras wants them
        return super()._get_metrics_result_or_logs(logs)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Checks data and builds the model from its format, before Keras reads any."""
        self._ipu.build(self._ipu.check_data(iterator, data_batch))
        if iterator is not None:
            self._ipu.check_validation()


def predict_feed(
    model: keras.Model, epoch_iterator: TFEpochIterator, callbacks: keras.callbacks.CallbackList
) -> Any:
    """Predicts all batches, as NumPy arrays `(samples, ...)` in the model's output structure.

    Keras's own loop reads single batches from its iterator and joins tensors; here the iterator
    gives feeds, and an execution returns the outputs of all its steps.
    """
    model.make_predict_function()
    model.stop_predicting = False
    executions = []
    callbacks.on_predict_begin()
    for first, last, feed in epoch_iterator:
        callbacks.on_predict_batch_begin(first)
        outputs = model.predict_function(feed)
        executions.append(outputs)
        callbacks.on_predict_batch_end(last, _logs(outputs, callbacks))
        if model.stop_predicting:
            break
    callbacks.on_predict_end()
    return tree.map_structure(_joined, *executions)


def _widened(tensor: Any) -> Any:
    """Returns halves as float32, with their mask; `None`, and anything else, as it is."""
    if tensor is None or keras.backend.standardize_dtype(tensor.dtype) != "float16":
        return tensor
    return with_mask_of(tensor, keras.ops.cast(tensor, "float32"))


def _logs(outputs: Any, callbacks: keras.callbacks.CallbackList) -> dict[str, Any]:
    if isinstance(callbacks, AsyncCallbackList):
        return StepLogs({"outputs": outputs})
    return {"outputs": tree.map_structure(_merged, outputs)}


def _merged(stacked: np.ndarray) -> np.ndarray:
    return stacked.reshape(-1, *stacked.shape[2:])


def _joined(*executions: np.ndarray) -> np.ndarray:
    return np.concatenate([_merged(outputs) for outputs in executions])
