"""Which device runs what is being traced, and in how many replicas."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from ipu_keras.device import DRIVER, IpuDevice


@dataclass(frozen=True)
class Place:
    """Where a program runs.

    Args:
        device: The device.
    """

    device: IpuDevice

    def num_replicas(self, ipus_per_replica: int = 1) -> int:
        """How many replicas the device has.

        Args:
            ipus_per_replica: How many IPUs each of them needs.

        Raises:
            ValueError: The device has not so many IPUs.
        """
        num_ipus = max(1, len(self.device.ipus))
        if num_ipus % ipus_per_replica:
            raise ValueError(
                f"Current device has {num_ipus} IPUs attached, however the current program "
                f"requires a multiple of {ipus_per_replica} IPUs. Configure as many, for instance "
                f"with `IPUConfig.auto_select_ipus = {ipus_per_replica}`."
            )
        return num_ipus // ipus_per_replica


_place: ContextVar[Place | None] = ContextVar("place", default=None)


@contextlib.contextmanager
def placed_on(device: IpuDevice) -> Iterator[None]:
    """While a function is traced, says which device will run it.

    Args:
        device: The device.
    """
    token = _place.set(Place(device))
    try:
        yield
    finally:
        _place.reset(token)


def current_place() -> Place:
    """Where what is being traced runs; on the first device if nobody has said so."""
    return _place.get() or Place(DRIVER.known_device(0))
