"""How estimators run on IPUs."""

from typing import Any, NamedTuple

from ipu_keras.config import IPUConfig
from ipu_keras.estimators.run_config import EstimatorRunConfig
from ipu_keras.ipu_infeed_queue import checked_ordinal
from ipu_keras.settings.arguments import checked_switch, positive_integer, positive_or_none


class _IPURunConfig(NamedTuple):
    iterations_per_loop: int
    ipu_options: Any
    compile_summary: bool
    num_replicas: int
    num_shards: int
    ordinal: int
    prefetch_depth: int | None


class IPURunConfig(_IPURunConfig):
    """How an estimator uses IPUs.

    Args:
        iterations_per_loop: How many batches each replica takes in a call of a session, by which
            the global step grows.
        ipu_options: An `IPUConfig` with which the estimator configures the system before it builds
            a model. By default the system is used as it is configured, or else gets as many IPUs
            as are needed.
        compile_summary: Whether the reports of the programs are among the summaries.
        num_replicas: How many replicas there are.
        num_shards: How many IPUs each replica has: those of `ipu_shard`, or of the stages of a
            pipeline.
        ordinal: The k of the device `/device:IPU:k`.
        prefetch_depth: How many elements the infeed reads ahead, 1 to 255. Defaults to that of
            `IPUInfeedQueue`.

    Raises:
        TypeError: `ipu_options` is no `IPUConfig`.
        ValueError: A number is out of its range.

    Example:

    >>> IPURunConfig(iterations_per_loop=10).iterations_per_loop
    10
    """

    __slots__ = ()

    def __new__(
        cls,
        iterations_per_loop: int = 1,
        ipu_options: IPUConfig | None = None,
        compile_summary: bool = False,
        num_replicas: int = 1,
        num_shards: int = 1,
        ordinal: int = 0,
        prefetch_depth: int | None = None,
    ):
        """Checks the values."""
        if ipu_options is not None and not isinstance(ipu_options, IPUConfig):
            raise TypeError(
                "`ipu_options` must be an IPUConfig. Received: "
                f"ipu_options={ipu_options!r} of type {type(ipu_options).__name__}"
            )
        return super().__new__(
            cls,
            positive_integer("iterations_per_loop", iterations_per_loop),
            ipu_options,
            checked_switch("compile_summary", compile_summary),
            positive_integer("num_replicas", num_replicas),
            positive_integer("num_shards", num_shards),
            checked_ordinal(ordinal),
            positive_or_none("prefetch_depth", prefetch_depth),
        )


class RunConfig(EstimatorRunConfig):
    """How an estimator runs, on IPUs and otherwise.

    Args:
        ipu_run_config: An `IPURunConfig`. Defaults to one with all defaults.
        master: The address of the server of a session. Defaults to that of `TF_CONFIG`.
        **kwargs: What `tf.estimator.RunConfig` takes, such as `model_dir`, `tf_random_seed`,
            `save_checkpoints_steps` and `keep_checkpoint_max`.

    Raises:
        TypeError: `ipu_run_config` is no `IPURunConfig`, or there is no such argument.
        ValueError: A number is out of its range, or both kinds of times for checkpoints are said.

    Example:

    >>> config = RunConfig(IPURunConfig(iterations_per_loop=8), save_summary_steps=8)
    >>> config.ipu_run_config.iterations_per_loop, config.save_summary_steps
    (8, 8)
    """

    def __init__(
        self,
        ipu_run_config: IPURunConfig | None = None,
        master: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        given = IPURunConfig() if ipu_run_config is None else ipu_run_config
        if not isinstance(given, IPURunConfig):
            raise TypeError(
                "`ipu_run_config` must be an IPURunConfig. "
                f"Received: ipu_run_config={ipu_run_config!r}"
            )
        self._ipu_run_config = given
        self._master = master

    @property
    def ipu_run_config(self) -> IPURunConfig:
        """How IPUs are used."""
        return self._ipu_run_config
