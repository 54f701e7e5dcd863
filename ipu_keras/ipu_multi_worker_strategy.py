"""The strategy of a cluster of workers, for a cluster of one."""

from typing import Any

import tensorflow as tf

from ipu_keras.internals.tensorflow.strategies import update_context
from ipu_keras.ipu_strategy import IPUExtended, IPUStrategy
from ipu_keras.settings.arguments import checked_switch

_HOST = "/device:CPU:0"


class IPUMultiWorkerStrategy(IPUStrategy):
    """Places variables and functions on the IPU of each worker of a cluster, of which there is one.

    On hardware the workers keep their variables in sync: they add gradients and reduce variables
    over all of them, by TensorFlow's collective operations over gRPC. With one worker there is
    nothing to reduce, so that it computes the same here. More workers are refused.

    It is for training loops of one's own, which `run` or its older name `experimental_run_v2`
    runs. Keras models made in its scope do not get the IPU extensions, as Keras's `fit` is not
    supported with it on hardware.

    Args:
        cluster_resolver: Says who is in the cluster, such as a `TFConfigClusterResolver`. A
            cluster without jobs is this process alone.
        ipu_device: Name of the TensorFlow device.
        variables_on_host: Whether variables, also those of optimizers, are on the host and
            not on the IPU. Those that would be synchronised when they are read
            (`tf.VariableSynchronization.ON_READ`) stay on the IPU. On hardware weight
            updates then have to be placed on the host; here they may be.

    Raises:
        NotImplementedError: The cluster has several workers.
        TypeError: `cluster_resolver` is no cluster resolver.
        ValueError: The device is an IPU that is not configured.

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
        _check_cluster(cluster_resolver)
        self._variables_on_host = checked_switch("variables_on_host", variables_on_host)
        super().__init__(ipu_device, enable_keras_extensions=False)
        # Where TensorFlow looks for the `cluster_resolver` of a strategy.
        self.extended._cluster_resolver = cluster_resolver

    def _make_extended(self, ipu_device: str) -> IPUExtended:
        kind = HostVariables if self._variables_on_host else IPUExtended
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


def _check_cluster(cluster_resolver: Any) -> None:
    if not isinstance(cluster_resolver, tf.distribute.cluster_resolver.ClusterResolver):
        raise TypeError(
            "`cluster_resolver` must be a tf.distribute.cluster_resolver.ClusterResolver, such as "
            f"a TFConfigClusterResolver. Received: cluster_resolver={cluster_resolver!r}"
        )
    cluster = cluster_resolver.cluster_spec().as_dict()
    num_workers = sum(len(tasks) for job, tasks in cluster.items() if job != "evaluator")
    if num_workers > 1:
        raise NotImplementedError(
            f"IPUMultiWorkerStrategy has a single worker here. Received: a cluster of "
            f"{num_workers}, {cluster}. The emulated IPUs of one process cannot exchange values "
            "with those of others, so that the workers would train apart without a word. Use a "
            "cluster of one worker, and for several replicas an IPUStrategy on a device with "
            "several IPUs."
        )
