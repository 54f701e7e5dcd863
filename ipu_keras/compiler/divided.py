"""Work that tiles share in several compute sets, with exchanges between these."""

from collections.abc import Sequence
from dataclasses import dataclass

from ipu_keras.compiler.exchange import ExchangePhase, exchange_cycles, sync_cycles
from ipu_keras.target import Target


@dataclass(frozen=True, kw_only=True)
class DividedCycles:
    """Cycles of compute sets that run one behind the other.

    Args:
        compute: Of the slowest tile, with the start of each compute set.
        exchange: Between tiles.
        sync: Of synchronization before each exchange.
        exchange_bytes: What the tile with the most receives at a time, in bytes.
        num_compute_sets: How many there are.
    """

    compute: int
    exchange: int
    sync: int
    exchange_bytes: int
    num_compute_sets: int

    @property
    def total(self) -> int:
        """In all."""
        return self.compute + self.exchange + self.sync


def divided_cycles(
    target: Target, *, vertices: int, num_compute_sets: int, moved: Sequence[int]
) -> DividedCycles:
    """Cycles of compute sets, of which some wait for an exchange.

    Args:
        target: The hardware.
        vertices: Cycles of the vertices of all compute sets.
        num_compute_sets: How many there are.
        moved: Bytes that a tile receives, and sends, in each exchange.
    """
    phases = [ExchangePhase(bytes_in=size, bytes_out=size) for size in moved if size]
    return DividedCycles(
        compute=vertices + num_compute_sets * target.launch_cycles,
        exchange=sum(exchange_cycles(target, phase) for phase in phases),
        sync=sync_cycles(target, num_ipus=1) * len(phases),
        exchange_bytes=max(moved, default=0),
        num_compute_sets=num_compute_sets,
    )
