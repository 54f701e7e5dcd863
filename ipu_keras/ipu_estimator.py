"""An estimator whose model is one program, of one or more replicas."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ipu_keras.estimators.estimator_on_ipu import EstimatorOnIpu
from ipu_keras.estimators.host_metrics import HostMetrics
from ipu_keras.estimators.loop_sessions import CompiledLoop
from ipu_keras.estimators.replicated_training import check_exchange
from ipu_keras.estimators.saved_models import ExportedModel
from ipu_keras.estimators.specs import EstimatorSpec, ModeKeys, pairs_of
from ipu_keras.functions.loop_bodies import call_with_element
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_keras.loops import repeat
from ipu_keras.settings.arguments import positive_or_none

_V1 = tf.compat.v1


class _IPUEstimatorSpec(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: Any
    eval_metrics: Any
    host_call: Any
    training_hooks: Any
    evaluation_hooks: Any
    prediction_hooks: Any


class IPUEstimatorSpec(_IPUEstimatorSpec):
    """A model as a model function describes it, with what only IPUs have.

    Args:
        mode: A `tf.estimator.ModeKeys`: what the model function was called for.
        predictions: A tensor of `(batch, ...)`, or a dict of them; needed for predictions.
        loss: A scalar; needed for training and evaluation.
        train_op: The operation, or tensor, that updates the weights; needed for training.
        eval_metric_ops: A dict from names to pairs of a metric's value and the tensor that updates
            it, both computed on the IPU. Their last update counts; with several replicas they begin
            anew in each loop, and the mean over loops and replicas counts.
        eval_metrics: A pair of a function and its tensors, a list or a dict of them. The function
            runs on the host, and returns a dict from names to such pairs. One of
            `eval_metric_ops` and `eval_metrics` is needed for evaluation.
        host_call: A pair of a function and its tensors, for training: the function runs on the
            host after each step, as `iterations_per_loop` has to be 1, and returns an operation.
        training_hooks: Hooks while the model is trained.
        evaluation_hooks: Hooks while the model is evaluated.
        prediction_hooks: Hooks while it predicts.

    Example:

    >>> IPUEstimatorSpec("infer", predictions=tf.constant([1.0])).mode
    'infer'
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Mapping[str, tuple] | None = None,
        eval_metrics: tuple | None = None,
        host_call: tuple | None = None,
        training_hooks: Sequence[Any] | None = None,
        evaluation_hooks: Sequence[Any] | None = None,
        prediction_hooks: Sequence[Any] | None = None,
    ):
        """Gives what is left out its default."""
        return super().__new__(
            cls,
            mode,
            predictions,
            loss,
            train_op,
            eval_metric_ops,
            eval_metrics,
            host_call,
            training_hooks,
            evaluation_hooks,
            prediction_hooks,
        )


class IPUEstimator(EstimatorOnIpu):
    """Trains, evaluates and runs the model of a function on an IPU.

    The model function is traced as the body of a loop of `iterations_per_loop` batches, which is
    one program. Each replica gets a batch of its own, element k of the dataset replica k modulo
    their number; to train with several, wrap the optimizer in a `CrossReplicaOptimizer`.

    Args:
        model_fn: A function with the argument `features`, and any of `labels`, `mode`, `params`
            and `config`. It returns an `IPUEstimatorSpec` or a `tf.estimator.EstimatorSpec`.
        model_dir: Folder of checkpoints and summaries. Defaults to that of `config`, or to a new
            temporary one.
        config: An `ipu_run_config.RunConfig`. Defaults to one with all defaults.
        params: A dict that the model function and input functions get as `params`.
        warm_start_from: A path of a checkpoint or SavedModel, or a
            `tf.estimator.WarmStartSettings`, with whose variables the first training begins.
        train_batch_size: The batch of all replicas and workers together in training: the functions
            get the part of each as `params["batch_size"]`.
        eval_batch_size: The same for evaluation.
        predict_batch_size: The same for predictions.

    Raises:
        TypeError: `config` is no `RunConfig`.
        ValueError: The model function has other arguments, or a batch cannot be divided.

    Example:

        def model_fn(features, labels, mode):
            logits = keras.layers.Dense(10)(features)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
            return IPUEstimatorSpec(mode, loss=loss, train_op=train_op)

        config = RunConfig(IPURunConfig(iterations_per_loop=100))
        IPUEstimator(model_fn, "model", config).train(input_fn, steps=1000)
    """

    def __init__(
        self,
        model_fn: Any,
        model_dir: Any = None,
        config: Any = None,
        params: Mapping[str, Any] | None = None,
        warm_start_from: Any = None,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
    ):
        super().__init__(model_fn, model_dir, config, params, warm_start_from)
        sizes = {
            ModeKeys.TRAIN: ("train_batch_size", train_batch_size),
            ModeKeys.EVAL: ("eval_batch_size", eval_batch_size),
            ModeKeys.PREDICT: ("predict_batch_size", predict_batch_size),
        }
        self._batch_sizes = {
            mode: self._local_batch(name, size) for mode, (name, size) in sizes.items()
        }

    def _local_batch(self, argument: str, size: int | None) -> int | None:
        """Returns the part of a batch that each replica gets."""
        if positive_or_none(argument, size) is None:
            return None
        if "batch_size" in self._params:
            raise ValueError(
                f"`params` must not have 'batch_size' if `{argument}` is given, which sets it. "
                f"Received: params={self._params!r}"
            )
        workers = self._config.num_worker_replicas if argument == "train_batch_size" else 1
        parts = self._ipus.num_replicas * workers
        if size % parts:
            raise ValueError(
                f"`{argument}` must be divisible by the number of replicas times that of workers. "
                f"Received: {argument}={size} with {self._ipus.num_replicas} replica(s) of "
                f"{workers} worker(s)"
            )
        return size // parts

    def _params_for(self, mode: str) -> Mapping[str, Any]:
        size = self._batch_sizes[mode]
        return self._params if size is None else self._params | {"batch_size": size}

    def _loop(
        self,
        mode: str,
        infeed: IPUInfeedQueue,
        outfeed: IPUOutfeedQueue,
        specs: list[Any],
    ) -> tf.Operation:
        sent = {
            ModeKeys.TRAIN: self._sent_in_training,
            ModeKeys.EVAL: _sent_in_evaluation,
            ModeKeys.PREDICT: _sent_in_prediction,
        }[mode]

        def body(*values: Any, **named: Any) -> tf.Operation:
            # A dict that is the whole element comes by name.
            features, labels = named or values, None
            if values:
                features, labels = values if len(values) == 2 else (values[0], None)
            spec = _checked(self._model(mode, features, labels), mode)
            specs.append(spec)
            tensors, operations = sent(spec)
            with tf.control_dependencies(operations):
                return outfeed.enqueue(tensors)

        return repeat(self._iterations, body, [], infeed)

    def _sent_in_training(self, spec: Any) -> tuple[dict[str, Any], list[Any]]:
        train_op = _required(spec, "train_op", ModeKeys.TRAIN)
        loss = _required(spec, "loss", ModeKeys.TRAIN)
        graph = _V1.get_default_graph()
        check_exchange(self._ipus.num_replicas, graph)
        sent = {"loss": tf.cast(loss, tf.float32), "summaries": _scalar_summaries(graph)}
        host_call = getattr(spec, "host_call", None)
        if host_call is not None:
            self._check_host_call(host_call)
            sent["host"] = host_call[1]
        return {name: value for name, value in sent.items() if tf.nest.flatten(value)}, [train_op]

    def _check_host_call(self, host_call: Any) -> None:
        if not isinstance(host_call, tuple) or len(host_call) != 2 or not callable(host_call[0]):
            raise TypeError(
                "`host_call` must be a pair of a function and its tensors. "
                f"Received: host_call={host_call!r}"
            )
        if self._iterations > 1 or self._ipus.num_replicas > 1:
            raise ValueError(
                "With `host_call`, which runs after each step, `iterations_per_loop` and "
                "`num_replicas` must be 1. Received: "
                f"iterations_per_loop={self._iterations}, num_replicas={self._ipus.num_replicas}"
            )

    def _training_loss(self, loop: CompiledLoop) -> tf.Tensor:
        return tf.reduce_mean(loop.results["loss"])

    def _host_operations(self, loop: CompiledLoop) -> Sequence[Any]:
        if "host" not in loop.results:
            return ()
        function, _ = loop.spec.host_call
        tensors = tf.nest.map_structure(lambda stacked: stacked[0], loop.results["host"])
        element = tensors if isinstance(tensors, Mapping) else tuple(tensors)
        found = call_with_element("host_call", function, (), element)
        if found is None:
            raise ValueError(
                "The function of `host_call` must return an operation that is run. Received: None"
            )
        return tf.nest.flatten(found)

    def _add_summaries(self, loop: CompiledLoop, loss: tf.Tensor) -> None:
        super()._add_summaries(loop, loss)
        for name, values in loop.results.get("summaries", {}).items():
            _V1.summary.scalar(name, tf.reduce_mean(values[-1]))

    def _evaluation(self, loop: CompiledLoop) -> tuple[dict[str, Any], HostMetrics | None]:
        results = dict(loop.results)
        if "updates" in results and self._ipus.num_replicas > 1:
            # In a session replicas do not keep what they write, but get what the first one has.
            with tf.control_dependencies(tf.nest.flatten(results)):
                begun_again = _V1.local_variables_initializer()
            with tf.control_dependencies([begun_again]):
                results = tf.nest.map_structure(tf.identity, results)
        if "metrics" not in results:
            return results, None
        num_axes = 1 if self._ipus.num_replicas == 1 else 2
        function, _ = loop.spec.eval_metrics
        return results, HostMetrics(function, results["metrics"], num_axes, "eval_metrics")

    def _means(self, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        updates = [each.get("updates", {}) for each in results]
        names = list(updates[-1]) if updates else []
        if self._ipus.num_replicas == 1:
            found = {name: updates[-1][name][-1] for name in names}
        else:
            if names:
                warnings.warn(
                    "Metrics of `eval_metric_ops` are computed by each replica in each call of the "
                    "session, and their mean is returned. That is right of means over batches of "
                    "one size; use `eval_metrics` for others.",
                    stacklevel=3,
                )
            found = {n: np.mean([each[n][-1] for each in updates], axis=(0, 1)) for n in names}
        return found | {"loss": np.mean([each["loss"] for each in results])}

    def _predicted(self, results: Any) -> Any:
        return results["predictions"]

    def _exported(self, mode: str, features: Any, labels: Any) -> ExportedModel:
        spec = _checked(self._model(mode, features, labels), mode)
        metrics = getattr(spec, "eval_metric_ops", None)
        given = getattr(spec, "eval_metrics", None)
        if given is not None:
            element = given[1] if isinstance(given[1], Mapping) else tuple(given[1])
            metrics = call_with_element("eval_metrics", given[0], (), element)
        return ExportedModel(
            spec.predictions,
            spec.loss,
            spec.train_op,
            metrics,
            getattr(spec, "export_outputs", None),
        )


def _checked(spec: Any, mode: str) -> Any:
    """Returns what a model function returned, or raises an error for something else."""
    if not isinstance(spec, IPUEstimatorSpec | EstimatorSpec):
        raise TypeError(
            "`model_fn` must return an IPUEstimatorSpec or a tf.estimator.EstimatorSpec. "
            f"Received: {spec!r}"
        )
    if spec.mode != mode:
        raise ValueError(
            "`model_fn` must return a spec of the mode that it is called for. "
            f"Received: mode={spec.mode!r} for {mode!r}"
        )
    return spec


def _required(spec: Any, name: str, mode: str) -> Any:
    found = getattr(spec, name)
    if found is None:
        raise ValueError(
            f"The spec that `model_fn` returns must have `{name}` in the mode {mode!r}. "
            f"Received: {name}=None"
        )
    return found


def _sent_in_evaluation(spec: Any) -> tuple[dict[str, Any], list[Any]]:
    """Returns what each step of an evaluation sends, and what it runs besides."""
    loss = _required(spec, "loss", ModeKeys.EVAL)
    metrics, updates = getattr(spec, "eval_metrics", None), spec.eval_metric_ops
    is_plain = isinstance(spec, EstimatorSpec)
    if (metrics is not None and updates is not None) or (
        metrics is None and updates is None and not is_plain
    ):
        raise ValueError(
            "Exactly one of `eval_metrics` and `eval_metric_ops` must be given for evaluation. "
            f"Received: eval_metrics={metrics!r}, eval_metric_ops={updates!r}"
        )
    sent: dict[str, Any] = {"loss": tf.cast(loss, tf.float32)}
    if metrics is not None:
        if not isinstance(metrics, tuple | list) or len(metrics) != 2 or not callable(metrics[0]):
            raise TypeError(
                "`eval_metrics` must be a pair of a function and its tensors. "
                f"Received: eval_metrics={metrics!r}"
            )
        sent["metrics"] = metrics[1]
    if updates:
        pairs = pairs_of(updates, "`eval_metric_ops`")
        operations = [name for name, (_, update) in pairs.items() if not tf.is_tensor(update)]
        if operations:
            raise TypeError(
                "The updates of `eval_metric_ops` must be tensors of the updated values, as "
                "`tf.compat.v1.metrics` returns them; use `eval_metrics` for others. "
                f"Received: operations for {', '.join(operations)}"
            )
        sent["updates"] = {name: update for name, (_, update) in pairs.items()}
    return sent, []


def _sent_in_prediction(spec: Any) -> tuple[dict[str, Any], list[Any]]:
    return {"predictions": _required(spec, "predictions", ModeKeys.PREDICT)}, []


def _scalar_summaries(graph: tf.Graph) -> dict[str, tf.Tensor]:
    """Returns the values of the scalars that a model summarizes, which only the host can write."""
    found, others = {}, []
    for summary in graph.get_collection(_V1.GraphKeys.SUMMARIES):
        if summary.graph is not graph:
            continue
        if summary.op.type == "ScalarSummary":
            tag = tf.get_static_value(summary.op.inputs[0]).item().decode()
            found[tag] = summary.op.inputs[1]
        else:
            others.append(summary.name)
    if others:
        warnings.warn(
            "Of the summaries in a model function only scalars are written, as the others are "
            f"computed where the host cannot take them from. Received: also {', '.join(others)}",
            stacklevel=2,
        )
    return found
