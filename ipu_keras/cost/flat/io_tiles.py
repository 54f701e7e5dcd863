"""Tiles that are set apart for input and output, and what passes while the others compute."""

import math
from dataclasses import dataclass

from ipu_keras.cost.exchange import ExchangePhase, exchange_cycles, sync_cycles
from ipu_keras.machine.target import Target

# What a step takes and returns, and the same of the steps beside it, with which the host is
# busy meanwhile.
_STEPS_HELD = 2


@dataclass(frozen=True)
class StepCopies:
    """What the host copies for each step of an execution.

    Args:
        num_steps: Of the execution.
        fed_bytes: To one replica, in bytes.
        fetched_bytes: From it, in bytes.
        fed_cycles: That it takes to feed a step, without beginning and end of a copy.
        fetched_cycles: The same to fetch what it returns.
    """

    num_steps: int
    fed_bytes: int
    fetched_bytes: int
    fed_cycles: float
    fetched_cycles: float

    @property
    def held_bytes(self) -> int:
        """That tiles for input and output have to hold, in bytes."""
        return _STEPS_HELD * (self.fed_bytes + self.fetched_bytes)

    @property
    def cycles(self) -> float:
        """Of the copies of all steps."""
        return self.num_steps * (self.fed_cycles + self.fetched_cycles)

    def waiting_cycles(self, compute_cycles: int) -> float:
        """Cycles of an execution in which the tiles that compute wait for the host.

        While a step is computed, the next one is fed and the one before is fetched:

            feed 1 | compute 1, feed 2 | compute 2, feed 3, fetch 1 | ... | fetch k

        Args:
            compute_cycles: Of a step.

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
        """Cycles of a step in which its data passes between these tiles and the others.

        Args:
            target: The hardware, with the tiles that compute.
            num_io_tiles: Tiles beside these.
        """
        cycles = 0
        for num_bytes in (self.fed_bytes, self.fetched_bytes):
            # Tiles receive as fast as they send, so the direction makes no difference.
            phase = ExchangePhase(
                math.ceil(num_bytes / target.num_tiles), math.ceil(num_bytes / num_io_tiles)
            )
            moved = exchange_cycles(target, phase)
            cycles += moved + sync_cycles(target, 1) if moved else 0
        return cycles
