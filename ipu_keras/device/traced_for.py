"""Knows the device for which something is being traced, for what draws random numbers there."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from ipu_keras.device.registration import IpuDevice

_device: ContextVar[IpuDevice | None] = ContextVar("device_of_trace", default=None)


@contextlib.contextmanager
def traced_for(device: IpuDevice) -> Iterator[None]:
    """While a program is traced, says which device will run it."""
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


def device_of_trace() -> IpuDevice | None:
    """Returns the device that runs what is being traced; `None` if nobody has said which."""
    return _device.get()
