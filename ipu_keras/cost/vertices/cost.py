"""What a compute set takes, cycles, memory for what arrives, vertices, and how that adds up.

Tiles synchronize before they exchange, once: each knows then in which cycle its data arrives, and
starts to compute behind that. What needs no exchange starts as soon as its tile is done with the
compute set before. Source: the `launch_cycles` of the target are what compute sets that followed
each other without exchange were measured to take besides their vertices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.exchange import ExchangePhase, exchange_cycles, sync_cycles
from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import num_tiles_of
from ipu_keras.cost.vertices.vertices import VertexCycles, least
from ipu_keras.machine.target import Confidence, Target


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one run of a compute set takes.

    Args:
        compute_cycles: Of the slowest tile.
        exchange_cycles: Until the tile that receives the most has it.
        sync_cycles: Of synchronization before each exchange.
        exchange_bytes: What the tile with the most receives, in bytes.
        temporary_bytes: What a tile needs only while it runs, in bytes.
        num_vertices: Of one tile; the workers share one.
        tiles: That have vertices.
        vertex: Type of the vertices; compute sets of one type share their code.
        confidence: How sure the cycles are.
        detail: How it is computed, where there is a choice.
        parts: Of an operation of Poplar's libraries, the costs of one run of what it consists of,
            which are in the other numbers.
    """

    compute_cycles: int = 0
    exchange_cycles: int = 0
    sync_cycles: int = 0
    exchange_bytes: int = 0
    temporary_bytes: int = 0
    num_vertices: int = 0
    tiles: int = 0
    vertex: str = ""
    confidence: Confidence = Confidence.DERIVED
    detail: str = ""
    parts: tuple["Cost", ...] = ()

    @property
    def cycles(self) -> int:
        """Of one run."""
        return self.compute_cycles + self.exchange_cycles + self.sync_cycles

    def in_step(self, one: ComputeSet, batches_per_update: int) -> "Cost":
        """What all runs of its compute set take in one step.

        Of a part of the weight update, a step has its share, rounded up.

        Args:
            one: The compute set.
            batches_per_update: Steps between two weight updates.
        """
        share = batches_per_update if one.weight_update else 1
        return replace(
            self,
            compute_cycles=-(-self.compute_cycles * one.repeat // share),
            exchange_cycles=-(-self.exchange_cycles * one.repeat // share),
            sync_cycles=-(-self.sync_cycles * one.repeat // share),
            exchange_bytes=-(-self.exchange_bytes * one.repeat // share),
        )

    @property
    def message_bytes(self) -> int:
        """What arrives beside the temporaries, which hold what products receive."""
        return 0 if self.temporary_bytes else self.exchange_bytes


def arrival_cycles(target: Target, received: int) -> int:
    """Cycles of an exchange in which the busiest tile receives, and sends, so much.

    Args:
        target: The hardware.
        received: In bytes.
    """
    phase = ExchangePhase(bytes_in=received, bytes_out=received)
    return exchange_cycles(target, phase) if received else 0


def started_together(
    one: ComputeSet, target: Target, cycles: VertexCycles, received: int, *, vertex: str
) -> Cost:
    """What vertices take that start at once, on the tiles that have what they write.

    Args:
        one: The compute set.
        target: The hardware.
        cycles: Of the slowest tile.
        received: What arrives at a tile before, in bytes; if nothing does, there is no exchange.
        vertex: What to call them.
    """
    return Cost(
        compute_cycles=cycles.cycles + target.launch_cycles,
        exchange_cycles=arrival_cycles(target, received),
        sync_cycles=sync_cycles(target, num_ipus=1) if received else 0,
        exchange_bytes=received,
        num_vertices=1,
        tiles=max((num_tiles_of(value.spec, target) for value in one.writes), default=1),
        vertex=vertex,
        confidence=cycles.confidence,
    )


def one_after_the_other(parts: Sequence[Cost], *, vertex: str) -> Cost:
    """What compute sets take that run one behind the other for one operation.

    Args:
        parts: Their costs.
        vertex: What to call them together.
    """
    return Cost(
        compute_cycles=sum(part.compute_cycles for part in parts),
        exchange_cycles=sum(part.exchange_cycles for part in parts),
        sync_cycles=sum(part.sync_cycles for part in parts),
        exchange_bytes=max(part.exchange_bytes for part in parts),
        num_vertices=sum(part.num_vertices for part in parts),
        tiles=max(part.tiles for part in parts),
        vertex=vertex,
        confidence=least(part.confidence for part in parts),
        detail=f"{sum(part.num_vertices for part in parts)} stages",
    )


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
