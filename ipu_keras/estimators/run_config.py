"""How an estimator runs: where it keeps what, how often it writes, and which worker it is."""

import copy
import json
import os
from collections.abc import Mapping
from typing import Any, Self

import tensorflow as tf

from ipu_keras.settings.arguments import positive_or_none

_SAVE_SECONDS = 600
_UNSET: Any = object()


class EstimatorRunConfig:
    """How an estimator runs, as `tf.estimator.RunConfig` says it.

    The environment variable `TF_CONFIG` says which worker of which cluster this process is.

    Args:
        model_dir: Folder of checkpoints and summaries. Defaults to what the estimator says.
        tf_random_seed: Seed of the graph.
        save_summary_steps: After how many global steps summaries are written.
        save_checkpoints_steps: After how many global steps a checkpoint is written.
        save_checkpoints_secs: After how many seconds a checkpoint is written. Defaults to 600 if
            the steps are not said either. With `None` for both there are none.
        session_config: A `ConfigProto` for sessions.
        keep_checkpoint_max: How many checkpoints are kept; all of them with `None` or 0.
        keep_checkpoint_every_n_hours: After how many hours one more checkpoint is kept for good.
        log_step_count_steps: After how many global steps the loss and the speed are logged.
        train_distribute: An `IPUMultiWorkerStrategy`, with whose workers an estimator trains. They
            share `model_dir`, where the first one writes. `None`, and it trains by itself.
        device_fn: A function from an operation to the name of its device, for what is not on
            an IPU.
        protocol: What servers speak, `None` or `"grpc"`, which is the same.
        eval_distribute: Not implemented: a worker evaluates on its own.
        experimental_distribute: Not implemented: give `train_distribute`.
        experimental_max_worker_delay_secs: Not implemented: workers begin at once, and wait for
            each other.
        session_creation_timeout_secs: How many seconds a worker waits for its session.
        checkpoint_save_graph_def: Whether the graph is written too.

    Raises:
        ValueError: A number is out of its range, or both kinds of times for checkpoints are said.
        NotImplementedError: An option is not implemented.

    Example:

    >>> config = EstimatorRunConfig(save_checkpoints_steps=100)
    >>> config.save_checkpoints_steps, config.save_checkpoints_secs, config.is_chief
    (100, None, True)
    """

    def __init__(
        self,
        model_dir: Any = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: int | None = _UNSET,
        save_checkpoints_secs: int | None = _UNSET,
        session_config: Any = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: Any = None,
        device_fn: Any = None,
        protocol: str | None = None,
        eval_distribute: Any = None,
        experimental_distribute: Any = None,
        experimental_max_worker_delay_secs: int | None = None,
        session_creation_timeout_secs: int = 7200,
        checkpoint_save_graph_def: bool = True,
    ):
        if save_checkpoints_steps is _UNSET and save_checkpoints_secs is _UNSET:
            save_checkpoints_secs = _SAVE_SECONDS
        steps = None if save_checkpoints_steps is _UNSET else save_checkpoints_steps
        seconds = None if save_checkpoints_secs is _UNSET else save_checkpoints_secs
        if steps is not None and seconds is not None:
            raise ValueError(
                "Only one of `save_checkpoints_steps` and `save_checkpoints_secs` can be set. "
                f"Received: save_checkpoints_steps={steps!r}, save_checkpoints_secs={seconds!r}"
            )
        for name, value in (
            ("eval_distribute", eval_distribute),
            ("experimental_distribute", experimental_distribute),
            ("experimental_max_worker_delay_secs", experimental_max_worker_delay_secs),
        ):
            if value is not None:
                raise NotImplementedError(
                    f"`{name}` is not implemented: estimators train together, by "
                    "`train_distribute`, wait for each other, and evaluate each by itself. "
                    f"Received: {name}={value!r}"
                )
        if protocol not in (None, "grpc"):
            raise ValueError(
                f"`protocol` must be None or 'grpc', which servers have. Received: {protocol!r}"
            )
        self._model_dir = None if model_dir is None else os.fspath(model_dir)
        self._tf_random_seed = tf_random_seed
        self._save_summary_steps = positive_or_none("save_summary_steps", save_summary_steps)
        self._save_checkpoints_steps = positive_or_none("save_checkpoints_steps", steps)
        self._save_checkpoints_secs = positive_or_none("save_checkpoints_secs", seconds)
        self._session_config = session_config
        self._keep_checkpoint_max = keep_checkpoint_max
        self._keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
        self._log_step_count_steps = positive_or_none("log_step_count_steps", log_step_count_steps)
        self._train_distribute = train_distribute
        self._device_fn = device_fn
        self._protocol = protocol
        self._session_creation_timeout_secs = session_creation_timeout_secs
        self._checkpoint_save_graph_def = checkpoint_save_graph_def
        self._cluster, self._task_type, self._task_id = _task(os.environ.get("TF_CONFIG"))
        self._master: str | None = None

    @property
    def model_dir(self) -> str | None:
        """The folder of checkpoints and summaries."""
        return self._model_dir

    @property
    def tf_random_seed(self) -> int | None:
        """The seed of the graph."""
        return self._tf_random_seed

    @property
    def save_summary_steps(self) -> int | None:
        """After how many global steps summaries are written."""
        return self._save_summary_steps

    @property
    def save_checkpoints_steps(self) -> int | None:
        """After how many global steps a checkpoint is written; `None` if seconds count."""
        return self._save_checkpoints_steps

    @property
    def save_checkpoints_secs(self) -> int | None:
        """After how many seconds a checkpoint is written; `None` if steps count."""
        return self._save_checkpoints_secs

    @property
    def session_config(self) -> Any:
        """The `ConfigProto` of sessions."""
        return self._session_config

    @property
    def keep_checkpoint_max(self) -> int | None:
        """How many checkpoints are kept."""
        return self._keep_checkpoint_max

    @property
    def keep_checkpoint_every_n_hours(self) -> float:
        """After how many hours one more checkpoint is kept for good."""
        return self._keep_checkpoint_every_n_hours

    @property
    def log_step_count_steps(self) -> int | None:
        """After how many global steps the loss and the speed are logged."""
        return self._log_step_count_steps

    @property
    def train_distribute(self) -> Any:
        """The strategy of several workers that train together, or `None`."""
        return self._train_distribute

    @property
    def device_fn(self) -> Any:
        """What places operations that are not on an IPU."""
        return self._device_fn

    @property
    def protocol(self) -> str | None:
        """What servers speak."""
        return self._protocol

    @property
    def session_creation_timeout_secs(self) -> int:
        """How many seconds a worker waits for its session."""
        return self._session_creation_timeout_secs

    @property
    def checkpoint_save_graph_def(self) -> bool:
        """Whether the graph is written too."""
        return self._checkpoint_save_graph_def

    @property
    def cluster_spec(self) -> tf.train.ClusterSpec:
        """The cluster of `TF_CONFIG`, without its evaluator, to which it is empty."""
        jobs = {job: tasks for job, tasks in self._cluster.items() if job != "evaluator"}
        return tf.train.ClusterSpec({} if self._task_type == "evaluator" else jobs)

    @property
    def task_type(self) -> str:
        """The job of this process: `"chief"`, `"worker"`, `"ps"` or `"evaluator"`."""
        return self._task_type

    @property
    def task_id(self) -> int:
        """The number of this process in its job."""
        return self._task_id

    @property
    def num_ps_replicas(self) -> int:
        """How many parameter servers the cluster has."""
        return self._count("ps")

    @property
    def num_worker_replicas(self) -> int:
        """How many workers the cluster has, with its chief; 1 without a cluster."""
        if self._task_type == "evaluator":
            return 0
        return self._count("chief") + self._count("worker") or 1

    @property
    def is_chief(self) -> bool:
        """Whether this process writes checkpoints: the chief, or without one the first worker."""
        if self._count("chief"):
            return self._task_type == "chief"
        return self._task_type == "worker" and self._task_id == 0

    @property
    def master(self) -> str:
        """The address of the server of this process, with `grpc://`; empty without a cluster."""
        if self._master is not None:
            return self._master
        jobs = self.cluster_spec.as_dict()
        if sum(map(len, jobs.values())) < 2:
            return ""
        return f"grpc://{jobs[self._task_type][self._task_id]}"

    @property
    def evaluator_master(self) -> str:
        """The address for evaluations, which are local."""
        return ""

    def replace(self, **kwargs: Any) -> Self:
        """Returns a copy with other values.

        Args:
            **kwargs: Values by the names of the constructor's arguments.

        Returns:
            A configuration of the same class.

        Raises:
            ValueError: There is no such argument, or its value is out of its range.
        """
        unknown = [name for name in kwargs if not hasattr(self, f"_{name}")]
        if unknown:
            raise ValueError(
                "`replace` takes names of the constructor's arguments. "
                f"Received: {', '.join(unknown)}"
            )
        changed = copy.copy(self)
        checked = EstimatorRunConfig(**_checkable(self, kwargs))
        for name in kwargs:
            value = getattr(checked, f"_{name}", kwargs[name])
            setattr(changed, f"_{name}", value)
        for name in ("_save_checkpoints_steps", "_save_checkpoints_secs"):
            setattr(changed, name, getattr(checked, name))
        return changed

    def _count(self, job: str) -> int:
        return 0 if self._task_type == "evaluator" else len(self._cluster.get(job, ()))


def _checkable(config: EstimatorRunConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a configuration with changes; one time for checkpoints counts."""
    names = EstimatorRunConfig.__init__.__code__.co_varnames
    given = {name: value for name, value in changes.items() if name in names}
    times = ("save_checkpoints_steps", "save_checkpoints_secs")
    if not any(name in changes for name in times):
        given |= {name: getattr(config, name) for name in times}
    return given


def _task(text: str | None) -> tuple[dict[str, list[str]], str, int]:
    """Returns the cluster of `TF_CONFIG`, the job of this process, and its number there."""
    try:
        found = json.loads(text or "{}")
        cluster = {job: list(tasks) for job, tasks in found.get("cluster", {}).items()}
        task = found.get("task", {})
        job, index = task.get("type", "worker"), int(task.get("index", 0))
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            "The environment variable TF_CONFIG must be a JSON object such as "
            '{"cluster": {"worker": ["localhost:2222"]}, "task": {"type": "worker", "index": 0}}. '
            f"Received: {text}"
        ) from None
    if len(cluster.get("chief", ())) > 1:
        raise ValueError(
            "The cluster of TF_CONFIG can have one chief. "
            f"Received: {len(cluster['chief'])}: {cluster['chief']}"
        )
    if cluster and job != "evaluator" and index >= len(cluster.get(job, ())):
        raise ValueError(
            "The task of TF_CONFIG must be one of its cluster. "
            f"Received: the task {index} of {job!r} in {cluster}"
        )
    return cluster, job, index
