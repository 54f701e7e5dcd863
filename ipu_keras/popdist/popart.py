"""What `poprun` tells the instances of a PopART application."""

from typing import Any

from ipu_keras import popdist
from ipu_keras.popart import DeviceManager, SessionOptions
from ipu_keras.popart.options.enumerations import DeviceConnectionType


def configureSessionOptions(options: SessionOptions) -> SessionOptions:
    """Sets what the options of a session say of this instance and its replicas.

    Args:
        options: The options to change.

    Returns:
        The same options.

    Example:

    >>> from ipu_keras.popart import SessionOptions
    >>> configureSessionOptions(SessionOptions()).globalReplicationFactor
    1
    """
    options.enableReplicatedGraphs = popdist.getNumLocalReplicas() > 1
    options.replicatedGraphCount = popdist.getNumLocalReplicas()
    options.enableDistributedReplicatedGraphs = popdist.getNumInstances() > 1
    options.globalReplicationFactor = popdist.getNumTotalReplicas()
    options.globalReplicaOffset = popdist.getReplicaIndexOffset()
    return options


def getDevice(connectionType: DeviceConnectionType = DeviceConnectionType.Always) -> Any:
    """Acquires the IPUs of this instance.

    Args:
        connectionType: When the device is attached.

    Returns:
        The device, for a session.

    Raises:
        popart_exception: The IPUs are in use.
        RuntimeError: No device has so many IPUs.
    """
    return DeviceManager().acquireDeviceById(popdist.getDeviceId(), connectionType=connectionType)
