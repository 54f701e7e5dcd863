"""An estimator whose model is a pipeline."""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ipu_keras.estimators.estimator_on_ipu import EstimatorOnIpu
from ipu_keras.estimators.host_metrics import HostMetrics
from ipu_keras.estimators.loop_sessions import CompiledLoop
from ipu_keras.estimators.replicated_training import check_exchange
from ipu_keras.estimators.saved_models import ExportedModel
from ipu_keras.estimators.specs import ModeKeys
from ipu_keras.functions.loop_bodies import as_list, call_with_element
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_keras.pipelining_ops import pipeline

# What the estimator itself gives to `pipeline`.
_OWN = ("accumulate_outfeed", "infeed_queue", "outfeed_loss", "outfeed_queue", "repeat_count")


class _IPUPipelineEstimatorSpec(NamedTuple):
    mode: str
    computational_stages: Any
    gradient_accumulation_count: Any
    eval_metrics_fn: Any
    optimizer_function: Any
    device_mapping: Any
    loss_accumulator_dtype: Any
    pipeline_op_kwargs: Mapping[str, Any]


class IPUPipelineEstimatorSpec(_IPUPipelineEstimatorSpec):
    """A pipeline as a model function describes it.

    Args:
        mode: A `tf.estimator.ModeKeys`: what the model function was called for.
        computational_stages: Two functions or more, as `pipelining_ops.pipeline` takes them. The
            first gets features and labels, and the last returns what the other functions get, or
            predictions: a tensor of `(batch, ...)`, or a dict of them.
        gradient_accumulation_count: How many batches pass the stages for a weight update. It
            divides `iterations_per_loop`.
        eval_metrics_fn: A function that takes what the last stage returns, and runs on the host. It
            returns a dict with the tensor `loss`, and from further names to pairs of a metric's
            value and its update; needed for evaluation.
        optimizer_function: A function that takes what the last stage returns, and returns a
            `pipelining_ops.OptimizerFunctionOutput`; needed for training.
        device_mapping: The IPU of each stage. Defaults to one after the other.
        loss_accumulator_dtype: The type in which losses are added up. Defaults to that of the loss.
        **pipeline_op_kwargs: Further arguments of `pipelining_ops.pipeline`.

    Raises:
        ValueError: A function is missing, or an argument is the estimator's own.

    Example:

    >>> stages = [lambda x: x + 1.0, lambda x: x * x]
    >>> IPUPipelineEstimatorSpec("infer", stages, 4).gradient_accumulation_count
    4
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        computational_stages: Sequence[Callable[..., Any]],
        gradient_accumulation_count: int | None = None,
        eval_metrics_fn: Callable[..., Any] | None = None,
        optimizer_function: Callable[..., Any] | None = None,
        device_mapping: Sequence[int] | None = None,
        loss_accumulator_dtype: Any = None,
        **pipeline_op_kwargs: Any,
    ):
        """Checks that the mode has its function."""
        needed = {
            ModeKeys.TRAIN: ("optimizer_function", optimizer_function),
            ModeKeys.EVAL: ("eval_metrics_fn", eval_metrics_fn),
        }
        name, function = needed.get(mode, ("", cls))
        if function is None:
            raise ValueError(f"`{name}` must be given in the mode {mode!r}. Received: {name}=None")
        taken = [name for name in _OWN if name in pipeline_op_kwargs]
        if taken:
            raise ValueError(
                "These arguments of `pipeline` are the estimator's own, which must not be given: "
                f"{', '.join(_OWN)}. Received: {', '.join(taken)}"
            )
        return super().__new__(
            cls,
            mode,
            computational_stages,
            gradient_accumulation_count,
            eval_metrics_fn,
            optimizer_function,
            device_mapping,
            loss_accumulator_dtype,
            pipeline_op_kwargs,
        )


class IPUPipelineEstimator(EstimatorOnIpu):
    """Trains, evaluates and runs a model in stages, each on an IPU.

    A call of a session runs the pipeline with `iterations_per_loop` batches for each replica, a
    multiple of `gradient_accumulation_count`; `num_shards` says how many IPUs the stages have. To
    train with several replicas, wrap the optimizer in a `CrossReplicaOptimizer`.

    Args:
        model_fn: A function with any of the arguments `mode`, `params` and `config`. It returns an
            `IPUPipelineEstimatorSpec`.
        model_dir: Folder of checkpoints and summaries. Defaults to that of `config`, or to a new
            temporary one.
        config: An `ipu_run_config.RunConfig`. Defaults to one with all defaults.
        params: A dict that the model function and input functions get as `params`.
        warm_start_from: A path of a checkpoint or SavedModel, or a
            `tf.estimator.WarmStartSettings`, with whose variables the first training begins.

    Raises:
        TypeError: `config` is no `RunConfig`.
        ValueError: The model function has other arguments.

    Example:

        def model_fn(mode):
            def first(features, labels):
                return keras.layers.Dense(64, "relu")(features), labels

            def second(hidden, labels):
                logits = keras.layers.Dense(10)(hidden)
                return tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

            def optimizer_function(loss):
                optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
                return pipelining_ops.OptimizerFunctionOutput(optimizer, loss)

            return IPUPipelineEstimatorSpec(
                mode, [first, second], 8, optimizer_function=optimizer_function)

        config = RunConfig(IPURunConfig(iterations_per_loop=64, num_shards=2))
        IPUPipelineEstimator(model_fn, "model", config).train(input_fn, steps=640)
    """

    _takes_features = False

    def __init__(
        self,
        model_fn: Any,
        model_dir: Any = None,
        config: Any = None,
        params: Mapping[str, Any] | None = None,
        warm_start_from: Any = None,
    ):
        super().__init__(model_fn, model_dir, config, params, warm_start_from)

    def _loop(
        self,
        mode: str,
        infeed: IPUInfeedQueue,
        outfeed: IPUOutfeedQueue,
        specs: list[Any],
    ) -> tf.Operation:
        spec = _checked(self._model(mode), mode)
        specs.append(spec)
        count = spec.gradient_accumulation_count
        if count is not None and self._iterations % int(count):
            raise ValueError(
                "`iterations_per_loop` must be a multiple of `gradient_accumulation_count`. "
                f"Received: iterations_per_loop={self._iterations}, "
                f"gradient_accumulation_count={count}"
            )
        trains = mode == ModeKeys.TRAIN
        named = dict(spec.pipeline_op_kwargs)
        if trains:
            named["optimizer_function"] = self._checking(spec.optimizer_function)
            named |= {"outfeed_loss": True, "accumulate_outfeed": True}
            named["accumulate_outfeed_dtype"] = spec.loss_accumulator_dtype
        return pipeline(
            [_warning_of_summaries(stage) for stage in as_list(spec.computational_stages)],
            gradient_accumulation_count=count,
            repeat_count=1 if count is None else self._iterations // int(count),
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            device_mapping=spec.device_mapping,
            **named,
        )

    def _checking(self, optimizer_function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns an optimizer function that fails if replicas would train apart."""

        def checked(*results: Any, **named: Any) -> Any:
            made = _warning_of_summaries(optimizer_function)(*results, **named)
            graph = tf.compat.v1.get_default_graph()
            check_exchange(self._ipus.num_replicas, graph, getattr(made, "opt", None))
            return made

        return checked

    def _training_loss(self, loop: CompiledLoop) -> tf.Tensor:
        (sums,) = tf.nest.flatten(loop.results)
        count = int(loop.spec.gradient_accumulation_count)
        return tf.reduce_mean(tf.cast(sums, tf.float32)) / count

    def _evaluation(self, loop: CompiledLoop) -> tuple[dict[str, Any], HostMetrics | None]:
        num_axes = 1 if self._ipus.num_replicas == 1 else 2
        metrics = HostMetrics(
            loop.spec.eval_metrics_fn, loop.results, num_axes, "eval_metrics_fn", plain=("loss",)
        )
        return {"metrics": loop.results}, metrics

    def _means(self, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {}

    def _predicted(self, results: Any) -> Any:
        # A stage's only result comes in a list.
        return results[0] if isinstance(results, list) and len(results) == 1 else results

    def _exported(self, mode: str, features: Any, labels: Any) -> ExportedModel:
        spec = _checked(self._model(mode), mode)
        fed = features if labels is None else (features, labels)
        results: Any = fed if isinstance(fed, tuple | Mapping) else (fed,)
        inputs = as_list(spec.pipeline_op_kwargs.get("inputs"))
        for stage in spec.computational_stages:
            results = call_with_element("stage", stage, inputs, results)
            inputs = []
            results = results if isinstance(results, Mapping) else tuple(as_list(results))
        if mode == ModeKeys.PREDICT:
            single = isinstance(results, tuple) and len(results) == 1
            return ExportedModel(results[0] if single else results)
        if mode == ModeKeys.EVAL:
            metrics = dict(call_with_element("eval_metrics_fn", spec.eval_metrics_fn, (), results))
            return ExportedModel(loss=metrics.pop("loss"), metrics=metrics)
        made = call_with_element("optimizer", spec.optimizer_function, (), results)
        return ExportedModel(loss=made.loss, train_op=made.opt.minimize(made.loss))


def _checked(spec: Any, mode: str) -> IPUPipelineEstimatorSpec:
    if not isinstance(spec, IPUPipelineEstimatorSpec):
        raise TypeError(f"`model_fn` must return an IPUPipelineEstimatorSpec. Received: {spec!r}")
    if spec.mode != mode:
        raise ValueError(
            "`model_fn` must return a spec of the mode that it is called for. "
            f"Received: mode={spec.mode!r} for {mode!r}"
        )
    return spec


def _warning_of_summaries(function: Any) -> Any:
    """Returns a function of a pipeline that warns of its summaries, which nothing writes."""
    if not callable(function) or isinstance(function, type):
        return function  # `pipeline` says what is wrong with it

    @functools.wraps(function)
    def warning(*args: Any, **named: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()
        summaries = graph.get_collection_ref(tf.compat.v1.GraphKeys.SUMMARIES)
        num_before = len(summaries)
        made = function(*args, **named)
        names = [summary.name for summary in summaries[num_before:]]
        if names:
            warnings.warn(
                "Summaries in a stage or an optimizer function of a pipeline are not written, as "
                "they are computed where the host cannot take them from. Return their values "
                "from the last stage, and read them in `eval_metrics_fn`. "
                f"Received: {', '.join(names)}",
                stacklevel=2,
            )
        return made

    return warning
