"""Knows the emulated machine: which IPUs it has and which TensorFlow device holds which.

`SYSTEM` is the registry of the process. It decides and remembers; a driver that connects itself
makes devices appear in TensorFlow, so that nothing here needs TensorFlow.
"""

import contextlib
import itertools
import os
import re
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from ipu_keras.machine.numerics import FloatingPointException, Numerics, families_in_halves
from ipu_keras.machine.world import ALONE, World
from ipu_keras.settings.arguments import noted
from ipu_keras.settings.engine_options import ENVIRONMENT_VARIABLE as ENGINE_OPTIONS
from ipu_keras.settings.engine_options import current_engine_options
from ipu_keras.settings.enumerations import (
    DeviceConnectionType,
    StochasticRoundingBehaviour,
)
from ipu_keras.settings.flags import (
    ENVIRONMENT_VARIABLE,
    PoplarFlags,
    current_flags,
    help_text,
    idle_flags,
)
from ipu_keras.settings.option_warnings import OPTION_WARNINGS

# PCI address of each IPU, and the IPUs of each device configuration in the
# order of their DNC ids: the machine that the reference documentation lists
# as `gc-info -l`. Configurations 0 to 15 are the single IPUs.
PCI_ADDRESSES = (
    *("0000:1a:00.0", "0000:1b:00.0", "0000:23:00.0", "0000:24:00.0"),
    *("0000:3d:00.0", "0000:3e:00.0", "0000:43:00.0", "0000:44:00.0"),
    *("0000:8b:00.0", "0000:8c:00.0", "0000:8e:00.0", "0000:8f:00.0"),
    *("0000:b8:00.0", "0000:b9:00.0", "0000:ba:00.0", "0000:bb:00.0"),
)
LISTING: tuple[tuple[int, ...], ...] = (
    *((ipu,) for ipu in range(16)),
    *((5, 7), (4, 6), (3, 1), (2, 0)),  # 16 to 19
    *((13, 15), (12, 14), (9, 11), (10, 8)),  # 20 to 23
    *((5, 7, 4, 6), (3, 1, 2, 0), (13, 15, 12, 14), (9, 11, 10, 8)),  # 24 to 27
    *((5, 7, 4, 6, 3, 1, 2, 0), (13, 15, 12, 14, 9, 11, 10, 8)),  # 28, 29
    (5, 7, 4, 6, 3, 1, 2, 0, 13, 15, 12, 14, 9, 11, 10, 8),  # 30
)

# The IPU Model has no hardware to run out of; this stops slips of the keyboard.
IPU_MODEL_LIMIT = 1024

# Ordinals of acquired devices begin where no configuration gets to: it has at most as many
# devices as the IPU Model has IPUs.
FIRST_ACQUIRED = IPU_MODEL_LIMIT

_NONE: Mapping[int, int] = MappingProxyType({})

_DEVICE_NAME = r"(?:/job:[^/]+)?(?:/replica:\d+)?(?:/task:\d+)?/?(?:device:)?{kind}(?::(\d+))?"

Refuse = Callable[[str], Exception]


def _by_itself(what: Callable[[], str]) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


@dataclass(frozen=True)
class DeviceConfiguration:
    """One TensorFlow IPU device and the IPUs it holds.

    Args:
        ordinal: The k in `/device:IPU:k`.
        config_id: Index of the device configuration in `LISTING`, or `None` on the IPU Model,
            which has no listing.
        ipus: The physical IPUs in the order of the listing.
    """

    ordinal: int
    config_id: int | None
    ipus: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"/device:IPU:{self.ordinal}"


class Driver(Protocol):
    """What makes the devices of a `System` exist; connected by the device room."""

    def attach(self, devices: tuple[DeviceConfiguration, ...], config: Any) -> None:
        """Makes `devices` usable, or raises and leaves nothing behind."""

    def detach(self) -> None:
        """Waits until all devices are idle, then gives them up; not those that were acquired."""

    def move(self, device: DeviceConfiguration) -> None:
        """Gives a configured device other IPUs, as many as it had."""

    def acquire(self, device: DeviceConfiguration) -> None:
        """Makes one more device usable, as new, or raises and leaves nothing behind."""

    def release(self, ordinal: int) -> None:
        """Gives up a device that was acquired."""

    def refuse(self, message: str) -> Exception:
        """Returns the exception for a precondition that does not hold."""
        ...


class SystemConfiguration(Protocol):
    """What a `System` needs of an `IPUConfig`."""

    def frozen_copy(self) -> Any: ...


class System:
    """The devices of this process: configured ones, with their configuration, and acquired ones.

    Everything is checked and resolved before anything changes: a call that
    fails leaves the previous configuration active.

    An IPU belongs to one device. A device that was acquired holds its IPUs until it is released,
    or until nobody has the `DeviceConfiguration` any more that `acquire` returned. A configured
    one has its IPUs from the beginning with `DeviceConnectionType.ALWAYS`, from its first program
    to the next configuration or reset with `ON_DEMAND`, and never with the other types.

    Example:

    >>> from ipu_keras.config import IPUConfig
    >>> config = IPUConfig()
    >>> config.select_ipus = [24, 25]
    >>> system = System()
    >>> system.configure(config)
    >>> [device.ipus for device in system.devices]
    [(5, 7, 4, 6), (3, 1, 2, 0)]
    >>> system.acquire([24, 26]).ipus
    (13, 15, 12, 14)
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._driver: Driver | None = None
        self._devices: tuple[DeviceConfiguration, ...] = ()
        self._config: Any = None
        # Options are read once, as each execution asks whether it still is the same program.
        self._numerics: tuple[Numerics, Mapping[str, Any]] = (Numerics(), {})
        self._connection = DeviceConnectionType.ALWAYS
        self._attached: frozenset[int] = frozenset()
        self._acquired: dict[int, weakref.ref[DeviceConfiguration]] = {}
        self._world = ALONE
        self._communicator: Any = None
        self._executing: Callable[[Callable[[], str]], Any] = _by_itself

    @property
    def world(self) -> World:
        """The processes that run together; this one alone until it has joined others."""
        return self._world

    @property
    def communicator(self) -> Any:
        """What joins the processes; `None` before they have joined."""
        return self._communicator

    @property
    def joint_world(self) -> World:
        """The processes whose replicas are those of one application, by the configuration.

        It is this one alone unless `experimental.multi_replica_distribution` counts several.
        """
        if self._config is None:
            return ALONE
        count = self._config.experimental.multi_replica_distribution.process_count
        return self._world if count > 1 else ALONE

    def join(
        self,
        world: World,
        communicator: Any,
        executing: Callable[[Callable[[], str]], Any] | None = None,
    ) -> None:
        """Notes that this process has joined others, or runs by itself again.

        Args:
            executing: Takes what says in words what is executed, and makes the context of that.
        """
        self._world, self._communicator = world, communicator
        self._executing = executing or _by_itself

    def executing(self, what: Callable[[], str]) -> Any:
        """Returns a context in which an execution runs, which other processes should run too."""
        return self._executing(what)

    @property
    def devices(self) -> tuple[DeviceConfiguration, ...]:
        """Configured devices by ordinal; empty when nothing is configured."""
        return self._devices

    @property
    def config(self) -> Any:
        """The frozen copy of the active `IPUConfig`, `None` when nothing is configured."""
        return self._config

    @property
    def connection(self) -> DeviceConnectionType:
        """When configured devices are attached to their IPUs; `ALWAYS` if there are none."""
        return self._connection

    @property
    def attached(self) -> tuple[int, ...]:
        """Ordinals of the configured devices that have their IPUs."""
        return tuple(sorted(self._attached))

    @property
    def numerics(self) -> Numerics:
        """How programs compute with halves that are made now, and what stops them."""
        found, options = self._numerics
        given = options or ENGINE_OPTIONS in os.environ
        if given and current_engine_options(options).stops_at_exceptions:
            return replace(found, stops_at=frozenset(FloatingPointException))
        return found

    @property
    def norm_group_size(self) -> int:
        """How many replicas normalize their batches together; 1 while nothing is configured."""
        if self._config is None:
            return 1
        return self._config.norms.experimental.distributed_batch_norm_replica_group_size

    @property
    def acquired(self) -> tuple[DeviceConfiguration, ...]:
        """Devices that were acquired and are held, by ordinal."""
        with self._lock:
            return tuple(device for _, device in sorted(self._held().items()))

    def device(self, name: str) -> DeviceConfiguration:
        """Returns the configured device of a name such as `/device:IPU:0`, `IPU:0` or `IPU`.

        Raises:
            RuntimeError: If nothing is configured.
            ValueError: If there is no such device.
        """
        self.require_configured()
        return self.device_or_default(name)

    def device_or_default(self, name: str, argument: str = "device") -> DeviceConfiguration:
        """Like `device`, but looks among the devices by default if nothing is configured.

        Users call the name `argument`, which an error says.
        """
        devices = self._devices or self._by_default()
        match = re.fullmatch(_DEVICE_NAME.format(kind="ipu"), str(name), re.IGNORECASE)
        ordinal = int(match[1] or 0) if match else None
        for device in devices:
            if device.ordinal == ordinal:
                return device
        there = "Configured devices" if self._devices else "Devices as long as none is configured"
        raise ValueError(
            f"There is no IPU device {name!r}. {there}: {_names(devices)}. Use "
            "one of these, or ask for more devices with `auto_select_ipus` or `select_ipus`. "
            f"Received: {argument}={name!r}"
        )

    def require_configured(self) -> None:
        """Raises `RuntimeError` if no device is configured."""
        if not self._devices:
            raise noted(
                RuntimeError("No IPU devices configured."),
                "Configure them first: `config = IPUConfig(); config.auto_select_ipus = 1; "
                "config.configure_ipu_system()`.",
            )

    def configure(self, config: SystemConfiguration, reset: bool = True) -> None:
        """Replaces the devices by those that an `IPUConfig` describes, and keeps a copy of it.

        Raises:
            Exception: What the driver makes of a refusal (`RuntimeError` without driver) if the
                machine cannot provide the IPUs, or is configured already and `reset` is false.
        """
        with self._lock:
            flags = current_flags()
            active = config.frozen_copy()
            devices = resolve_devices(
                active.auto_select_ipus,
                active.select_ipus,
                ipu_model=flags.use_ipu_model,
                refuse=self._refuse,
                # Other types than `ALWAYS` take no IPU yet.
                held=(
                    _holders(self._held().values())
                    if _connection_of(active) is DeviceConnectionType.ALWAYS
                    else _NONE
                ),
            )
            if self._devices and not reset:
                raise self._refuse(
                    "IPU system configuration has already been set in this process, but it "
                    "should have been reset automatically by configuring it again. Received: "
                    f"reset_configuration=False while {_names(self._devices)} are configured. "
                    "Leave reset_configuration=True, or call reset_ipu_configuration() first."
                )
            _announce(flags)
            if self._devices:
                warnings.warn(
                    f"The IPU system was configured already with {_names(self._devices)}: it is "
                    f"reset and then has {_names(devices)}. Call reset_ipu_configuration() first "
                    "if that is what you want.",
                    stacklevel=4,
                )
            self._replace(devices, active)

    def acquire(self, config_ids: Iterable[int]) -> DeviceConfiguration | None:
        """Holds the first device configuration (index into `LISTING`) whose IPUs are free.

        Returns:
            The device, which holds the IPUs while somebody has it and it is not released; `None`
            if none is free.
        """
        with self._lock:
            config_id = next(iter(self.free(config_ids)), None)
            return None if config_id is None else self._hold(config_id, LISTING[config_id])

    def free(self, config_ids: Iterable[int]) -> list[int]:
        """Returns those indices into `LISTING` whose IPUs no device holds."""
        with self._lock:
            attached = (each for each in self._devices if each.ordinal in self._attached)
            taken = _holders(attached) | _holders(self._held().values())
            return [each for each in config_ids if taken.keys().isdisjoint(LISTING[each])]

    def acquire_model(self, num_ipus: int) -> DeviceConfiguration:
        """Holds IPUs of an IPU Model that nothing else uses, in a device like that of `acquire`."""
        if not 1 <= num_ipus <= IPU_MODEL_LIMIT:
            raise self._refuse(
                f"An IPU Model has 1 to {IPU_MODEL_LIMIT} IPUs. Received: num_ipus={num_ipus}"
            )
        with self._lock:
            return self._hold(None, tuple(range(num_ipus)))

    def attach_on_demand(self, ordinal: int) -> None:
        """Gives a configured device its IPUs, which others may have to release first.

        A device whose IPUs were not selected by the user takes others that are free.

        Raises:
            Exception: What the driver makes of a refusal (`RuntimeError` without driver) if they
                are not released within `--on_demand_device_timeout`.
        """
        if ordinal in self._attached:
            return
        flags = current_flags()
        end = time.monotonic() + flags.on_demand_device_timeout / 1000
        # Nothing is locked while this sleeps, as others need the lock to release what they have.
        while (holder := self._attach_now(ordinal)) is not None:
            left = end - time.monotonic()
            if left <= 0:
                raise self._refuse(
                    f"Could not attach /device:IPU:{ordinal} on demand: its IPUs are held by "
                    f"/device:IPU:{holder}, which was acquired. Received: "
                    f"--on_demand_device_timeout={flags.on_demand_device_timeout} (milliseconds) "
                    f"in {ENVIRONMENT_VARIABLE}. Release that device first (`detach()`, or drop "
                    "it), or wait longer."
                )
            time.sleep(min(left, flags.on_demand_device_poll_time / 1000))

    def release(self, device: DeviceConfiguration) -> None:
        """Gives up a device that was acquired; does nothing if that was done before."""
        with self._lock:
            if self._held().get(device.ordinal) is device:
                self._let_go(device.ordinal)

    def reset(self) -> None:
        """Gives up all configured devices once they are idle; does nothing if there are none."""
        with self._lock:
            if self._devices and self._driver is not None:
                self._driver.detach()
            self._devices, self._config = (), None
            self._numerics = (Numerics(), {})
            self._connection, self._attached = DeviceConnectionType.ALWAYS, frozenset()

    def connect(self, driver: Driver) -> None:
        """Makes `driver` the one that attaches devices, at once if some are configured."""
        with self._lock:
            devices, config = self._devices, self._config
            acquired = self._held()
            self.reset()
            if driver is not self._driver:
                for ordinal in acquired:
                    self._let_go(ordinal)
            previous, self._driver = self._driver, driver
            if driver is not previous:
                for device in acquired.values():
                    self._put(device)
            if devices:
                self._attach(devices, config)

    def _by_default(self) -> tuple[DeviceConfiguration, ...]:
        """Returns the devices of a configuration in which nothing was set."""
        is_model = current_flags().use_ipu_model
        return resolve_devices((), (), ipu_model=is_model, refuse=self._refuse)

    def _replace(self, devices: tuple[DeviceConfiguration, ...], config: Any) -> None:
        previous = self._devices, self._config
        self.reset()
        try:
            self._attach(devices, config)
        except BaseException:
            if previous[0]:
                self._attach(*previous)
            raise

    def _attach(self, devices: tuple[DeviceConfiguration, ...], config: Any) -> None:
        if self._driver is not None:
            self._driver.attach(devices, config)
        self._devices, self._config = devices, config
        self._numerics = _numerics_of(config)
        self._connection = _connection_of(config)
        always = self._connection is DeviceConnectionType.ALWAYS
        self._attached = frozenset(device.ordinal for device in devices if always)

    def _attach_now(self, ordinal: int) -> int | None:
        """Attaches a configured device; returns the ordinal of a device that is in its way."""
        with self._lock:
            device = next((each for each in self._devices if each.ordinal == ordinal), None)
            if device is None:  # it was reset meanwhile, which whoever uses it is told
                return None
            held = _holders(self._held().values())
            if device.config_id is not None and not held.keys().isdisjoint(device.ipus):
                moved = self._elsewhere(device, held)
                if moved is None:
                    return next(held[ipu] for ipu in device.ipus if ipu in held)
                if self._driver is not None:
                    self._driver.move(moved)
                self._devices = tuple(moved if d is device else d for d in self._devices)
            self._attached |= {ordinal}
            return None

    def _elsewhere(
        self, device: DeviceConfiguration, held: Mapping[int, int]
    ) -> DeviceConfiguration | None:
        """Returns a device with other IPUs, all free; `None` if there are none, or by choice."""
        if _one_per_device(self._config.select_ipus):
            return None
        others = _holders(each for each in self._devices if each is not device)
        for config_id, ipus in enumerate(LISTING):
            fits = len(ipus) == len(device.ipus)
            if fits and held.keys().isdisjoint(ipus) and others.keys().isdisjoint(ipus):
                return DeviceConfiguration(device.ordinal, config_id, ipus)
        return None

    def _held(self) -> dict[int, DeviceConfiguration]:
        """Returns acquired devices by ordinal; those that nobody has any more are let go first."""
        # This is not done when the last reference goes: that may be in any thread, and in the
        # middle of anything, as the garbage collector pleases.
        devices = {ordinal: held() for ordinal, held in self._acquired.items()}
        for ordinal, device in devices.items():
            if device is None:
                self._let_go(ordinal)
        return {ordinal: device for ordinal, device in devices.items() if device is not None}

    def _hold(self, config_id: int | None, ipus: tuple[int, ...]) -> DeviceConfiguration:
        ordinals, taken = itertools.count(FIRST_ACQUIRED), self._held()
        # The first that is free: TensorFlow cannot give up a device that it knows.
        ordinal = next(ordinal for ordinal in ordinals if ordinal not in taken)
        device = DeviceConfiguration(ordinal, config_id, ipus)
        self._put(device)
        return device

    def _put(self, device: DeviceConfiguration) -> None:
        if self._driver is not None:
            self._driver.acquire(device)
        self._acquired[device.ordinal] = weakref.ref(device)

    def _let_go(self, ordinal: int) -> None:
        if self._driver is not None:
            self._driver.release(ordinal)
        del self._acquired[ordinal]

    def _refuse(self, message: str) -> Exception:
        return RuntimeError(message) if self._driver is None else self._driver.refuse(message)


SYSTEM = System()


def resolve_devices(
    auto_select_ipus: int | Sequence[int],
    select_ipus: int | Sequence[int],
    *,
    ipu_model: bool,
    refuse: Refuse,
    held: Mapping[int, int] = _NONE,
) -> tuple[DeviceConfiguration, ...]:
    """Returns the devices that the two selectors describe; with neither, one with one IPU.

    Args:
        auto_select_ipus: Number of IPUs of each device, or of the only one.
        select_ipus: Index into `LISTING` for each device, or for the only one.
        refuse: Makes the exception for what the machine cannot provide.
        held: Ordinals of acquired devices by the IPUs that they hold.
    """
    counts = _one_per_device(auto_select_ipus)
    config_ids = _one_per_device(select_ipus)
    if ipu_model and config_ids:
        raise noted(
            Exception(
                "When using the IPUModel, the devices to attach to can only be specified with "
                "`auto_select_ipus`."
            ),
            f"Received: select_ipus={select_ipus!r} with --use_ipu_model in "
            f"{ENVIRONMENT_VARIABLE}. Set auto_select_ipus to the number of IPUs instead.",
        )
    # An IPU Model has IPUs of its own for every device.
    if ipu_model:
        return tuple(_modelled(counts or (1,), refuse))
    if config_ids:
        return tuple(_selected(config_ids, refuse, held))
    return _auto_selected(counts or (1,), refuse, held)


def _numerics_of(config: Any) -> tuple[Numerics, Mapping[str, Any]]:
    """Returns the numerics that a configuration asks for, and its options for Poplar's engine."""
    behaviour = config.floating_point_behaviour
    stops = {
        FloatingPointException.INV: behaviour.inv,
        FloatingPointException.DIV0: behaviour.div0,
        FloatingPointException.OFLO: behaviour.oflo,
    }
    stopping = frozenset(kind for kind, on in stops.items() if on)
    # `True` and `False` are other spellings of two of its values.
    esr = behaviour.esr
    rounding = StochasticRoundingBehaviour(int(esr)) if isinstance(esr, bool) else esr
    halves = families_in_halves(
        convolution=config.convolutions.poplar_options, dot=config.matmuls.poplar_options
    )
    numerics = Numerics(behaviour.nanoo, stopping, rounding, halves)
    return numerics, dict(config.compilation_poplar_options)


def _connection_of(config: Any) -> DeviceConnectionType:
    return config.device_connection.type


def check_cpu_device(device: str, argument: str = "device") -> None:
    """Raises a ValueError if `device` is no name of a TensorFlow CPU device."""
    if not re.fullmatch(_DEVICE_NAME.format(kind="cpu"), str(device), re.IGNORECASE):
        raise ValueError(
            f"`{argument}` must be the CPU device that the IPUs are attached to, such as 'cpu' or "
            f"'/device:CPU:0'. Received: {argument}={device!r}. IPU devices are chosen with "
            "`auto_select_ipus` or `select_ipus` of the config."
        )


def _one_per_device(selector: int | Sequence[int]) -> tuple[int, ...]:
    return (selector,) if isinstance(selector, int) else tuple(selector)


def _holders(devices: Iterable[DeviceConfiguration]) -> dict[int, int]:
    """Returns ordinals by the IPUs of the machine that devices hold; IPU Models hold none."""
    return {
        ipu: device.ordinal
        for device in devices
        if device.config_id is not None
        for ipu in device.ipus
    }


def _auto_selected(
    counts: tuple[int, ...], refuse: Refuse, held: Mapping[int, int]
) -> tuple[DeviceConfiguration, ...]:
    # The groups of the listing nest. Larger devices choose first, so that
    # single IPUs do not split the groups that those need; then a request is
    # refused only if no choice at all could meet it.
    chosen: dict[int, int] = {}
    for ordinal in sorted(range(len(counts)), key=lambda k: -counts[k]):
        taken = {ipu for config_id in chosen.values() for ipu in LISTING[config_id]} | set(held)
        free = (
            config_id
            for config_id, ipus in enumerate(LISTING)
            if len(ipus) == counts[ordinal] and taken.isdisjoint(ipus)
        )
        config_id = next(free, None)
        if config_id is None:
            raise refuse(
                _unsupported(counts, ordinal)
                + f"The machine has {len(PCI_ADDRESSES)} IPUs in groups of 1, 2, 4, 8 or 16; "
                f"{len(PCI_ADDRESSES) - len(taken)} of them are left for this device"
                f"{_and_held(held)}. Ask for fewer or smaller devices, or set "
                f"{ENVIRONMENT_VARIABLE}=--use_ipu_model to use the IPU Model, where a device may "
                "have any number of IPUs."
            )
        chosen[ordinal] = config_id
    return tuple(
        DeviceConfiguration(ordinal, chosen[ordinal], LISTING[chosen[ordinal]])
        for ordinal in range(len(counts))
    )


def _selected(
    config_ids: tuple[int, ...], refuse: Refuse, held: Mapping[int, int]
) -> Iterator[DeviceConfiguration]:
    holders: dict[int, int] = {}
    for ordinal, config_id in enumerate(config_ids):
        if config_id >= len(LISTING):
            raise refuse(
                f"Could not find the device configuration {config_id} requested for the "
                f"TensorFlow virtual device /device:IPU:{ordinal}. Received: select_ipus="
                f"{list(config_ids)}; the machine has configurations 0 to {len(LISTING) - 1}."
            )
        for ipu in LISTING[config_id]:
            if ipu in holders:
                raise refuse(
                    f"Could not attach /device:IPU:{ordinal} to the device configuration "
                    f"{config_id}: its IPU {ipu} belongs to /device:IPU:{holders[ipu]} already. "
                    f"Received: select_ipus={list(config_ids)}; choose configurations that "
                    "share no IPU, or let `auto_select_ipus` choose."
                )
            if ipu in held:
                raise refuse(
                    f"Could not attach /device:IPU:{ordinal} to the device configuration "
                    f"{config_id}: its IPU {ipu} is held by /device:IPU:{held[ipu]}, which was "
                    f"acquired. Received: select_ipus={list(config_ids)}; release that device "
                    "first (`detach()`, or drop it), or choose other configurations."
                )
            holders[ipu] = ordinal
        yield DeviceConfiguration(ordinal, config_id, LISTING[config_id])


def _modelled(counts: tuple[int, ...], refuse: Refuse) -> Iterator[DeviceConfiguration]:
    first = 0
    for ordinal, count in enumerate(counts):
        if first + count > IPU_MODEL_LIMIT:
            raise refuse(
                _unsupported(counts, ordinal)
                + f"The IPU Model provides {IPU_MODEL_LIMIT} IPUs in all, of which "
                f"{IPU_MODEL_LIMIT - first} are left for this device. Ask for fewer."
            )
        yield DeviceConfiguration(ordinal, None, tuple(range(first, first + count)))
        first += count


def _and_held(held: Mapping[int, int]) -> str:
    """Returns what errors say of IPUs that are not free for a configuration."""
    if not held:
        return ""
    devices = ", ".join(f"/device:IPU:{ordinal}" for ordinal in sorted(set(held.values())))
    return f", and {len(held)} are held by {devices}, acquired beside the configured ones"


def _unsupported(counts: tuple[int, ...], ordinal: int) -> str:
    return (
        "Unsupported number of IPUs requested - could not find an IPU device with "
        f"{counts[ordinal]} IPUs for the TensorFlow virtual device /device:IPU:{ordinal}. "
        f"Received: auto_select_ipus={list(counts)}. "
    )


def _announce(flags: PoplarFlags) -> None:
    """Prints the help if asked for, and warns about flags that nothing honours."""
    if flags.help:
        print(help_text())
    idle = idle_flags(flags)
    OPTION_WARNINGS.warn(
        ENVIRONMENT_VARIABLE,
        {f"--{name}={getattr(flags, name)!r}": why for name, why in idle.items()},
        lambda names: f"These flags in {ENVIRONMENT_VARIABLE} have no effect today: {names}.",
        stacklevel=5,
    )


def _names(devices: tuple[DeviceConfiguration, ...]) -> str:
    return ", ".join(device.name for device in devices)
