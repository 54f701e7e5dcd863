"""What `poprun` tells the processes that it starts, under popdist's names.

The replicas of an application are spread evenly over its instances, which are processes. Without
`poprun` there is one instance of one replica.
"""

import os
from collections.abc import Callable, Collection
from typing import Any

from ipu_keras.config import IPUConfig
from ipu_keras.machine.system import LISTING, SYSTEM
from ipu_keras.processes.joining import NUM_TOTAL_REPLICAS, joined

_NUM_LOCAL_REPLICAS = "POPDIST_NUM_LOCAL_REPLICAS"
_NUM_IPUS_PER_REPLICA = "POPDIST_NUM_IPUS_PER_REPLICA"


def init() -> None:
    """Joins the processes that `poprun` has started; may be called again.

    Raises:
        ImportError: mpi4py, or a library of MPI, is not installed.
        RuntimeError: `poprun` has started another number of processes than have joined.
    """
    joined()
    instances = getNumTotalReplicas() // getNumLocalReplicas()
    if isPopdistEnvSet() and instances != SYSTEM.world.size:
        raise RuntimeError(
            f"The environment is of {instances} instances, {getNumTotalReplicas()} replicas with "
            f"{getNumLocalReplicas()} in each. Received: {SYSTEM.world.size} processes; start them "
            "with `poprun`."
        )


def isBackendInitialized() -> bool:
    """Returns whether `init` has joined the processes."""
    return SYSTEM.communicator is not None


def isPopdistEnvSet() -> bool:
    """Returns whether `poprun` has started this process.

    Example:

    >>> isPopdistEnvSet()
    False
    """
    return NUM_TOTAL_REPLICAS in os.environ


def getNumTotalReplicas() -> int:
    """Returns the number of replicas of all instances."""
    return int(os.environ.get(NUM_TOTAL_REPLICAS, "1"))


def getNumLocalReplicas() -> int:
    """Returns the number of replicas of this instance."""
    return int(os.environ.get(_NUM_LOCAL_REPLICAS, "1"))


def getNumIpusPerReplica() -> int:
    """Returns the number of IPUs of a replica."""
    return int(os.environ.get(_NUM_IPUS_PER_REPLICA, "1"))


def getNumInstances() -> int:
    """Returns the number of instances."""
    return getNumTotalReplicas() // getNumLocalReplicas()


def getInstanceIndex() -> int:
    """Returns the number of this instance, from 0."""
    return getReplicaIndexOffset() // getNumLocalReplicas()


def getReplicaIndexOffset() -> int:
    """Returns the number of this instance's first replica among those of all instances."""
    rank = joined().rank if isPopdistEnvSet() else 0
    return rank * getNumLocalReplicas()


def getDeviceId() -> int:
    """Returns the number of the device with the IPUs of this instance, as `select_ipus` takes it.

    Each instance has an emulated machine of its own, whose first device of so many IPUs it gets.

    Raises:
        RuntimeError: No device has so many IPUs.

    Example:

    >>> getDeviceId()
    0
    """
    num_ipus = getNumLocalReplicas() * getNumIpusPerReplica()
    for number, ipus in enumerate(LISTING):
        if len(ipus) == num_ipus:
            return number
    raise RuntimeError(
        "Devices have 1, 2, 4, 8 or 16 IPUs. Received: an instance of "
        f"{getNumLocalReplicas()} replicas of {getNumIpusPerReplica()} IPUs each"
    )


def execute_on_instances(
    instances: Collection[int], function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Calls a function in some instances, and does nothing in the others.

    Args:
        instances: The numbers of these instances.
        function: The function to call.
        args: What the function is called with, in these instances only.
        kwargs: The same by name.

    Returns:
        What the function returns; `None` in the other instances.

    Example:

    >>> execute_on_instances({0}, max, 1, 2)
    2
    """
    return function(*args, **kwargs) if getInstanceIndex() in instances else None


def checkNumIpusPerReplica(num_ipus: int) -> None:
    """Raises an error if a script counts on another number of IPUs than `poprun` was told.

    Args:
        num_ipus: The IPUs that the script gives a replica.

    Raises:
        RuntimeError: `poprun` was told of another number.
    """
    if num_ipus != getNumIpusPerReplica():
        raise RuntimeError(
            f"`poprun` was told of {getNumIpusPerReplica()} IPUs a replica. Received: {num_ipus}; "
            "change `--ipus-per-replica`, or the script."
        )


def set_ipu_config(
    config: IPUConfig, ipus_per_replica: int = 1, configure_device: bool = True
) -> IPUConfig:
    """Sets what a configuration says of this instance and its IPUs.

    Args:
        config: The configuration to change.
        ipus_per_replica: The IPUs that the script gives a replica.
        configure_device: Whether this instance's IPUs are selected.

    Returns:
        The same configuration.

    Raises:
        RuntimeError: `poprun` was told of another number of IPUs a replica.
    """
    if isPopdistEnvSet():
        checkNumIpusPerReplica(ipus_per_replica)
    options = config.experimental.multi_replica_distribution
    options.process_count, options.process_index = getNumInstances(), getInstanceIndex()
    if configure_device:
        config.auto_select_ipus = getNumLocalReplicas() * ipus_per_replica
    return config
