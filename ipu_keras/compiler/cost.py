"""What a compute set takes: cycles, memory for what arrives, vertices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ipu_keras.compiler.compute_sets import ComputeSet
from ipu_keras.compiler.vertices import least
from ipu_keras.target import Confidence


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
