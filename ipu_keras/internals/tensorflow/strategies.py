"""What distribution strategies consist of: TensorFlow's smallest one, and its contexts.

A public strategy can be extended only by its `extended`, whose classes are private.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from ipu_keras.internals.forms import Class, Function, PrivateName

_ONE_DEVICE = PrivateName(
    "tensorflow.python.distribute.one_device_strategy",
    "OneDeviceExtended",
    Class(
        members={
            "__init__": Function("self", "container_strategy", "device"),
            "_call_for_each_replica": Function("self", "fn", "args", "kwargs"),
            "_container_strategy": Function("self"),
            "_create_variable": Function("self", "next_creator"),
            "_distribute_datasets_from_function": Function("self", "dataset_fn", "options"),
            "_get_local_replica_id": Function("self", "replica_id_in_sync_group"),
            "_experimental_distribute_dataset": Function("self", "dataset", "options"),
            "_local_results": Function("self", "value"),
            "_update": Function("self", "var", "fn", "args", "kwargs", "group"),
            "_update_non_slot": Function("self", "colocate_with", "fn", "args", "kwargs", "group"),
        },
        assigned=("_device", "_input_device", "_default_device"),
    ),
)
_REPLICA_CONTEXT = PrivateName(
    "tensorflow.python.distribute.one_device_strategy",
    "_OneDeviceReplicaContext",
    Class(
        "__enter__",
        "__exit__",
        members={"__init__": Function("self", "strategy")},
        assigned=("_replica_id_in_sync_group",),
    ),
)
_UPDATE_CONTEXT = PrivateName(
    "tensorflow.python.distribute.distribute_lib",
    "UpdateContext",
    Class("__enter__", "__exit__", members={"__init__": Function("self", "replica_id")}),
)

_ON_READ = PrivateName(
    "tensorflow.python.distribute.values",
    "SyncOnReadVariable",
    Class(
        members={
            "__init__": Function("self", "strategy", "values", "aggregation"),
            "_get_cross_replica": Function("self"),
            "_get_replica": Function("self", "replica_id"),
            "value": Function("self"),
        },
        assigned=("_aggregation",),
    ),
)
_ON_WRITE = PrivateName(
    "tensorflow.python.distribute.values",
    "MirroredVariable",
    Class(
        members={
            "__init__": Function("self", "strategy", "values", "aggregation"),
            "_update_replica": Function("self", "update_fn", "value"),
        },
    ),
)
_CREATE_WRAPPED = PrivateName(
    "tensorflow.python.distribute.distribute_utils",
    "create_mirrored_variable",
    Function("strategy", "real_mirrored_creator", "class_mapping", "policy_mapping"),
)

# What TensorFlow asks of a strategy of one device, compared at import because ours extends it.
OneDeviceExtended: Any = _ONE_DEVICE.get()
# A variable of a strategy that holds those of its replicas, and is reduced when it is read
# outside of replicas.
SyncOnReadVariable: Any = _ON_READ.get()


def variable_of_replicas(
    strategy: Any, on_read: type | None, create: Callable[..., Any], **options: Any
) -> Any:
    """Makes the variable of the one replica of this process, and one of all replicas around it.

    Args:
        on_read: The class of those that are reduced when they are read; others are TensorFlow's
            own, which reduce what replicas assign to them.
    """

    def created(**given: Any) -> list[Any]:
        return [create(**given)]

    kinds = {
        tf.VariableSynchronization.ON_READ: on_read,
        tf.VariableSynchronization.ON_WRITE: _ON_WRITE.get(),
    }
    return _CREATE_WRAPPED.get()(strategy, created, kinds, {}, **options)


def is_reduced_when_assigned(options: Mapping[str, Any]) -> bool:
    """Whether a variable that is made with these options has a reduction of what is assigned."""
    on_read = options.get("synchronization") == tf.VariableSynchronization.ON_READ
    return not on_read and options.get("aggregation") in (
        *(tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN),
        *(tf.compat.v1.VariableAggregation.SUM, tf.compat.v1.VariableAggregation.MEAN),
    )


def of_this_process(variable: Any) -> Any:
    """Returns the variable of the one replica of this process, which one of all may be around."""
    return variable.values[0] if isinstance(variable, _ON_WRITE.get()) else variable


def replica_context(strategy: Any, replica_id: int) -> Any:
    """While this is open, functions run as the one replica of a strategy that this process has."""
    context = _REPLICA_CONTEXT.get()(strategy)
    context._replica_id_in_sync_group = replica_id
    return context


def update_context(device: str) -> Any:
    """While this is open, functions update variables that are on a device."""
    return _UPDATE_CONTEXT.get()(device)
