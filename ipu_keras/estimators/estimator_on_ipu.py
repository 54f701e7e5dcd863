"""What both estimators have: graphs of their own for each call, sessions, checkpoints, results."""

import contextlib
import copy
import itertools
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from ipu_keras.config import IPUConfig, configure_ipu_system
from ipu_keras.device import DRIVER
from ipu_keras.estimators import saved_models
from ipu_keras.estimators.host_metrics import HostMetrics
from ipu_keras.estimators.loop_sessions import (
    CompiledLoop,
    batches_of,
    closed,
    examples_of,
    fetched,
    opened,
    train,
    unseen_by_hooks,
)
from ipu_keras.estimators.specs import ModeKeys, warm_start_settings
from ipu_keras.estimators.training_workers import TrainingWorkers
from ipu_keras.estimators.user_functions import (
    called_model_function,
    check_model_function,
    dataset_of,
)
from ipu_keras.internals.keras.backend import number_names_anew
from ipu_keras.ipu_compiler import compile
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_keras.ipu_run_config import RunConfig
from ipu_keras.machine.system import SYSTEM
from ipu_keras.ops.summary_ops import ipu_compile_summary
from ipu_keras.processes.checkpoints import written_once
from ipu_keras.scopes import ipu_scope
from ipu_keras.settings.arguments import noted, positive_integer, positive_or_none
from ipu_keras.settings.config_tree import has_options_of

_V1 = tf.compat.v1
_HOST = "/device:CPU:0"
_ALONE = TrainingWorkers(None)


class EstimatorOnIpu(ABC):
    """Trains, evaluates and runs the model of a function, whose loops run on an IPU.

    Each call builds a graph of its own, in which names of Keras's layers begin from the start, so
    that variables find themselves in checkpoints.

    Args:
        model_fn: A function that describes the model.
        model_dir: Folder of checkpoints and summaries. Defaults to that of `config`, or to a new
            temporary one.
        config: A `RunConfig`. Defaults to one with all defaults.
        params: A dict that the model function and input functions get as `params`.
        warm_start_from: A path, or a `WarmStartSettings`, with whose variables the first training
            begins.
    """

    _takes_features = True

    def __init__(
        self,
        model_fn: Any,
        model_dir: Any = None,
        config: RunConfig | None = None,
        params: Mapping[str, Any] | None = None,
        warm_start_from: Any = None,
    ):
        check_model_function(model_fn, takes_features=self._takes_features)
        given = RunConfig() if config is None else config
        if not isinstance(given, RunConfig):
            raise TypeError(
                "`config` must be an ipu_run_config.RunConfig. "
                f"Received: config={config!r} of type {type(config).__name__}"
            )
        if not isinstance(params, Mapping | None):
            raise TypeError(f"`params` must be a dict. Received: params={params!r}")
        self._model_fn = model_fn
        self._model_dir = _model_dir(model_dir, given.model_dir)
        self._config = given.replace(model_dir=self._model_dir)
        self._params = copy.deepcopy(dict(params or {}))
        self._warm_start = warm_start_settings(warm_start_from)
        self._workers = TrainingWorkers(given.train_distribute)

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints and summaries."""
        return self._model_dir

    @property
    def config(self) -> RunConfig:
        """A copy of how it runs."""
        return copy.copy(self._config)

    @property
    def params(self) -> dict[str, Any]:
        """A copy of what the functions get as `params`."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Any:
        """The model function with `params` bound: of features, labels, mode and config."""

        def bound(features: Any, labels: Any, mode: str, config: Any) -> Any:
            given = features if self._takes_features else None
            return called_model_function(self._model_fn, given, labels, mode, self._params, config)

        return bound

    def eval_dir(self, name: str | None = None) -> str:
        """Returns the folder of the summaries of evaluations.

        Args:
            name: Name of the evaluation, if there are several.

        Returns:
            A folder in `model_dir`.
        """
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the newest checkpoint in `model_dir`, or `None`.

        Returns:
            The path without an extension, as `checkpoint_path` takes it.
        """
        return tf.train.latest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """Returns the names of all variables in the newest checkpoint.

        Returns:
            A list of texts.

        Raises:
            ValueError: There is no checkpoint yet.
        """
        return [name for name, _ in tf.train.list_variables(self._required_checkpoint())]

    def get_variable_value(self, name: str) -> np.ndarray:
        """Returns the value of a variable in the newest checkpoint.

        Args:
            name: Name of the variable.

        Returns:
            An array of its shape and type.

        Raises:
            ValueError: There is no checkpoint yet.
        """
        return tf.train.load_variable(self._required_checkpoint(), name)

    def train(
        self,
        input_fn: Any,
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> Self:
        """Trains the model, from the newest checkpoint on if there is one.

        Args:
            input_fn: A function that returns a `tf.data.Dataset` of `(features, labels)`. It may
                have the arguments `mode`, `params` and `config`.
            hooks: A list of `tf.estimator.SessionRunHook`.
            steps: How many more steps to train: batches of each replica.
            max_steps: Up to which global step to train. Without both, until a hook asks to stop.
            saving_listeners: A list of `CheckpointSaverListener`.

        Returns:
            The estimator.

        Raises:
            ValueError: The steps are no multiple of `iterations_per_loop`, both counts are given,
                or the functions return something else than they have to.
        """
        if steps is not None and max_steps is not None:
            raise ValueError(
                "Only one of `steps` and `max_steps` can be given. "
                f"Received: steps={steps}, max_steps={max_steps}"
            )
        positive_or_none("steps", steps)
        positive_or_none("max_steps", max_steps)
        begin = self._global_step(self.latest_checkpoint())
        if max_steps is not None and begin >= max_steps:
            _V1.logging.info(f"Nothing to train: the checkpoint has max_steps={max_steps} already.")
            return self
        if steps is None and max_steps is not None:
            steps = max_steps - begin
        self._check_steps(steps)
        with self._graph() as graph, self._workers.scope():
            dataset = self._dataset(input_fn, ModeKeys.TRAIN, self._workers)
            loop = self._compiled(ModeKeys.TRAIN, dataset, self._workers)
            loss = self._training_loss(loop)
            on_host = self._workers.run(lambda: self._host_operations(loop), _HOST)
            with tf.control_dependencies([loss, *on_host]):
                step = _V1.assign(
                    _V1.train.get_global_step(graph),
                    loop.first_step + self._iterations,
                )
            self._add_summaries(loop, loss)
            if self._warm_start is not None and begin == 0:
                _V1.train.warm_start(**self._warm_start._asdict())
            train(loop, loss, step, steps, self._config, self._workers, hooks, saving_listeners)
        return self

    def evaluate(
        self,
        input_fn: Any,
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluates the model, with new variables if there is no checkpoint.

        Args:
            input_fn: A function that returns a `tf.data.Dataset` of `(features, labels)`.
            steps: How many batches each replica evaluates. Defaults to those of the dataset, if it
                says how many these are.
            hooks: A list of `tf.estimator.SessionRunHook`.
            checkpoint_path: The checkpoint. Defaults to the newest of `model_dir`.
            name: Name of the evaluation, for its summaries.

        Returns:
            A dict of the metrics, the mean `loss`, and the `global_step` of the checkpoint.

        Raises:
            ValueError: The steps are no multiple of `iterations_per_loop`, the dataset has fewer
                batches, or the functions return something else than they have to.
        """
        positive_or_none("steps", steps)
        checkpoint = checkpoint_path or self.latest_checkpoint()
        with self._graph() as graph:
            dataset = self._dataset(input_fn, ModeKeys.EVAL)
            steps = self._steps_of(dataset, graph) if steps is None else steps
            self._check_steps(steps)
            loop = self._compiled(ModeKeys.EVAL, dataset)
            results, metrics = self._evaluation(loop)
            found: list[Any] = []
            step = None
            with opened(loop, ModeKeys.EVAL, self._config, hooks, checkpoint) as session:
                for _ in range(steps // self._iterations):
                    if session.should_stop():
                        break
                    found.append(session.run(results))
                    if metrics is not None:
                        unseen_by_hooks(session, metrics.update, found[-1]["metrics"])
                step = unseen_by_hooks(session, fetched, _V1.train.get_global_step(graph))
                values = {} if metrics is None else unseen_by_hooks(session, metrics.values)
        if step is None:
            # The session has closed itself, as where training comes to the end of its data.
            raise ValueError(
                f"`steps` must be at most the batches that each replica can get. Received: "
                f"steps={steps}, and a dataset that ended within the batches "
                f"{len(found) * self._iterations + 1} to {(len(found) + 1) * self._iterations} "
                f"of each of the {self._ipus.num_replicas} replica(s)"
            )
        values |= self._means(found)
        values["global_step"] = step
        self._write(values, self.eval_dir(name))
        return values

    def predict(
        self,
        input_fn: Any,
        predict_keys: Sequence[str] | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
        num_predictions: int | None = None,
    ) -> Iterator[Any]:
        """Yields predictions, with new variables if there is no checkpoint.

        Args:
            input_fn: A function that returns a `tf.data.Dataset` of features, or of tuples that
                begin with features.
            predict_keys: Names of the predictions to yield. Defaults to all.
            hooks: A list of `tf.estimator.SessionRunHook`.
            checkpoint_path: The checkpoint. Defaults to the newest of `model_dir`.
            yield_single_examples: Whether each example is yielded, and not each batch.
            num_predictions: After how many it ends. By default it goes on, and fails behind the
                end of the dataset.

        Yields:
            An array of the shape of the prediction, or a dict of such.

        Raises:
            ValueError: The model predicts none of `predict_keys`, or examples cannot be told apart.
            tf.errors.OutOfRangeError: The dataset has fewer elements than the next
                `iterations_per_loop` batches of all replicas need.
        """
        positive_or_none("num_predictions", num_predictions)
        return self._predictions(
            input_fn, predict_keys, hooks, checkpoint_path, yield_single_examples, num_predictions
        )

    def export_saved_model(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Any,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> str:
        """Writes the model as a SavedModel, which runs without an IPU.

        Args:
            export_dir_base: Folder in which one with the time as its name is made.
            serving_input_receiver_fn: A function that returns a
                `tf.estimator.export.ServingInputReceiver` or one of the other receivers.
            assets_extra: A dict from names in the folder `assets.extra` to files to copy there.
            as_text: Whether the graph is written as text.
            checkpoint_path: The checkpoint. Defaults to the newest of `model_dir`.
            experimental_mode: Which of the `ModeKeys` is written.

        Returns:
            The path of the folder.

        Raises:
            ValueError: There is no checkpoint, or `serving_input_receiver_fn` is missing.
        """
        receivers = {experimental_mode: serving_input_receiver_fn}
        return self._export(export_dir_base, receivers, assets_extra, as_text, checkpoint_path)

    def export_savedmodel(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Any,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> str:
        """Writes the model as a SavedModel; deprecated, in favour of `export_saved_model`.

        Args:
            export_dir_base: Folder in which one with the time as its name is made.
            serving_input_receiver_fn: A function that returns a receiver.
            assets_extra: A dict from names in the folder `assets.extra` to files to copy there.
            as_text: Whether the graph is written as text.
            checkpoint_path: The checkpoint. Defaults to the newest of `model_dir`.
            strip_default_attrs: Whether attributes that have their defaults are left out.

        Returns:
            The path of the folder.

        Raises:
            ValueError: There is no checkpoint, or `serving_input_receiver_fn` is missing.
        """
        return self._export(
            export_dir_base,
            {ModeKeys.PREDICT: serving_input_receiver_fn},
            assets_extra,
            as_text,
            checkpoint_path,
            strip_default_attrs,
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str,
        input_receiver_fn_map: Mapping[str, Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> str:
        """Writes graphs for several modes as one SavedModel, with one set of variables.

        Args:
            export_dir_base: Folder in which one with the time as its name is made.
            input_receiver_fn_map: A dict from `ModeKeys` to functions that return receivers.
            assets_extra: A dict from names in the folder `assets.extra` to files to copy there.
            as_text: Whether graphs are written as text.
            checkpoint_path: The checkpoint. Defaults to the newest of `model_dir`.

        Returns:
            The path of the folder.

        Raises:
            ValueError: There is no checkpoint, or a function is missing.
        """
        return self._export(
            export_dir_base, input_receiver_fn_map, assets_extra, as_text, checkpoint_path
        )

    @abstractmethod
    def _loop(
        self,
        mode: str,
        infeed: IPUInfeedQueue,
        outfeed: IPUOutfeedQueue,
        specs: list[Any],
    ) -> tf.Operation:
        """Puts the loop into a computation; appends to `specs` what the model function returns."""

    @abstractmethod
    def _training_loss(self, loop: CompiledLoop) -> tf.Tensor:
        """Returns the mean loss of a call of the session."""

    @abstractmethod
    def _evaluation(self, loop: CompiledLoop) -> tuple[dict[str, Any], HostMetrics | None]:
        """Returns what a call of the session is asked for, and metrics of its `metrics`."""

    @abstractmethod
    def _means(self, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Returns the metrics that follow from what all calls of the session returned."""

    @abstractmethod
    def _exported(self, mode: str, features: Any, labels: Any) -> saved_models.ExportedModel:
        """Returns a model in a graph without an IPU."""

    def _host_operations(self, loop: CompiledLoop) -> Sequence[Any]:
        """Returns what runs on the host after each loop of training."""
        return ()

    def _predicted(self, results: Any) -> Any:
        """Returns the predictions among what a loop sent."""
        return results

    def _params_for(self, mode: str) -> Mapping[str, Any]:
        """Returns what functions get as `params`."""
        return self._params

    def _model(self, mode: str, features: Any = None, labels: Any = None) -> Any:
        params = self._params_for(mode)
        return called_model_function(self._model_fn, features, labels, mode, params, self._config)

    @property
    def _ipus(self) -> Any:
        return self._config.ipu_run_config

    @property
    def _iterations(self) -> int:
        return self._ipus.iterations_per_loop

    @contextlib.contextmanager
    def _graph(self) -> Iterator[tf.Graph]:
        """Opens a graph for one call, whose variables are called as in any other."""
        self._configure()
        graph = tf.Graph()
        with graph.as_default(), tf.device(self._config.device_fn):
            graph.seed = self._config.tf_random_seed
            number_names_anew()
            # A function can capture only resources.
            with _V1.variable_scope(_V1.get_variable_scope(), use_resource=True):
                _V1.train.create_global_step(graph)
            yield graph

    def _configure(self) -> None:
        """Configures the system, unless that was done, and checks how many IPUs there are."""
        given = self._ipus
        count = given.num_replicas * given.num_shards
        options = given.ipu_options
        if options is None and not SYSTEM.devices:
            options = IPUConfig()
            options.auto_select_ipus = count
        is_active = (
            SYSTEM.devices and options is not None and has_options_of(SYSTEM.config, options)
        )
        if options is not None and not is_active:
            configure_ipu_system(options)
        num_ipus = len(DRIVER.device_for(given.ordinal).ipus)
        if num_ipus != count:
            raise ValueError(
                f"IPURunConfig configured with {count} devices ({given.num_replicas} num_replicas "
                f"times {given.num_shards} num_shards), but the device "
                f"'/device:IPU:{given.ordinal}' has {num_ipus} IPUs. Give an `ipu_options` with "
                "that number, such as `auto_select_ipus`."
            )

    def _dataset(
        self, input_fn: Any, mode: str, workers: TrainingWorkers = _ALONE
    ) -> tf.data.Dataset:
        params = self._params_for(mode)
        return dataset_of(input_fn, mode, params, self._config, workers.input_context)

    def _check_steps(self, steps: int | None) -> None:
        if steps is not None and steps % self._iterations:
            raise noted(
                ValueError(
                    f"steps ({steps}) must be a multiple of iterations_per_loop "
                    f"({self._iterations})"
                ),
                "A loop on the IPU is not left before its end. Take another number of steps, or "
                "another `iterations_per_loop` in the IPURunConfig.",
            )

    def _steps_of(self, dataset: tf.data.Dataset, graph: tf.Graph) -> int:
        """Returns how many batches of a dataset there are for each replica."""
        with _V1.Session(graph=graph) as session:
            size = int(session.run(dataset.cardinality()))
        if size < 1:
            raise ValueError(
                "`steps` must be given, as the dataset of `input_fn` does not say how many "
                f"elements it has. Received: steps=None, and a cardinality of {size}"
            )
        return positive_integer("steps", size // self._ipus.num_replicas)

    def _compiled(
        self, mode: str, dataset: tf.data.Dataset, workers: TrainingWorkers = _ALONE
    ) -> CompiledLoop:
        """Puts the loop of a model into the graph."""
        ordinal = self._ipus.ordinal
        infeed = IPUInfeedQueue(
            dataset, device_ordinal=ordinal, prefetch_depth=self._ipus.prefetch_depth
        )
        outfeed = IPUOutfeedQueue(device_ordinal=ordinal)
        specs: list[Any] = []
        first_step = tf.identity(_V1.train.get_global_step().read_value())
        # The model may count the global step as well, so it is read before, and set afterwards.
        with tf.control_dependencies([first_step]):
            begin = tf.identity(tf.zeros([]))

        def loop(begin: tf.Tensor) -> tf.Operation:
            return self._loop(mode, infeed, outfeed, specs)

        with ipu_scope(device := f"/device:IPU:{ordinal}"):
            done = workers.run(lambda: compile(loop, [begin]), device)
        with tf.control_dependencies([done]):
            results = tf.nest.map_structure(tf.identity, outfeed.dequeue())
        return CompiledLoop(specs[-1], results, first_step, infeed.initializer)

    def _add_summaries(self, loop: CompiledLoop, loss: tf.Tensor) -> None:
        _V1.summary.scalar("loss", loss)
        if self._ipus.compile_summary:
            ipu_compile_summary("compile_summary", [loss])

    def _predictions(
        self,
        input_fn: Any,
        keys: Sequence[str] | None,
        hooks: Sequence[Any] | None,
        checkpoint: str | None,
        one_by_one: bool,
        num_predictions: int | None,
    ) -> Iterator[Any]:
        with self._graph() as graph:
            dataset = self._dataset(input_fn, ModeKeys.PREDICT)
            loop = self._compiled(ModeKeys.PREDICT, dataset)
            predicted = _chosen(self._predicted(loop.results), keys)
            checkpoint = checkpoint or self.latest_checkpoint()
        # A generator must not leave its graph open while whoever uses it goes on.
        with contextlib.ExitStack() as context:
            with graph.as_default():
                session = opened(loop, ModeKeys.PREDICT, self._config, hooks, checkpoint)
                context.callback(closed, session, graph)
            num_axes = 1 if self._ipus.num_replicas == 1 else 2
            batches = batches_of(session, predicted, num_axes)
            found = (
                itertools.chain.from_iterable(map(examples_of, batches)) if one_by_one else batches
            )
            yield from itertools.islice(found, num_predictions)

    def _export(
        self,
        folder: str,
        receivers: Mapping[str, Any],
        assets: Mapping[str, str] | None,
        as_text: bool,
        checkpoint: str | None,
        strip_default_attrs: bool = True,
    ) -> str:
        checkpoint = checkpoint or self._required_checkpoint()

        def write() -> str:
            return saved_models.write(
                folder,
                receivers,
                self._exported,
                checkpoint,
                assets_extra=assets or {},
                as_text=as_text,
                strip_default_attrs=strip_default_attrs,
            )

        return written_once(os.path.join(folder, ":export"), write)

    def _required_checkpoint(self) -> str:
        found = self.latest_checkpoint()
        if found is None:
            raise ValueError(
                f"Couldn't find trained model at {self.model_dir}: call `train` first, or give "
                "another `checkpoint_path` or `model_dir`."
            )
        return found

    def _global_step(self, checkpoint: str | None) -> int:
        if checkpoint is None:
            return 0
        return int(tf.train.load_variable(checkpoint, _V1.GraphKeys.GLOBAL_STEP))

    def _write(self, values: Mapping[str, Any], folder: str) -> None:
        """Writes metrics as summaries."""
        summary = _V1.Summary()
        for name, value in values.items():
            if name != "global_step" and np.ndim(value) == 0:
                summary.value.add(tag=name, simple_value=float(value))
        with tf.Graph().as_default():
            writer = _V1.summary.FileWriterCache.get(folder)
        writer.add_summary(summary, int(values["global_step"]))
        writer.flush()


def _model_dir(given: Any, of_config: str | None) -> str:
    folder = None if given is None else os.fspath(given)
    if folder is not None and of_config is not None and folder != of_config:
        raise ValueError(
            "`model_dir` and that of `config` must be the same if both are given. "
            f"Received: model_dir={folder!r}, and {of_config!r} in the config"
        )
    return folder or of_config or tempfile.mkdtemp()


def _chosen(predictions: Any, keys: Sequence[str] | None) -> Any:
    if keys is None:
        return predictions
    if not isinstance(predictions, Mapping):
        raise ValueError(
            "`predict_keys` are for predictions that are a dict. "
            f"Received: predict_keys={keys!r} for {predictions!r}"
        )
    chosen = {name: value for name, value in predictions.items() if name in keys}
    if not chosen:
        raise ValueError(
            "The model must predict one of `predict_keys`. Received: "
            f"predict_keys={list(keys)}, and predictions {list(predictions)}"
        )
    return chosen
