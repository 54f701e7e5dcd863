"""What a compute set takes: cycles, memory for what arrives, vertices; and how that adds up.

Tiles synchronize once before an exchange: each knows then in which cycle its data arrives, and
computes behind that. What needs no exchange starts when its tile is done with the set before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.flat.layouts import num_tiles_of
from ipu_keras.cost.tile.exchange import ExchangePhase, exchange_cycles, sync_cycles
from ipu_keras.cost.tile.vertices import VertexCycles, least
from ipu_keras.machine.target import Confidence, Target


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one run of a compute set takes.

    Args:
        compute_cycles: Cycles of the slowest tile, launches included.
        exchange_cycles: Cycles until the tile that receives the most has it.
        sync_cycles: Cycles of synchronization before each exchange.
        exchange_bytes: Bytes that the tile with the most receives.
        arrives_in_place: Whether these arrive where its results lie, and so in no messages.
        num_receivers: Tiles that messages arrive at, where these are known; else all that
            arrives is messages to all tiles, or is counted among `temporary_bytes` if there are.
        temporary_bytes: Bytes that a tile needs only while it runs.
        interleaved_bytes: Those of them that have to lie in interleaved memory.
        separate_bytes: Those that arrive and must not lie in a memory element of its results, so
            that vertices load and store in the same cycle.
        num_vertices: Vertices of one tile; the workers share one.
        state_bytes: Bytes of their fields, pointers and work lists; 0 where only their number is
            known.
        vertex: Type of the vertices; compute sets of one type share their code.
        detail: How it is computed, where there is a choice.
        parts: Costs of what an operation of Poplar's libraries consists of, already counted.
    """

    compute_cycles: int = 0
    exchange_cycles: int = 0
    sync_cycles: int = 0
    exchange_bytes: int = 0
    arrives_in_place: bool = False
    num_receivers: int | None = None
    temporary_bytes: int = 0
    interleaved_bytes: int = 0
    separate_bytes: int = 0
    num_vertices: int = 0
    state_bytes: int = 0
    tiles: int = 0
    vertex: str = ""
    confidence: Confidence = Confidence.DERIVED
    detail: str = ""
    parts: tuple["Cost", ...] = ()

    @property
    def cycles(self) -> int:
        return self.compute_cycles + self.exchange_cycles + self.sync_cycles

    def in_step(self, one: ComputeSet, batches_per_update: int) -> "Cost":
        """Returns what all runs take in one step; of a weight update, its share."""
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
        """Bytes that arrive beside the results and the temporaries of products."""
        counted = self.num_receivers is None and self.temporary_bytes
        return 0 if counted or self.arrives_in_place else self.exchange_bytes


def arrival_cycles(target: Target, received: int) -> int:
    """Returns the cycles of an exchange whose busiest tile receives, and sends, so many bytes."""
    phase = ExchangePhase(bytes_in=received, bytes_out=received)
    return exchange_cycles(target, phase) if received else 0


def started_together(
    one: ComputeSet, target: Target, cycles: VertexCycles, received: int, *, vertex: str
) -> Cost:
    """Costs vertices that start at once, on the tiles that have what they write.

    Before, `received` bytes arrive at the busiest tile; if none do, there is no exchange.
    """
    # The target's `launch_cycles` are what compute sets that followed each other without
    # exchange were measured to take besides their vertices: no sync is between these.
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
    """Costs compute sets that run one behind the other for one operation."""
    return Cost(
        compute_cycles=sum(part.compute_cycles for part in parts),
        exchange_cycles=sum(part.exchange_cycles for part in parts),
        sync_cycles=sum(part.sync_cycles for part in parts),
        # Messages of one exchange are gone before those of the next one arrive.
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
    """Costs compute sets one behind the other on tiles that are not said: a guess.

    In each exchange, a tile receives, and sends, so many bytes as `moved` says.
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
