"""The strategy of models whose replicas are spread over several processes."""

import functools
from typing import Any

import tensorflow as tf

from ipu_keras.horovod import initialized_world
from ipu_keras.internals.tensorflow.strategies import (
    is_reduced_when_assigned,
    of_this_process,
    variable_of_replicas,
)
from ipu_keras.ipu_strategy import IPUExtended, IPUStrategy
from ipu_keras.machine.world import World
from ipu_keras.ops.collectives import all_reduce_sum, replica_groups
from ipu_keras.processes.checkpoints import is_of_one_process
from ipu_keras.processes.process_collectives import all_reduce, broadcast
from ipu_keras.processes.summed_gradients import are_summed
from ipu_keras.settings.arguments import checked_switch
from ipu_keras.tracing.replication import current_replicas, is_for_all_replicas


class IPUMultiReplicaStrategy(IPUStrategy):
    """Trains one model on the IPUs of several processes, each of which has data of its own.

    Each optimizer adds up the gradients of all processes before an update, and one of Keras's
    before it clips them, so that all of them keep the same weights; variables begin with the value
    that they have in process 0. Keras divides its losses by the number of all replicas, so that
    `fit` averages gradients. `reduce` is over processes. A variable with the aggregation `SUM` or
    `MEAN` gets the sum or the mean of what all processes, of one replica each, assign to it, or
    add, within `run` or a model; without one, or with the synchronization `ON_READ`, each process
    assigns to its own. Processes have to run the same programs, equally often.

    Args:
        ipu_device: Name of the TensorFlow device.
        add_ipu_cross_replica_reductions: Whether optimizers add up gradients; if not, that is left
            to a `CrossReplicaOptimizer` and the like.

    Raises:
        ValueError: `horovod.init` has not joined the processes, or the device is an IPU that is not
            configured.
        TypeError: `ipu_device` is not a text.

    Example:

    >>> from ipu_keras import horovod
    >>> horovod.init()
    >>> IPUMultiReplicaStrategy().num_replicas_in_sync
    1
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
    ):
        self._world = initialized_world()
        self._adds_up = checked_switch(
            "add_ipu_cross_replica_reductions", add_ipu_cross_replica_reductions
        )
        super().__init__(ipu_device)

    def _make_extended(self, ipu_device: str) -> "IPUExtended":
        return ExtendedToProcesses(self, ipu_device, self._world.size, self._adds_up)

    @property
    def world(self) -> World:
        """The processes that train together."""
        return self._world

    def update_ipu_config(self, config: Any) -> Any:
        """Sets the options of several processes in a configuration.

        Args:
            config: The `IPUConfig` to change.

        Returns:
            The same configuration.
        """
        options = config.experimental.multi_replica_distribution
        options.process_count = self._world.size
        options.process_index = self._world.rank
        return config


class ExtendedToProcesses(IPUExtended):
    """Adds up gradients over processes, and has variables begin with the same values."""

    def __init__(self, strategy: IPUStrategy, device: str, num_processes: int, adds_up: bool):
        super().__init__(strategy, device)
        self._num_processes = num_processes
        self._adds_up = adds_up

    @property
    def _num_replicas_in_sync(self) -> int:
        device = self._container_strategy().device
        return self._num_processes * (1 if device is None else len(device.ipus))

    def _create_variable(self, next_creator, **kwargs):
        if is_of_one_process():
            return super()._create_variable(next_creator, **kwargs)
        given = kwargs["initial_value"]

        def of_first_process():
            value = given() if callable(given) else given
            own = tf.convert_to_tensor(value, dtype=kwargs.get("dtype"))
            return broadcast(own, 0, is_initial=True)

        options = {**kwargs, "initial_value": of_first_process}
        create = functools.partial(super()._create_variable, next_creator)
        if self._num_processes == 1 or not is_reduced_when_assigned(kwargs):
            return create(**options)
        return variable_of_replicas(self._container_strategy(), None, create, **options)

    def _update(self, var, fn, args, kwargs, group):
        return super()._update(of_this_process(var), fn, args, kwargs, group)

    def _reduce_to(self, reduce_op, value, destinations, options):
        if is_for_all_replicas() and current_replicas() > 1:
            raise NotImplementedError(
                "A variable with the aggregation SUM or MEAN is assigned to by processes of one "
                "replica each: start one process for each replica, or assign what "
                "`cross_replica_sum` returns to a variable without an aggregation. "
                f"Received: {current_replicas()} replicas in this process"
            )
        (total,) = all_reduce([value])
        is_mean = reduce_op == tf.distribute.ReduceOp.MEAN
        return total / tf.cast(self._num_processes, total.dtype) if is_mean else total

    def _batch_reduce_to(self, reduce_op, value_destination_pairs, options):
        values = [value for value, _ in value_destination_pairs]
        if not self._adds_up or are_summed():
            return values
        totals = self._totals(values)
        if reduce_op != tf.distribute.ReduceOp.MEAN:
            return totals
        return [total / tf.cast(self._num_replicas_in_sync, total.dtype) for total in totals]

    def _totals(self, values):
        # In a user's function each replica of a process asks for it, and elsewhere the host has
        # added up what they have.
        if is_for_all_replicas() and current_replicas() > 1:
            groups = replica_groups(None, "replicas")
            values = [all_reduce_sum(value, groups) for value in values]
            if groups.num_replicas > current_replicas():
                return values
        return all_reduce(values)

    def _distribute_datasets_from_function(self, dataset_fn, options):
        world = self._container_strategy().world
        context = tf.distribute.InputContext(world.size, world.rank, self._num_replicas_in_sync)
        return self._experimental_distribute_dataset(dataset_fn(context), options)


# The name of the class in the releases before 2.6.
IPUMultiReplicaStrategyV1 = IPUMultiReplicaStrategy
