"""Knows which device runs what is being traced, and in how many replicas."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ipu_keras.device import DRIVER, IpuDevice
from ipu_keras.device.traced_for import traced_for
from ipu_keras.internals.tensorflow.functions import outermost_trace
from ipu_keras.settings.arguments import noted
from ipu_keras.tracing.replication import ipus_of_shards, needed_ipus, num_shards_so_far


@dataclass(frozen=True)
class Place:
    """Where a program runs.

    Args:
        is_final: Whether the device has the IPUs now that it will run with. If not, one that
            has too few counts as a device of a single replica.
    """

    device: IpuDevice
    is_final: bool = True

    def num_replicas(self, ipus_per_replica: int = 1) -> int:
        """Returns how many replicas the device has, each on `ipus_per_replica` IPUs.

        A `ValueError` says that the number of IPUs is no multiple of that.
        """
        num_ipus = len(self.device.ipus) or needed_ipus()
        if num_ipus % ipus_per_replica:
            if not self.is_final:
                return 1
            raise noted(
                ValueError(
                    f"Current device has {num_ipus} IPUs attached, however the current program "
                    f"requires a multiple of {ipus_per_replica} IPUs."
                ),
                "Configure as many, for instance with `IPUConfig.auto_select_ipus = "
                f"{ipus_per_replica}`, or put stages of a pipeline on the same IPU, with "
                "`device_mapping`.",
            )
        return num_ipus // ipus_per_replica

    def num_replicas_with_shards(self, num_shards: int) -> int:
        """Returns how many replicas the device has of a program with so many shards."""
        try:
            return self.num_replicas(ipus_of_shards(num_shards))
        except ValueError as error:
            raise noted(
                error,
                f"Received: `ipu_shard({num_shards - 1})`, whose `index` counts from 0, on the "
                f"device {self.device.name!r}",
            ) from None


def refuse_replicas(what: str, num_replicas: int | None = None) -> None:
    """Raises a `NotImplementedError` where there are several replicas.

    Args:
        what: The beginning of the error, a clause such as "An infeed is read".
        num_replicas: `None` for the replicas of what is being traced, as far as its shards are
            known.
    """
    if num_replicas is None:
        num_replicas = current_place().num_replicas_with_shards(num_shards_so_far())
    if num_replicas > 1:
        raise NotImplementedError(
            f"{what} by several replicas only within `loops.repeat` or `pipelining_ops.pipeline`, "
            "at their outermost. If a replica has several IPUs, enter their scopes of `ipu_shard` "
            f"before. Received: {num_replicas} replicas"
        )


def outermost_graph() -> Any:
    """Returns the graph of the outermost function being traced, or of the session around it."""
    return outermost_trace() or tf.compat.v1.get_default_graph()


_place: ContextVar[Place | None] = ContextVar("place", default=None)


@contextlib.contextmanager
def placed_on(device: IpuDevice, *, is_final: bool = True) -> Iterator[None]:
    """While a function is traced, says which device will run it; `is_final` is as for `Place`."""
    token = _place.set(Place(device, is_final))
    try:
        with traced_for(device):
            yield
    finally:
        _place.reset(token)


def current_place() -> Place:
    """Returns where what is being traced runs: on the first device, unless something says else."""
    return _place.get() or Place(DRIVER.known_device(0))
