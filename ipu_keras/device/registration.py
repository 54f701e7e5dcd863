"""Makes the IPU devices of a configuration exist in TensorFlow.

`ipu_keras.machine.system` decides which devices a configuration has, `ipu_keras._device` what a
device does with an op.
"""

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import tensorflow as tf

from ipu_keras._device import CustomDevice
from ipu_keras.device.placement import TASK, ContextExtension, not_configured, short_name
from ipu_keras.internals.tensorflow.contexts import eager_context, wait_for_operations
from ipu_keras.machine.system import FIRST_ACQUIRED, DeviceConfiguration
from ipu_keras.runtime import Engine
from ipu_keras.settings.arguments import integer_in

_NAME = re.compile(rf"(?:{TASK})?/?(?:device:)?IPU:(\d+)")


class Substitutes(Protocol):
    """Says what the host runs in place of what a device is given, see `CustomDevice`."""

    def of_function(self, name: str) -> str | None:
        """Returns the name of what runs in place of a function; `None` if that runs as it is."""

    def of_operation(self, attributes: bytes) -> str | None:
        """Returns the name of a function for the `NameAttrList` of an operation, or `None`."""

    def forget(self) -> None:
        """Says that the device may compute otherwise from now on."""


@dataclass(frozen=True, kw_only=True)
class DeviceCounters:
    """What a device did since its counters were reset.

    Args:
        num_operations: How many ops ran eagerly.
        num_function_calls: Calls of `tf.function`s, with the forward and backward functions of a
            tape.
        num_copies_to_device: Tensors that came from the host: Python values, explicit copies, and
            CPU tensors given to an op.
        num_copies_from_device: Tensors that went to another device or to NumPy.
        num_bytes_to_device: Bytes of tensors from the host; strings count as 0.
        num_bytes_from_device: Bytes of tensors that left the device; strings count as 0.
        program_executions: Calls of each registered program by name, which are function calls too.
    """

    num_operations: int
    num_function_calls: int
    num_copies_to_device: int
    num_copies_from_device: int
    num_bytes_to_device: int
    num_bytes_from_device: int
    program_executions: Mapping[str, int]


class IpuDevice:
    """The device `/device:IPU:k` of this process, k being `ordinal`; get it from `device_for`.

    It is the same object through all configurations, because TensorFlow cannot give up a device
    that was registered. One that is acquired begins with a new engine.
    """

    def __init__(self, ordinal: int, substitutes: Callable[["IpuDevice"], Substitutes]):
        self._ordinal = ordinal
        self._ipus: tuple[int, ...] = ()
        self._substitutes = substitutes(self)
        name = f"{TASK}/device:IPU:{ordinal}"
        self._custom_device = CustomDevice(name, self._substitutes)
        self._engine = Engine()

    @property
    def name(self) -> str:
        """Full name, as in the `device` of its tensors."""
        return f"{TASK}/device:IPU:{self._ordinal}"

    @property
    def ordinal(self) -> int:
        return self._ordinal

    @property
    def ipus(self) -> tuple[int, ...]:
        """Ids of the IPUs that the device holds; empty if it is not configured."""
        return self._ipus

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def num_writes(self) -> int:
        """How many ops and functions ran that may have written variables; never reset."""
        return self._custom_device.num_writes()

    def counters(self) -> DeviceCounters:
        """A snapshot of what the device counted."""
        return DeviceCounters(
            **self._custom_device.counters(),
            program_executions=MappingProxyType(self._custom_device.program_executions()),
        )

    def reset_counters(self) -> None:
        """Sets all counters to zero; registered programs stay registered."""
        self._custom_device.reset_counters()

    def register_program(self, name: str) -> None:
        """Runs a function as it is, and counts its executions apart.

        It is called by its name such as "__inference_step_42".
        """
        self._custom_device.register_program(name)

    def __repr__(self) -> str:
        return f"<IpuDevice {short_name(self.name)!r}, ipus={self._ipus}>"

    def _register(self, ctx: Any) -> None:
        if not ctx.is_custom_device(self.name):
            callbacks, state = self._custom_device.capsules()
            ctx.register_custom_device(callbacks, self.name, state)

    def _configure(self, ipus: tuple[int, ...]) -> None:
        self._ipus = ipus
        self._substitutes.forget()
        self._custom_device.configure()

    def _begin_anew(self) -> None:
        """Forgets what ran for those who held the device before."""
        self._engine = Engine()
        self._custom_device.reset_counters()

    def _refuse(self, reason: str) -> None:
        self._ipus = ()
        self._custom_device.refuse(reason)


class DeviceDriver:
    """The registry of the process's devices: attaches those of a `System` to TensorFlow.

    TensorFlow has no way to remove a custom device, so one that left the configuration stays
    registered and refuses to work. Devices that were acquired work as configured ones do, but
    TensorFlow does not list them: they are for those who acquired them.

    Example:

    >>> from ipu_keras.machine.system import SYSTEM
    >>> SYSTEM.connect(DRIVER)
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._substitutes: Callable[[IpuDevice], Substitutes] | None = None
        self._devices: dict[int, IpuDevice] = {}
        self._configured: tuple[str, ...] = ()
        self._acquired: tuple[str, ...] = ()
        self._extension = ContextExtension(lambda: self._configured, lambda: self._acquired)

    def have_run_instead(self, substitutes: Callable[[IpuDevice], Substitutes]) -> None:
        """Says, before there are devices, what makes the substitutes of one."""
        self._substitutes = substitutes

    def install(self) -> None:
        """Refuses scopes of unconfigured devices, without initialising TensorFlow's context.

        `attach` does it as well.
        """
        with self._lock:
            self._extension.install()

    def uninstall(self) -> None:
        """Takes everything back that `install` changed in TensorFlow."""
        with self._lock:
            self._extension.remove()

    def attach(self, devices: tuple[DeviceConfiguration, ...], config: Any) -> None:
        """Makes exactly these devices usable; `config` is not needed, as ops are forwarded alike.

        Devices that TensorFlow does not know, or not since its context was reset, are
        registered. If that fails the previous devices stay as they were.
        """
        with self._lock:
            self._extension.install()
            self._register([device.ordinal for device in devices])
            self._configure({device.ordinal: device.ipus for device in devices})

    def move(self, device: DeviceConfiguration) -> None:
        """Gives a configured device other IPUs."""
        with self._lock:
            self._devices[device.ordinal]._ipus = device.ipus

    def acquire(self, device: DeviceConfiguration) -> None:
        """Makes one more device usable, of an ordinal that no configuration has."""
        with self._lock:
            self._extension.install()
            self._register([device.ordinal])
            known = self._devices[device.ordinal]
            known._begin_anew()
            known._configure(device.ipus)
            self._acquired = (*self._acquired, known.name)

    def release(self, ordinal: int) -> None:
        """Waits for ops that are under way, then refuses a device that was acquired."""
        with self._lock:
            wait_for_operations()
            known = self._devices[ordinal]
            self._acquired = tuple(name for name in self._acquired if name != known.name)
            self._extension.forget_scopes()
            # The device stays, and would keep the program that ran last.
            known._begin_anew()
            known._refuse(
                f"{short_name(known.name)} was given up by those who had acquired it, with all "
                "that it held. Acquire a device again, and compute what is needed on that."
            )

    def detach(self) -> None:
        """Waits for ops that are under way, then refuses all configured devices."""
        with self._lock:
            if self._configured:
                wait_for_operations()
            self._configure({})

    def refuse(self, message: str) -> Exception:
        """The exception for a precondition that does not hold, as TensorFlow's."""
        return tf.errors.FailedPreconditionError(None, None, message)

    def device_for(self, device: str | int) -> IpuDevice:
        """Returns the configured or acquired device of a name or ordinal; see `device_for`."""
        with self._lock:
            ordinal = self._ordinal(device)
            found = self._devices.get(ordinal)
            if found is None or found.name not in self._configured + self._acquired:
                raise ValueError(not_configured(f"/device:IPU:{ordinal}", self._short_names()))
            return found

    def known_device(self, ordinal: int) -> IpuDevice:
        """Returns the device `/device:IPU:k`, which need not be configured yet."""
        with self._lock:
            if ordinal not in self._devices:
                assert self._substitutes is not None
                self._devices[ordinal] = IpuDevice(ordinal, self._substitutes)
            return self._devices[ordinal]

    def _ordinal(self, device: str | int) -> int:
        match = _NAME.fullmatch(device) if isinstance(device, str) else None
        if match is not None:
            return int(match[1])
        number = integer_in(device)
        if number is not None:
            return number
        raise ValueError(
            "`device` must be the name of an IPU device, such as '/device:IPU:0', or its ordinal. "
            f"Received: device={device!r}; configured devices: "
            f"{', '.join(self._short_names()) or 'none'}"
        )

    def _short_names(self) -> list[str]:
        return [short_name(name) for name in self._configured]

    def _register(self, ordinals: list[int]) -> None:
        ctx = eager_context()
        for ordinal in ordinals:
            self.known_device(ordinal)._register(ctx)
        # TensorFlow's context may have been reset since others were acquired.
        for device in list(self._devices.values()):
            if device.name in self._acquired:
                device._register(ctx)

    def _configure(self, ipus: dict[int, tuple[int, ...]]) -> None:
        self._configured = tuple(self._devices[ordinal].name for ordinal in ipus)
        self._extension.forget_scopes()
        for ordinal, device in self._devices.items():
            if ordinal in ipus:
                device._configure(ipus[ordinal])
            elif ordinal < FIRST_ACQUIRED:
                device._refuse(not_configured(short_name(device.name), self._short_names()))


# The one driver of the process: TensorFlow's eager context is one as well.
DRIVER = DeviceDriver()


def device_for(device: str | int) -> IpuDevice:
    """Returns the configured or acquired IPU device of this name or ordinal.

    It may be 0, "IPU:0", "/device:IPU:0" or the full name; any other is a `ValueError`.

    Example:

    >>> from ipu_keras.config import IPUConfig
    >>> IPUConfig().configure_ipu_system()
    >>> device_for("/device:IPU:0").counters().num_operations
    0
    """
    return DRIVER.device_for(device)
