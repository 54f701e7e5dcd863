"""A program's compute sets with their costs, and groups of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipu_keras.machine.target import Confidence

# As in `compared`, which imports this.
if TYPE_CHECKING:
    from ipu_keras.cost.flat.compute_sets import ComputeSet
    from ipu_keras.cost.tile.cost import Cost


@dataclass(frozen=True, kw_only=True)
class Row:
    """A part of a program: one compute set, or a group of them.

    Args:
        name: The name of the compute set or group.
        family: The kind of its operations, such as `"dot"`; `"mixed"` if a group has several.
        layer: The path of the layer; empty if unknown.
        backward: Whether it computes gradients; for groups, whether all members do.
        repeat: How often it runs in one step; for parts of a weight update, how often in one
            update.
        compute_cycles: Tile cycles of its vertices in one step, on the slowest tile.
        exchange_cycles: Tile cycles of the exchange before them, in one step.
        sync_cycles: Tile cycles of synchronization in one step.
        flops: Floating point operations in one step.
        exchange_bytes: Bytes in one step for the tile that receives the most.
        temporary_bytes: Bytes that a tile needs only while it runs.
        confidence: How sure the cycles are: `"calibrated"`, `"derived"` or `"guessed"`; for a
            group, the least sure of its members.
        detail: How it is computed, such as the method and splits of a plan.
        ipu: The IPU that it runs on; for a group, that of its first member.
        stage: The stage of the pipeline; `None` without a pipeline, and for a group in several
            stages.
        weight_update: Whether it runs once for each weight update; for groups, whether all
            members do.
    """

    name: str
    family: str
    layer: str
    backward: bool
    repeat: int
    compute_cycles: int
    exchange_cycles: int
    sync_cycles: int
    flops: int
    exchange_bytes: int
    temporary_bytes: int
    confidence: str
    detail: str = ""
    ipu: int = 0
    stage: int | None = None
    weight_update: bool = False

    @property
    def phase(self) -> str:
        """The phase of the step: `"forward"`, `"backward"` or `"weight update"`."""
        if self.weight_update:
            return "weight update"
        return "backward" if self.backward else "forward"

    @property
    def cycles(self) -> int:
        """Tile cycles in one step: compute, exchange and synchronization."""
        return self.compute_cycles + self.exchange_cycles + self.sync_cycles


def row_of(one: "ComputeSet", cost: "Cost", batches_per_update: int = 1) -> Row:
    """Returns the row of a compute set: the cost of one run times its runs in a step.

    Args:
        batches_per_update: Steps between two weight updates, each of which has an equal share
            of the update.
    """
    share = batches_per_update if one.weight_update else 1
    cost = cost.in_step(one, batches_per_update)
    return Row(
        name=one.name,
        family=one.family,
        layer=one.layer,
        backward=one.backward,
        repeat=one.repeat,
        compute_cycles=cost.compute_cycles,
        exchange_cycles=cost.exchange_cycles,
        sync_cycles=cost.sync_cycles,
        # Rounded up, as `Cost.in_step` rounds: no part of a weight update costs nothing.
        flops=-(-one.flops * one.repeat // share),
        exchange_bytes=cost.exchange_bytes,
        temporary_bytes=cost.temporary_bytes,
        confidence=cost.confidence.value,
        detail=cost.detail,
        ipu=one.ipu,
        stage=one.stage,
        weight_update=one.weight_update,
    )


def group(name: str, members: Sequence[Row]) -> Row:
    """Returns the sum of several rows as one row."""
    families = {row.family for row in members}
    order = [confidence.value for confidence in Confidence]
    return Row(
        name=name,
        family=families.pop() if len(families) == 1 else "mixed",
        layer=members[0].layer if len({row.layer for row in members}) == 1 else "",
        backward=all(row.backward for row in members),
        repeat=1,
        compute_cycles=sum(row.compute_cycles for row in members),
        exchange_cycles=sum(row.exchange_cycles for row in members),
        sync_cycles=sum(row.sync_cycles for row in members),
        flops=sum(row.flops for row in members),
        exchange_bytes=sum(row.exchange_bytes for row in members),
        # Members run one after the other, and so use the same memory.
        temporary_bytes=max(row.temporary_bytes for row in members),
        confidence=max((row.confidence for row in members), key=order.index),
        ipu=members[0].ipu,
        stage=members[0].stage if len({row.stage for row in members}) == 1 else None,
        weight_update=all(row.weight_update for row in members),
    )


# The group of rows that belong to no layer.
NO_LAYER = "(no layer)"

# What rows are grouped by; "op" leaves each on its own.
_KEYS: Mapping[str, Callable[[Row], str]] = {
    "layer": lambda row: row.layer or NO_LAYER,
    "family": lambda row: row.family,
    "backward": lambda row: "backward" if row.backward else "forward",
    "confidence": lambda row: row.confidence,
    "stage": lambda row: _stage_name(row),
    "phase": lambda row: row.phase,
    "op": lambda row: row.name,
}

# Columns whose largest numbers come first; names are sorted by letters instead.
_NUMBERS = (
    "cycles",
    "compute_cycles",
    "exchange_cycles",
    "sync_cycles",
    "flops",
    "exchange_bytes",
    "temporary_bytes",
    "repeat",
)


def _stage_name(row: Row) -> str:
    if row.weight_update:
        return row.phase
    return "(no stage)" if row.stage is None else f"stage {row.stage}"


def arranged(rows: Sequence[Row], key: str, sort: str | None) -> tuple[Row, ...]:
    """Returns rows in groups, in an order.

    Args:
        key: What the rows of a group have in common; `"op"` leaves each on its own.
        sort: A column, or `None` for the order of execution, in which a group stands where its
            first row does.
    """
    if key not in _KEYS:
        raise ValueError(f"Rows are grouped by one of {', '.join(_KEYS)}. Received: {key!r}")
    if sort not in (*_NUMBERS, "name", None):
        raise ValueError(
            f"Rows are sorted by one of {', '.join(_NUMBERS)}, name or None. Received: {sort!r}"
        )
    found = list(rows) if key == "op" else _groups(rows, _KEYS[key])
    if sort is not None:
        found.sort(key=lambda row: row.name)
    if sort in _NUMBERS:
        # The sort is stable: rows with equal numbers stay in the order of their names, so that
        # equal programs give equal reports.
        found.sort(key=lambda row: -getattr(row, sort))
    return tuple(found)


def _groups(rows: Sequence[Row], name_of: Callable[[Row], str]) -> list[Row]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(name_of(row), []).append(row)
    return [group(name, members) for name, members in groups.items()]
