"""Tiles set apart for input and output, and the copies that pass while the others compute."""

import math
from dataclasses import dataclass

from ipu_keras.cost.tile.exchange import ExchangePhase, exchange_cycles, sync_cycles
from ipu_keras.machine.target import Target


@dataclass(frozen=True)
class StepCopies:
    """What the host copies for each step of an execution.

    Args:
        fed_bytes: Bytes that go to one replica for a step; `fetched_bytes` come back.
        fed_cycles: Cycles to feed a step; `fetched_cycles` to fetch its results.
    """

    num_steps: int
    fed_bytes: int
    fetched_bytes: int
    fed_cycles: float
    fetched_cycles: float

    @property
    def held_bytes(self) -> int:
        """Bytes that tiles for input and output have to hold.

        TensorFlow for IPUs counts each buffer once (`io_tiles_placer.cc`), although the host is
        busy with those of a step beside the one whose data is passed to or from the other tiles.
        """
        return self.fed_bytes + self.fetched_bytes

    @property
    def cycles(self) -> float:
        """Cycles that the copies of all steps take."""
        return self.num_steps * (self.fed_cycles + self.fetched_cycles)

    def waiting_cycles(self, compute_cycles: int) -> float:
        """Cycles of an execution in which the tiles that compute wait for the host.

        While a step is computed, the next one is fed and the one before is fetched:

            feed 1 | compute 1, feed 2 | compute 2, feed 3, fetch 1 | ... | fetch k

        Example:

        The first of three steps waits to be fed, the last to be fetched; of the copies beside
        the second, which take 100 cycles, 80 are hidden:

        >>> copies = StepCopies(3, 8, 8, fed_cycles=50, fetched_cycles=50)
        >>> copies.waiting_cycles(80)
        120
        """
        alone = self.fed_cycles + self.fetched_cycles
        if self.num_steps == 1:
            return alone
        first, last, between = (
            max(cycles - compute_cycles, 0)
            for cycles in (self.fed_cycles, self.fetched_cycles, alone)
        )
        return alone + first + last + (self.num_steps - 2) * between

    def exchange_cycles(self, target: Target, num_io_tiles: int) -> int:
        """Cycles of a step in which its data passes between these tiles and those that compute."""
        cycles = 0
        for num_bytes in (self.fed_bytes, self.fetched_bytes):
            # Tiles receive as fast as they send, so the direction makes no difference.
            phase = ExchangePhase(
                math.ceil(num_bytes / target.num_tiles), math.ceil(num_bytes / num_io_tiles)
            )
            moved = exchange_cycles(target, phase)
            cycles += moved + sync_cycles(target, 1) if moved else 0
        return cycles
