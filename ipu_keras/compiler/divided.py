"""Work that tiles share in several compute sets, with exchanges between these."""

from collections.abc import Sequence

from ipu_keras.compiler.cost import Cost
from ipu_keras.compiler.exchange import ExchangePhase, exchange_cycles, sync_cycles
from ipu_keras.target import Confidence, Target


def divided_cost(
    target: Target, *, cycles: int, num_compute_sets: int, moved: Sequence[int]
) -> Cost:
    """What compute sets take that run one behind the other: a guess, of which tiles is not said.

    Args:
        target: The hardware.
        cycles: Of the vertices of all compute sets.
        num_compute_sets: How many there are.
        moved: Bytes that a tile receives, and sends, in each exchange.
    """
    phases = [ExchangePhase(bytes_in=size, bytes_out=size) for size in moved if size]
    return Cost(
        compute_cycles=cycles + num_compute_sets * target.launch_cycles,
        exchange_cycles=sum(exchange_cycles(target, phase) for phase in phases),
        sync_cycles=sync_cycles(target, num_ipus=1) * len(phases),
        exchange_bytes=max(moved, default=0),
        num_vertices=num_compute_sets,
        confidence=Confidence.GUESSED,
        detail=f"{num_compute_sets} stages",
    )
