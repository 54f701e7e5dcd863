"""Whether programs run on a device, as `device_connection.type` says."""

import tensorflow as tf

from ipu_keras.device.registration import IpuDevice
from ipu_keras.machine.system import FIRST_ACQUIRED, SYSTEM
from ipu_keras.settings.arguments import noted
from ipu_keras.settings.enumerations import DeviceConnectionType


def is_only_compiled_for(device: IpuDevice) -> bool:
    """Whether programs for a device are compiled and do not run, so that results are zeros."""
    return _connection(device) is DeviceConnectionType.PRE_COMPILE


def runs_programs(device: IpuDevice) -> bool:
    """Returns whether a program that was compiled runs now; the device is attached then.

    Raises:
        tf.errors.InvalidArgumentError: The device is never attached.
        tf.errors.FailedPreconditionError: Others do not release its IPUs in time.
    """
    connection = _connection(device)
    if connection is DeviceConnectionType.ON_DEMAND:
        SYSTEM.attach_on_demand(device.ordinal)
    if connection is DeviceConnectionType.NEVER:
        raise noted(
            tf.errors.InvalidArgumentError(
                None,
                None,
                "Trying to run an executable on a device that was configured for compilation only.",
            ),
            "Set `device_connection.type` to `DeviceConnectionType.ALWAYS` or `ON_DEMAND` to run "
            "programs, or to `PRE_COMPILE` for scripts that need results, which are zeros then. "
            f"Received: {connection}, for {device!r}",
        )
    return connection is not DeviceConnectionType.PRE_COMPILE


def _connection(device: IpuDevice) -> DeviceConnectionType:
    # Devices that were acquired are attached by those who acquired them.
    is_acquired = device.ordinal >= FIRST_ACQUIRED
    return DeviceConnectionType.ALWAYS if is_acquired else SYSTEM.connection
