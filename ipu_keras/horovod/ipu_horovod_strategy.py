"""The strategy of Horovod's processes, each of which has one replica."""

from typing import Any

from ipu_keras.horovod.ipu_multi_replica_strategy import (
    ExtendedToProcesses,
    IPUMultiReplicaStrategy,
)
from ipu_keras.ipu_multi_worker_strategy import HostVariables
from ipu_keras.ipu_strategy import IPUExtended
from ipu_keras.settings.arguments import checked_switch


class IPUHorovodStrategy(IPUMultiReplicaStrategy):
    """Trains with loops of one's own on the IPUs of several processes.

    It is used like `IPUMultiWorkerStrategy`, without a cluster resolver and servers: `mpirun`
    starts the processes, and `horovod.init` joins them.

    Args:
        ipu_device: Name of the TensorFlow device.
        variables_on_host: Whether variables, also those of optimizers, are on the host and not on
            the IPU, except those that are synchronised when they are read.

    Raises:
        ValueError: `horovod.init` has not joined the processes, or the device is an IPU that is not
            configured.
        TypeError: `ipu_device` is not a text.

    Example:

    >>> from ipu_keras import horovod
    >>> horovod.init()
    >>> IPUHorovodStrategy().num_replicas_in_sync
    1
    """

    def __init__(self, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False):
        self._variables_on_host = checked_switch("variables_on_host", variables_on_host)
        super().__init__(ipu_device)

    def _make_extended(self, ipu_device: str) -> IPUExtended:
        kind = _HostVariables if self._variables_on_host else ExtendedToProcesses
        return kind(self, ipu_device, self.world.size, adds_up=True)

    def update_ipu_config(self, config: Any) -> Any:
        """Returns a configuration as it is: processes that Horovod joins have IPUs of their own.

        Args:
            config: An `IPUConfig` of this process.

        Returns:
            The same configuration.
        """
        return config


class _HostVariables(ExtendedToProcesses, HostVariables):
    """Gives variables the value of the first process, and then their place on the host."""


# The name of the class in the releases before 2.6.
IPUHorovodStrategyV1 = IPUHorovodStrategy
