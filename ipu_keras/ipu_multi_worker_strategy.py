"""The strategy of the workers of a cluster, which exchange values over gRPC."""

import functools
from typing import Any

import tensorflow as tf

from ipu_keras.functions.worker_sessions import WorkersOfSessions
from ipu_keras.internals.tensorflow.strategies import (
    SyncOnReadVariable,
    is_reduced_when_assigned,
    of_this_process,
    update_context,
    variable_of_replicas,
)
from ipu_keras.ipu_strategy import IPUExtended, IPUStrategy
from ipu_keras.ops.collectives import all_gather, groups_of_process
from ipu_keras.processes.summed_gradients import are_summed
from ipu_keras.settings.arguments import checked_switch
from ipu_keras.tracing.replication import current_replicas, is_for_all_replicas, replica_index

_HOST = "/device:CPU:0"
_REDUCTIONS = {
    tf.VariableAggregation.SUM: tf.distribute.ReduceOp.SUM,
    tf.VariableAggregation.MEAN: tf.distribute.ReduceOp.MEAN,
}


class IPUMultiWorkerStrategy(IPUStrategy):
    """Trains one model on the IPUs of several workers, each of which has data of its own.

    Variables begin with the values that they have in the first worker. Each optimizer adds up the
    gradients of all workers before an update, so that all keep the same weights, and `reduce` is
    over workers: by TensorFlow's collective operations over gRPC, on the hosts. Workers have to
    exchange the same values, equally often. One that has ended, or exchanges something else, is
    an error in all of them; one that is late is waited for, up to the seconds in the environment
    variable `IPU_KERAS_PROCESS_SECONDS` (600).

    It is for training loops of one's own, which `run` or its older name `experimental_run_v2`
    runs, and for estimators, as `train_distribute` of their `RunConfig`. Keras models made in
    its scope do not get the IPU extensions, as Keras's `fit` is not supported with it on
    hardware. In sessions each worker has a `tf.distribute.Server`, whose configuration and that
    of its sessions come from `update_config_proto`.

    Each of several replicas of a worker adds its gradients to those of the replicas with its number
    in the other workers: give optimizers a `CrossReplicaOptimizer` for the replicas of one worker.
    A variable with the synchronization `tf.VariableSynchronization.ON_READ` is each worker's own in
    `run`, and elsewhere, and in checkpoints, the sum, the mean or the first worker's value, as its
    aggregation says: all workers have to read it together. Any other variable with the aggregation
    `SUM` or `MEAN` gets the sum or the mean of what all workers assign to it, or add, within `run`.

    Args:
        cluster_resolver: Says who is in the cluster, and which of them this process is, such as a
            `TFConfigClusterResolver`. A cluster without jobs is this process alone.
        ipu_device: Name of the TensorFlow device.
        variables_on_host: Whether variables, also those of optimizers, are on the host and
            not on the IPU. Those that would be synchronised when they are read
            (`tf.VariableSynchronization.ON_READ`) stay on the IPU. On hardware weight
            updates then have to be placed on the host; here they may be.

    Raises:
        NotImplementedError: The cluster has parameter servers.
        TypeError: `cluster_resolver` is no cluster resolver.
        ValueError: The device is an IPU that is not configured, or the cluster does not say which
            of its workers this process is.

    Example:

    >>> import tensorflow as tf
    >>> resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({}))
    >>> strategy = IPUMultiWorkerStrategy(resolver)
    >>> @tf.function
    ... def double(x):
    ...     return x + x
    >>> losses = strategy.experimental_run_v2(double, args=[tf.constant(2.0)])
    >>> print(strategy.reduce(tf.distribute.ReduceOp.SUM, losses).numpy())
    4.0
    """

    def __init__(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
        ipu_device: str = "/device:IPU:0",
        variables_on_host: bool = False,
    ):
        _check_resolver(cluster_resolver)
        self._variables_on_host = checked_switch("variables_on_host", variables_on_host)
        self._workers = WorkersOfSessions(cluster_resolver)
        super().__init__(ipu_device, enable_keras_extensions=False)
        # Where TensorFlow looks for the `cluster_resolver` of a strategy.
        self.extended._cluster_resolver = cluster_resolver

    def _make_extended(self, ipu_device: str) -> IPUExtended:
        kind: Any = HostVariables if self._variables_on_host else IPUExtended
        if self._workers.size > 1:
            kind = ExchangingHostVariables if self._variables_on_host else ExtendedToWorkers
            return kind(self, ipu_device, self._workers)
        return kind(self, ipu_device)


class HostVariables(IPUExtended):
    """Answers what TensorFlow asks of a strategy whose variables are on the host."""

    @property
    def parameter_devices(self):
        return (_HOST,)

    def _create_variable(self, next_creator, **kwargs):
        on_read = tf.VariableSynchronization.ON_READ
        if kwargs.get("colocate_with") is not None or kwargs.get("synchronization") is on_read:
            return super()._create_variable(next_creator, **kwargs)
        kwargs.pop("colocate_with", None)
        with tf.device(_HOST):
            return next_creator(**kwargs)

    def _update(self, var, fn, args, kwargs, group):
        # Where the variable is, so that an update on the host does not involve the IPU.
        with tf.device(var.device), update_context(var.device):
            result = fn(var, *args, **kwargs)
            return result if group else tf.nest.map_structure(self._local_results, result)


class ExtendedToWorkers(IPUExtended):
    """Adds up gradients over workers, and has variables begin with the same values."""

    def __init__(self, strategy: IPUStrategy, device: str, workers: WorkersOfSessions):
        self._workers = workers
        super().__init__(strategy, device)

    @property
    def _device(self) -> str:
        """The device, which in a session's graph is one of this worker's server."""
        with tf.init_scope():
            if tf.executing_eagerly():
                return self._device_of_process
        return self._workers.placed(self._device_of_process)

    @_device.setter
    def _device(self, device: str) -> None:
        self._device_of_process = device

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._workers.size

    @property
    def _replica_id(self) -> int:
        return self._workers.rank

    def _create_variable(self, next_creator, **kwargs):
        on_read = kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ
        given = kwargs["initial_value"]

        def of_first_worker():
            value = given() if callable(given) else given
            own = tf.convert_to_tensor(value, dtype=kwargs.get("dtype"))
            with tf.device(_HOST):
                return self._workers.of_first(own)

        options = {**kwargs, "initial_value": of_first_worker}
        create = functools.partial(super()._create_variable, next_creator)
        if not on_read and not is_reduced_when_assigned(kwargs):
            return create(**options)
        strategy = self._container_strategy()
        return variable_of_replicas(strategy, IPUSyncOnReadVariable, create, **options)

    def _update(self, var, fn, args, kwargs, group):
        return super()._update(of_this_process(var), fn, args, kwargs, group)

    @property
    def is_first(self) -> bool:
        """Whether this is the worker whose values variables begin with."""
        return self._workers.rank == 0

    @property
    def input_context(self) -> tf.distribute.InputContext:
        """What a function that makes a dataset learns of the workers."""
        return tf.distribute.InputContext(
            self._workers.size, self._workers.rank, self._workers.size
        )

    def session_target(self) -> str:
        """Returns the address of this worker's server, which is started if there is none."""
        return self._workers.target()

    def _get_local_replica_id(self, replica_id_in_sync_group):
        return 0

    def of_first_worker(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the tensor of the first worker, in all of them."""
        return self._workers.of_first(tensor)

    def _reduce_to(self, reduce_op, value, destinations, options):
        (total,) = self._sums([value])
        is_mean = reduce_op == tf.distribute.ReduceOp.MEAN
        return total / tf.cast(self._workers.size, total.dtype) if is_mean else total

    def _batch_reduce_to(self, reduce_op, value_destination_pairs, options):
        values = [value for value, _ in value_destination_pairs]
        if are_summed():
            return values
        totals = self._sums(values)
        if reduce_op != tf.distribute.ReduceOp.MEAN:
            return totals
        return [total / tf.cast(self._workers.size, total.dtype) for total in totals]

    def _sums(self, values):
        """Returns the sums over workers; of several replicas, what each has adds up for itself."""
        num_replicas = current_replicas() if is_for_all_replicas() else 1
        if num_replicas == 1:
            return self._workers.sums(values)
        # Replicas may be at different places at a time, so each shows the others what it has.
        gathered = [all_gather(value, groups_of_process()) for value in values]
        totals = self._workers.sums(gathered, num_replicas)
        own = replica_index() % num_replicas
        return [total[own] for total in totals]

    def _update_config_proto(self, config_proto):
        return self._workers.configured(config_proto)

    def _experimental_distribute_dataset(self, dataset, options):
        raise NotImplementedError(
            "Keras's `fit`, `evaluate` and `predict`, and `experimental_distribute_dataset`, which "
            "they call, are not supported with an IPUMultiWorkerStrategy of several workers. For "
            "them use an IPUMultiReplicaStrategy, under `poprun`; for a loop of your own read "
            "`dataset.shard(num_workers, index)` in each worker. "
            f"Received: a cluster of {self._workers.size} workers"
        )

    def _distribute_datasets_from_function(self, dataset_fn, options):
        return super()._experimental_distribute_dataset(dataset_fn(self.input_context), options)


class ExchangingHostVariables(ExtendedToWorkers, HostVariables):
    """Adds up gradients over workers, whose variables are on the host."""


class IPUSyncOnReadVariable(SyncOnReadVariable):
    """A variable of which each worker has its own, until all of them read it together.

    Within functions of `run` a worker reads and writes its own. Elsewhere, and in checkpoints, its
    value is the sum, the mean, or the value of the first worker, as its aggregation says.
    """

    def _get_cross_replica(self):
        own = self._get_replica(0).read_value()
        if self.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA:
            return self.distribute_strategy.extended.of_first_worker(own)
        op = _REDUCTIONS.get(self.aggregation)
        if op is None:
            raise ValueError(
                "A variable that workers reduce when they read it needs an aggregation: SUM, MEAN "
                f"or ONLY_FIRST_REPLICA. Received: {self.name!r}, with {self.aggregation}"
            )
        return self.distribute_strategy.reduce(op, own, axis=None)


# The name of the class in the releases before 2.6.
IPUMultiWorkerStrategyV1 = IPUMultiWorkerStrategy


def _check_resolver(cluster_resolver: Any) -> None:
    if not isinstance(cluster_resolver, tf.distribute.cluster_resolver.ClusterResolver):
        raise TypeError(
            "`cluster_resolver` must be a tf.distribute.cluster_resolver.ClusterResolver, such as "
            f"a TFConfigClusterResolver. Received: cluster_resolver={cluster_resolver!r}"
        )
