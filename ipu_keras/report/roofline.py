"""How near layers come to what tiles can compute, and to what their memory can feed them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import Target
from ipu_keras.report.rows import NO_LAYER, Row

PHASES = ("forward", "backward", "weight update")

# A tile does two loads and a store in a cycle, each as wide as a vector: 24 bytes, which are the
# published 47.5 TB/s of a GC200.
_ACCESSES = 3


@dataclass(frozen=True, kw_only=True)
class Roof:
    """What an IPU can do at most.

    Args:
        flops: Floating point operations of float16 in a second.
        bytes_per_second: Bytes that all tiles read and write in a second in their own memory.
    """

    flops: float
    bytes_per_second: float

    def at(self, flops_per_byte: float) -> float:
        """Returns the most operations in a second of what does so many with each byte."""
        return min(self.flops, flops_per_byte * self.bytes_per_second)


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """What a layer does in one step, and what it makes.

    Args:
        output: What the last compute set of its forward part makes, new values of variables
            aside; `None` without one.
        cycles: Tile cycles by phase.
        flops: Floating point operations of all phases.
        num_bytes: Bytes that its compute sets read and write.
        flops_per_second: Operations in a second of its cycles; 0 if it takes none.
        share_of_roof: Those operations as a share of the most that are possible with so many
            for each byte; 0 for layers without operations.
    """

    name: str
    output: TensorSpec | None
    cycles: Mapping[str, int]
    flops: int
    num_bytes: int
    flops_per_second: float
    share_of_roof: float

    @property
    def total_cycles(self) -> int:
        """Tile cycles of all phases."""
        return sum(self.cycles.values())

    @property
    def flops_per_byte(self) -> float:
        """Operations for each byte that is read or written; 0 if there is none."""
        return self.flops / self.num_bytes if self.num_bytes else 0.0


def roof_of(target: Target) -> Roof:
    """Returns the roof of one IPU.

    Example:

    >>> from ipu_keras.machine.target import TARGETS
    >>> round(roof_of(TARGETS["gc200"]).bytes_per_second / 1e12, 1)
    47.0
    """
    cycles = target.num_tiles * target.clock_hz
    return Roof(
        flops=max(target.amp_flops.values()) * cycles,
        bytes_per_second=_ACCESSES * target.vector_bytes * cycles,
    )


def work_of_layers(model: ModelledProgram, rows: Sequence[Row]) -> tuple[LayerWork, ...]:
    """Returns the work of each layer, those with the most cycles first.

    Args:
        rows: The rows of the model's compute sets.
    """
    members: dict[str, list[tuple[ComputeSet, Row]]] = {}
    for one, row in zip(model.program.compute_sets, rows, strict=True):
        members.setdefault(row.layer or NO_LAYER, []).append((one, row))
    roof, batches = roof_of(model.target), model.options.gradient_accumulation_count
    found = [
        _work(name, pairs, model.program.updates, roof, model.target.clock_hz, batches)
        for name, pairs in members.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.total_cycles, one.name)))


def _work(
    name: str,
    members: Sequence[tuple[ComputeSet, Row]],
    updates: Mapping[str, str],
    roof: Roof,
    clock_hz: float,
    batches_per_update: int,
) -> LayerWork:
    flops = sum(row.flops for _, row in members)
    num_bytes = sum(_bytes_in_step(one, batches_per_update) for one, _ in members)
    seconds = sum(row.cycles for _, row in members) / clock_hz
    reached = flops / seconds if seconds else 0.0
    most = roof.at(flops / num_bytes) if num_bytes else roof.flops
    made = [one.writes[0] for one, row in members if row.phase == "forward" and one.writes]
    outputs = [value.spec for value in made if value.name not in updates]
    return LayerWork(
        name=name,
        output=outputs[-1] if outputs else None,
        cycles={
            phase: sum(row.cycles for _, row in members if row.phase == phase) for phase in PHASES
        },
        flops=flops,
        num_bytes=num_bytes,
        flops_per_second=reached,
        share_of_roof=reached / most if flops else 0.0,
    )


def _bytes_in_step(one: ComputeSet, batches_per_update: int) -> int:
    share = batches_per_update if one.weight_update else 1
    return -(-(one.bytes_read + one.bytes_written) * one.repeat // share)
