"""`popart.DeviceInfo`: IPUs of the machine, a model of IPUs, or the host, for sessions.

Which IPUs are free is decided by `ipu_keras.machine.system`, for TensorFlow's devices as well.
"""

import threading
import time
from dataclasses import dataclass

from ipu_keras.device import IpuDevice, device_for
from ipu_keras.machine.system import SYSTEM, DeviceConfiguration
from ipu_keras.machine.target import Target, target_of_version
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options.enumerations import DeviceConnectionType, DeviceType, SyncPattern

_POLL_SECONDS = 0.02

_COMPILES_OFFLINE = (DeviceType.Ipu, DeviceType.OfflineIpu)


@dataclass(frozen=True, kw_only=True)
class Description:
    """What is known of a device, attached or not.

    Args:
        version: The generation of IPUs, such as `"ipu2"`; `"cpu"` for the host.
        pattern: Which IPUs wait for each other; kept for users, as in the emulator all do.
        config_id: The device configuration of the machine; `None` for models and the host.
        driver_ids: The numbers of the machine's IPUs that the device has.
        attach_timeout: The seconds for which `tryAttachUntilTimeout` tries.
    """

    type: DeviceType
    version: str
    num_ipus: int = 1
    tiles_per_ipu: int = 1
    connection_type: DeviceConnectionType = DeviceConnectionType.Always
    pattern: SyncPattern = SyncPattern.Full
    config_id: int | None = None
    driver_ids: tuple[int, ...] = ()
    attach_timeout: float = 0.0


class DeviceInfo:
    """A device that sessions run on, which a `DeviceManager` gives.

    While the device is attached it has its IPUs for itself, beside the devices that are configured
    for TensorFlow. They are free again once it is detached, or no longer referenced. A `with`
    statement detaches it at the end.

    Args:
        description: The kind, size and place of the device.

    Example:

    >>> from ipu_keras.popart.devices.manager import DeviceManager
    >>> with DeviceManager().acquireAvailableDevice(2) as device:
    ...     print(device)
    Device Type: Ipu Connection Type: Always Id: 16 Version: ipu2 NumIPUs: 2 Tiles Per IPU: 1472 \
DriverIDs: {5,7}
    >>> device.isAttached
    False
    """

    def __init__(self, description: Description):
        self._description = description
        self._lock = threading.Lock()
        self._held: DeviceConfiguration | None = None
        self._num_attachments = 0

    @property
    def type(self) -> DeviceType:
        """The kind of device, such as `DeviceType.Ipu`."""
        return self._description.type

    @property
    def connectionType(self) -> DeviceConnectionType:
        """When the device is attached: when acquired, on demand, or never."""
        return self._description.connection_type

    @property
    def version(self) -> str:
        """The generation of its IPUs, such as `"ipu2"`; `"cpu"` for the host."""
        return self._description.version

    @property
    def id(self) -> int:
        """The number of the machine's device configuration; 0 for models and the host."""
        return self._description.config_id or 0

    @property
    def numIpus(self) -> int:
        """The number of IPUs of the device."""
        return self._description.num_ipus

    @property
    def tilesPerIPU(self) -> int:
        """The number of tiles of each IPU."""
        return self._description.tiles_per_ipu

    @property
    def tilesPerIpu(self) -> int:
        """The number of tiles of each IPU, by its name in later releases."""
        return self._description.tiles_per_ipu

    @property
    def driverIds(self) -> list[int]:
        """The numbers of the machine's IPUs that it has; none for models and the host."""
        return list(self._description.driver_ids)

    @property
    def numWorkerContexts(self) -> int:
        """The number of worker threads of a tile; 1 for the host."""
        target = self.target()
        return 1 if target is None else target.num_workers

    @property
    def canCompileOffline(self) -> bool:
        """Whether programs can be compiled for the device without attaching it."""
        return self.type in _COMPILES_OFFLINE

    @property
    def isAttached(self) -> bool:
        """Whether the device is attached, and so has its IPUs for itself."""
        return self._held is not None

    @property
    def num_attachments(self) -> int:
        """How often the device was attached; each time, what it held before is lost."""
        return self._num_attachments

    @property
    def device(self) -> IpuDevice:
        """The TensorFlow device that computes for this device.

        Raises:
            popart_exception: The device is not attached, or cannot be.
        """
        held = self._held
        if held is None:
            self._check_can_be_attached()
            raise popart_exception(
                f"The device is not attached: {self}. Call its `attach()` first, or acquire a "
                "device with `DeviceConnectionType.Always`."
            )
        return device_for(held.ordinal)

    def target(self, num_io_tiles: int = 0) -> Target | None:
        """Returns the hardware for the cost model; `None` for the host, which has no cost.

        `num_io_tiles` is the number of tiles that are set apart for input and output.

        Raises:
            popart_exception: No tile would be left to compute.
        """
        if self.type is DeviceType.Cpu:
            return None
        if num_io_tiles >= self.tilesPerIPU:
            raise popart_exception(
                f"SessionOptions.numIOTiles must be less than the {self.tilesPerIPU} tiles of an "
                f"IPU, for some to compute. Received: numIOTiles={num_io_tiles}"
            )
        whole = target_of_version(self.version, self.tilesPerIPU)
        return whole.without_tiles(num_io_tiles)

    def attach(self) -> bool:
        """Attaches the device, if its IPUs are free.

        Returns:
            Whether the device is attached now.

        Raises:
            popart_exception: The device is of a kind that is never attached.
        """
        with self._lock:
            if self._held is None:
                self._check_can_be_attached()
                self._held = self._acquired()
                self._num_attachments += self._held is not None
            return self._held is not None

    def tryAttachUntilTimeout(self) -> bool:
        """Attaches the device as soon as its IPUs are free.

        Waits for as long as `DeviceManager.setOnDemandAttachTimeout` says.

        Returns:
            Whether the device is attached now.

        Raises:
            popart_exception: The device is of a kind that is never attached.
        """
        end = time.monotonic() + self._description.attach_timeout
        while not self.attach():
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _POLL_SECONDS))
        return True

    def attach_for_engine(self) -> None:
        """Attaches a device of connection type `OnDemand` when a program is loaded onto it.

        Raises:
            popart_exception: The IPUs of the device are not free.
        """
        if self.connectionType is not DeviceConnectionType.OnDemand or self.isAttached:
            return
        if not self.tryAttachUntilTimeout():
            raise popart_exception(
                f"Failed to attach to the device: others have its IPUs. Received: {self}. Detach "
                "what has them, or wait longer by `DeviceManager.setOnDemandAttachTimeout`."
            )

    def detach(self) -> None:
        """Detaches the device once no session runs on it; does nothing if it is not attached."""
        with self._lock:
            held, self._held = self._held, None
            if held is not None:
                # Steps that have begun end; those that begin later find the device detached, as
                # `_held` is gone already.
                device_for(held.ordinal).engine.wait()
                SYSTEM.release(held)

    def __enter__(self) -> "DeviceInfo":
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return (
            f"Device Type: {self.type.name} Connection Type: {self.connectionType.name} "
            f"Id: {self.id} Version: {self.version} NumIPUs: {self.numIpus} "
            f"Tiles Per IPU: {self.tilesPerIPU} DriverIDs: {{{','.join(map(str, self.driverIds))}}}"
        )

    def _acquired(self) -> DeviceConfiguration | None:
        config_id = self._description.config_id
        if config_id is None:
            return SYSTEM.acquire_model(self.numIpus)
        return SYSTEM.acquire([config_id])

    def _check_can_be_attached(self) -> None:
        if self.type is DeviceType.OfflineIpu:
            raise popart_exception(
                "Offline IPU device is not configured for execution. Programs can only be compiled "
                f"for it, by prepareDevice(loadEngine=False) or compileAndExport: {self}. To run "
                "them, acquire a device with `acquireAvailableDevice`."
            )
        if self.connectionType is DeviceConnectionType.Never:
            raise popart_exception(
                "Trying to attach to a device whose connection type is "
                f"`DeviceConnectionType.Never`: {self}. Acquire it with `Always` or `OnDemand`."
            )
