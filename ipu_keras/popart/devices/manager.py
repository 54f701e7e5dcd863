"""`popart.DeviceManager`: finds, acquires and creates the devices that sessions run on."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from ipu_keras.machine.system import IPU_MODEL_LIMIT, LISTING, SYSTEM
from ipu_keras.machine.target import TARGETS, VERSIONS
from ipu_keras.popart.devices.info import Description, DeviceInfo
from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.options.enumerations import (
    DeviceConnectionType,
    DeviceSelectionCriterion,
    DeviceType,
    Enumeration,
    SyncPattern,
    syncPatternFromString,
)
from ipu_keras.settings.arguments import integer_in

# The generation of the IPUs of the emulated machine.
_VERSION = "ipu2"
_TRUTHS = ("true", "false", "1", "0")


class DeviceManager:
    """Finds, acquires and creates the devices that sessions run on.

    The machine has 16 IPUs, alone and in groups of 2, 4, 8 and 16. What is acquired is not free
    for TensorFlow, and what is configured for TensorFlow is not free here.

    Example:

    >>> device = DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 4})
    >>> device.numIpus, device.tilesPerIPU
    (2, 4)
    """

    # Shared by all managers, as there is one machine.
    _attach_timeout = 0.0

    def enumerateDevices(
        self,
        pattern: SyncPattern = SyncPattern.Full,
        numIpus: int = 1,
        deviceType: DeviceType = DeviceType.Ipu,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """Lists devices of a kind and size, whether they are free or not.

        Args:
            pattern: Which IPUs of a device wait for each other.
            numIpus: The number of IPUs of each device.
            deviceType: The kind of the devices.
            connectionType: When the devices are attached; with `Always` only `acquire...` attaches
                them at once.
            tilesPerIPU: The number of tiles of each IPU; 0 means all tiles.

        Returns:
            Devices that are not attached; the list may be empty.
        """
        _check(SyncPattern, pattern=pattern)
        _check(DeviceConnectionType, connectionType=connectionType)
        _check(DeviceType, deviceType=deviceType)
        num_ipus = _integer("numIpus", numIpus, 0)
        tiles = _tiles("tilesPerIPU", tilesPerIPU, _VERSION)
        if deviceType is DeviceType.Ipu:
            sized = _configurations(num_ipus)
            return [self._of_machine(each, pattern, connectionType, tiles) for each in sized]
        if num_ipus == 0 or deviceType is DeviceType.OfflineIpu:
            return []
        if deviceType is DeviceType.Cpu:
            return [DeviceInfo(_HOST)] if num_ipus == 1 else []
        return [
            DeviceInfo(
                Description(
                    type=deviceType, version=_VERSION, num_ipus=num_ipus, tiles_per_ipu=tiles
                )
            )
        ]

    def acquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo | None:
        """Acquires a device of some number of IPUs that are free.

        Args:
            numIpus: The number of IPUs, a power of two.
            tilesPerIpu: The number of tiles of each IPU; 0 means all tiles.
            pattern: Which IPUs of the device wait for each other.
            connectionType: When the device is attached: now (`Always`), as soon as a session loads
                a program or `attach` is called (`OnDemand`), or never. Only a device that is
                attached now has to be free now.
            selectionCriterion: Which device to take if several are free.

        Returns:
            The device, or `None` if none is free.

        Raises:
            popart_exception: The number of IPUs is no power of two, or an IPU has fewer tiles.
        """
        _check(SyncPattern, pattern=pattern)
        _check(DeviceConnectionType, connectionType=connectionType)
        _check(DeviceSelectionCriterion, selectionCriterion=selectionCriterion)
        num_ipus = _integer("numIpus", numIpus, 1)
        if num_ipus & (num_ipus - 1):
            raise popart_exception(
                f"You have attempted to acquire {num_ipus} IPUs. The number of IPUs requested must "
                "be a power of two. Use one of 1, 2, 4, 8 and 16."
            )
        tiles = _tiles("tilesPerIpu", tilesPerIpu, _VERSION)
        candidates = _configurations(num_ipus)
        if selectionCriterion is DeviceSelectionCriterion.Random:
            random.SystemRandom().shuffle(candidates)
        # Free devices first. The others follow, as those that are attached later need not be free,
        # and others may be released meanwhile.
        candidates = [*SYSTEM.free(candidates), *candidates]
        devices = (self._of_machine(each, pattern, connectionType, tiles) for each in candidates)
        return _first_to_be_had(devices)

    def tryAcquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo | None:
        """Acquires a device as `acquireAvailableDevice` does, which raises in later releases.

        Args:
            numIpus: The number of IPUs, a power of two.
            tilesPerIpu: The number of tiles of each IPU; 0 means all tiles.
            pattern: Which IPUs of the device wait for each other.
            connectionType: When the device is attached, as for `acquireAvailableDevice`.
            selectionCriterion: Which device to take if several are free.

        Returns:
            The device, or `None` if none is free.

        Raises:
            popart_exception: The number of IPUs is no power of two, or an IPU has fewer tiles.
        """
        return self.acquireAvailableDevice(
            numIpus, tilesPerIpu, pattern, connectionType, selectionCriterion
        )

    def acquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo | None:
        """Acquires the device of a number.

        Args:
            id: The number of the device configuration: 0 to 15 are single IPUs, 30 is all of them.
            pattern: Which IPUs of the device wait for each other.
            connectionType: When the device is attached, as for `acquireAvailableDevice`.

        Returns:
            The device, or `None` if it should be attached now and is not free.

        Raises:
            popart_exception: There is no such device.
        """
        _check(SyncPattern, pattern=pattern)
        _check(DeviceConnectionType, connectionType=connectionType)
        number = integer_in(id)
        if number is None:
            raise TypeError(f"`id` must be an integer. Received: id={id!r}")
        if not 0 <= number < len(LISTING):
            raise popart_exception(
                f"There is no device with id {number}: the machine has devices 0 to "
                f"{len(LISTING) - 1}. `enumerateDevices(numIpus=...)` lists them."
            )
        tiles = _tiles("tilesPerIpu", 0, _VERSION)
        return _first_to_be_had([self._of_machine(number, pattern, connectionType, tiles)])

    def tryAcquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo | None:
        """Acquires a device as `acquireDeviceById` does, which raises in later releases.

        Args:
            id: The number of the device configuration.
            pattern: Which IPUs of the device wait for each other.
            connectionType: When the device is attached, as for `acquireAvailableDevice`.

        Returns:
            The device, or `None` if it should be attached now and is not free.

        Raises:
            popart_exception: There is no such device.
        """
        return self.acquireDeviceById(id, pattern, connectionType)

    def createCpuDevice(self) -> DeviceInfo:
        """Returns the host as a device, which computes the same without counting or refusing."""
        return _attached(_HOST)

    def createIpuModelDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """Creates a model of IPUs, which takes none of the machine's IPUs.

        Args:
            options: A dictionary of `numIPUs`, 1 if it is not given; `tilesPerIPU`, all tiles if
                it is not given; `ipuVersion`, one of `"ipu1"`, `"ipu2"` (if it is not given) and
                `"ipu21"`; `compileIPUCode`, which changes nothing, as the IPU's code is always
                modelled.

        Returns:
            The device, which is attached.

        Raises:
            popart_exception: An option is unknown, or has a wrong value.
        """
        known = ("numIPUs", "tilesPerIPU", "ipuVersion", "compileIPUCode")
        return _attached(_described(DeviceType.IpuModel, "createHostDevice", options, known))

    def createSimDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """Creates a simulator of IPUs, which is the model of IPUs under the simulator's name.

        Args:
            options: A dictionary of `numIPUs`, `tilesPerIPU` and `ipuVersion`, as for
                `createIpuModelDevice`.

        Returns:
            The device, which is attached.

        Raises:
            popart_exception: An option is unknown, or has a wrong value.
        """
        known = ("numIPUs", "tilesPerIPU", "ipuVersion")
        return _attached(_described(DeviceType.Sim, "createSimDevice", options, known))

    def createOfflineIPUDevice(self, opts: Mapping[str, Any]) -> DeviceInfo:
        """Creates a device for which programs can be compiled, but on which none can run.

        Args:
            opts: A dictionary of `numIPUs`, `tilesPerIPU` and `ipuVersion`, as for
                `createIpuModelDevice`; `syncPattern`, the name of a `SyncPattern`; `gatewayMode`,
                which changes nothing.

        Returns:
            The device, which can never be attached.

        Raises:
            popart_exception: An option is unknown, or has a wrong value.
        """
        known = ("numIPUs", "tilesPerIPU", "ipuVersion", "syncPattern", "gatewayMode")
        method = "createOfflineIPUDevice"
        return DeviceInfo(_described(DeviceType.OfflineIpu, method, opts, known))

    def setOnDemandAttachTimeout(self, attachTimeout: int) -> None:
        """Sets for how long devices that are acquired from now on try to attach.

        Args:
            attachTimeout: The seconds for which `DeviceInfo.tryAttachUntilTimeout` waits for IPUs
                that are not free.
        """
        DeviceManager._attach_timeout = _integer("attachTimeout", attachTimeout, 0)

    def _of_machine(
        self, config_id: int, pattern: SyncPattern, connection: DeviceConnectionType, tiles: int
    ) -> DeviceInfo:
        ipus = LISTING[config_id]
        return DeviceInfo(
            Description(
                type=DeviceType.Ipu,
                version=_VERSION,
                num_ipus=len(ipus),
                tiles_per_ipu=tiles,
                connection_type=connection,
                pattern=pattern,
                config_id=config_id,
                driver_ids=ipus,
                attach_timeout=self._attach_timeout,
            )
        )


_HOST = Description(type=DeviceType.Cpu, version="cpu")


def _configurations(num_ipus: int) -> list[int]:
    """Returns the numbers of the machine's device configurations with so many IPUs."""
    return [config_id for config_id, ipus in enumerate(LISTING) if len(ipus) == num_ipus]


def _first_to_be_had(devices: Iterable[DeviceInfo]) -> DeviceInfo | None:
    """Returns the first device that is free, or need not be free yet; `None` if there is none."""
    for device in devices:
        if device.connectionType is not DeviceConnectionType.Always or device.attach():
            return device
    return None


def _attached(description: Description) -> DeviceInfo:
    device = DeviceInfo(description)
    device.attach()
    return device


def _described(
    kind: DeviceType, method: str, options: Mapping[str, Any], known: tuple[str, ...]
) -> Description:
    """Checks options as users give them, and returns the device that they describe."""
    if not isinstance(options, Mapping):
        raise TypeError(f"The options of a device must be a dict. Received: {options!r}")
    for name in options:
        if name not in known:
            raise popart_exception(
                f"Invalid option `{name}' passed to DevicexManager::{method}: "
                f"{name}={options[name]!r}. It takes {', '.join(known)}."
            )
    version = options.get("ipuVersion", _VERSION)
    if version not in VERSIONS:
        raise popart_exception(
            f"`ipuVersion` must be one of {', '.join(map(repr, VERSIONS))}. "
            f"Received: ipuVersion={version!r}"
        )
    for name in ("compileIPUCode", "gatewayMode"):
        _check_truth(name, options.get(name, False))
    num_ipus = _integer("numIPUs", options.get("numIPUs", 1), 1, IPU_MODEL_LIMIT)
    return Description(
        type=kind,
        version=version,
        num_ipus=num_ipus,
        tiles_per_ipu=_tiles("tilesPerIPU", options.get("tilesPerIPU", 0), version),
        pattern=syncPatternFromString(options.get("syncPattern", "full")),
    )


def _tiles(name: str, value: Any, version: str) -> int:
    """Returns the number of tiles that was asked for; 0 means all."""
    most = TARGETS[VERSIONS[version]].num_tiles
    return _integer(name, value, 0, most) or most


def _integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Returns an integer within limits, which PopART's options also take as a string."""
    number = int(value) if isinstance(value, str) and value.isdecimal() else integer_in(value)
    if number is None:
        raise TypeError(f"`{name}` must be an integer. Received: {name}={value!r}")
    if number < least or (most is not None and number > most):
        span = f"at least {least}" if most is None else f"from {least} to {most}"
        raise popart_exception(f"`{name}` must be {span}. Received: {name}={number}")
    return number


def _check_truth(name: str, value: Any) -> None:
    if str(value).lower() not in _TRUTHS:
        raise popart_exception(f"`{name}` must be true or false. Received: {name}={value!r}")


def _check(kind: type[Enumeration], **arguments: Any) -> None:
    for name, value in arguments.items():
        if not isinstance(value, kind):
            raise TypeError(
                f"`{name}` must be a {kind.__name__}, such as {next(iter(kind))}. "
                f"Received: {name}={value!r} of type {type(value).__name__}"
            )
