"""A device that sessions run on: IPUs of the machine, a model of IPUs, or the host."""

import threading
import time
from dataclasses import dataclass

from ipu_keras.device import IpuDevice, device_for
from ipu_keras.machine.system import SYSTEM, DeviceConfiguration
from ipu_keras.machine.target import Target, target_of_version
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options.enumerations import DeviceConnectionType, DeviceType, SyncPattern

# Between two attempts to attach.
_POLL_SECONDS = 0.02

_COMPILES_OFFLINE = (DeviceType.Ipu, DeviceType.OfflineIpu)


@dataclass(frozen=True, kw_only=True)
class Description:
    """What is known of a device, attached or not.

    Args:
        type: Its kind.
        version: Generation of its IPUs, such as `"ipu2"`; `"cpu"` for the host.
        num_ipus: How many IPUs it has.
        tiles_per_ipu: Tiles of each.
        connection_type: When it is attached.
        pattern: Which IPUs wait for each other. All do in the emulator; it is kept for users.
        config_id: Of the device configuration of the machine; `None` if it is none of these.
        driver_ids: The IPUs of the machine that it has.
        attach_timeout: Seconds for which `tryAttachUntilTimeout` tries.
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
    """A device that sessions run on; get it from a `DeviceManager`.

    While it is attached it has its IPUs for itself, beside the devices that are configured for
    TensorFlow. They are free again once it is detached, or nobody has it any more. In a `with`
    statement it is detached at the end.

    Args:
        description: What is known of it.

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
        """Its kind."""
        return self._description.type

    @property
    def connectionType(self) -> DeviceConnectionType:
        """When it is attached."""
        return self._description.connection_type

    @property
    def version(self) -> str:
        """Generation of its IPUs, such as `"ipu2"`; `"cpu"` for the host."""
        return self._description.version

    @property
    def id(self) -> int:
        """Number of the device configuration of the machine; 0 if it is none of these."""
        return self._description.config_id or 0

    @property
    def numIpus(self) -> int:
        """How many IPUs it has."""
        return self._description.num_ipus

    @property
    def tilesPerIPU(self) -> int:
        """Tiles of each IPU."""
        return self._description.tiles_per_ipu

    @property
    def tilesPerIpu(self) -> int:
        """Tiles of each IPU."""
        return self._description.tiles_per_ipu

    @property
    def driverIds(self) -> list[int]:
        """The IPUs of the machine that it has; none for models and the host."""
        return list(self._description.driver_ids)

    @property
    def numWorkerContexts(self) -> int:
        """Worker threads of a tile."""
        target = self.target()
        return 1 if target is None else target.num_workers

    @property
    def canCompileOffline(self) -> bool:
        """Whether programs can be compiled for it without it."""
        return self.type in _COMPILES_OFFLINE

    @property
    def isAttached(self) -> bool:
        """Whether it has its IPUs for itself."""
        return self._held is not None

    @property
    def num_attachments(self) -> int:
        """How often it was attached; what it held before is gone each time."""
        return self._num_attachments

    @property
    def device(self) -> IpuDevice:
        """The TensorFlow device that computes for it.

        Raises:
            popart_exception: It is not attached, or cannot be.
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
        """The hardware that the cost model counts with.

        Args:
            num_io_tiles: Tiles that are set apart for input and output.

        Returns:
            The target; `None` for the host, on which nothing is counted.

        Raises:
            popart_exception: No tile would be left.
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
        """Takes its IPUs, if they are free.

        Returns:
            Whether it is attached now.

        Raises:
            popart_exception: It is a device that is never attached.
        """
        with self._lock:
            if self._held is None:
                self._check_can_be_attached()
                self._held = self._acquired()
                self._num_attachments += self._held is not None
            return self._held is not None

    def tryAttachUntilTimeout(self) -> bool:
        """Takes its IPUs as soon as they are free.

        It waits for as long as `DeviceManager.setOnDemandAttachTimeout` says.

        Returns:
            Whether it is attached now.

        Raises:
            popart_exception: It is a device that is never attached.
        """
        end = time.monotonic() + self._description.attach_timeout
        while not self.attach():
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _POLL_SECONDS))
        return True

    def attach_for_engine(self) -> None:
        """Takes the IPUs of a device of connection type `OnDemand`, as a program is loaded.

        Raises:
            popart_exception: They are not free.
        """
        if self.connectionType is not DeviceConnectionType.OnDemand or self.isAttached:
            return
        if not self.tryAttachUntilTimeout():
            raise popart_exception(
                f"Failed to attach to the device: others have its IPUs. Received: {self}. Detach "
                "what has them, or wait longer by `DeviceManager.setOnDemandAttachTimeout`."
            )

    def detach(self) -> None:
        """Gives its IPUs back once no session runs on it; does nothing if it is not attached."""
        with self._lock:
            held, self._held = self._held, None
            if held is not None:
                # What has not begun to run by now finds it detached.
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
