"""A program's compute sets with their costs, and groups of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ipu_keras.cost.flat.compute_sets import ComputeSet
from ipu_keras.cost.vertices.cost import Cost
from ipu_keras.machine.target import Confidence


@dataclass(frozen=True, kw_only=True)
class Row:
    """A part of a program: one compute set, or a group of them.

    Args:
        name: Of the compute set or group.
        family: Of its operations, such as `"dot"`; `"mixed"` in groups of several.
        layer: Path of the layer; empty if unknown.
        backward: Whether it belongs to the gradient; in groups, whether all do.
        repeat: How often it runs in one step; of a weight update, in each.
        compute_cycles: Tile cycles of its vertices in one step, on the slowest tile.
        exchange_cycles: Of the exchange before them.
        sync_cycles: Of synchronization.
        flops: Floating point operations in one step.
        exchange_bytes: Bytes that the tile with the most receives in one step.
        temporary_bytes: What a tile needs only while it runs, in bytes.
        confidence: How sure the cycles are: `"calibrated"`, `"derived"` or
            `"guessed"`; of a group, the least sure.
        detail: How it is computed, such as the method and splits of a plan.
        ipu: Where it runs; of a group, where its first member does.
        stage: The stage of the pipeline, if there is one; of a group, if all are in one.
        weight_update: Whether it runs once for each weight update; in groups, whether all do.
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
        """`"forward"`, `"backward"` or `"weight update"`."""
        if self.weight_update:
            return "weight update"
        return "backward" if self.backward else "forward"

    @property
    def cycles(self) -> int:
        """Tile cycles in one step."""
        return self.compute_cycles + self.exchange_cycles + self.sync_cycles


def row_of(one: ComputeSet, cost: Cost, batches_per_update: int = 1) -> Row:
    """The row of a compute set: its cost times how often it runs in a step.

    Args:
        one: The compute set.
        cost: Of one run.
        batches_per_update: Steps between two weight updates, of which each has a share.
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
    """The sum of several rows."""
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
        temporary_bytes=max(row.temporary_bytes for row in members),
        confidence=max((row.confidence for row in members), key=order.index),
        ipu=members[0].ipu,
        stage=members[0].stage if len({row.stage for row in members}) == 1 else None,
        weight_update=all(row.weight_update for row in members),
    )


# What rows that no layer has are called.
NO_LAYER = "(no layer)"

# What rows are put together by; "op" leaves each on its own.
_KEYS: Mapping[str, Callable[[Row], str]] = {
    "layer": lambda row: row.layer or NO_LAYER,
    "family": lambda row: row.family,
    "backward": lambda row: "backward" if row.backward else "forward",
    "confidence": lambda row: row.confidence,
    "stage": lambda row: _stage_name(row),
    "phase": lambda row: row.phase,
    "op": lambda row: row.name,
}

# Columns that rows are sorted by, the largest first; and by name, in the order of letters.
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
    """Rows in groups, in an order.

    Args:
        rows: In the order of execution.
        key: What the rows of a group have in common; `"op"` for rows as they are.
        sort: A column, or `None` for the order of execution, which is that of
            the first row in a group.

    Raises:
        ValueError: No such key or column.
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
        # Equal ones stay in the order of their names.
        found.sort(key=lambda row: -getattr(row, sort))
    return tuple(found)


def _groups(rows: Sequence[Row], name_of: Callable[[Row], str]) -> list[Row]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(name_of(row), []).append(row)
    return [group(name, members) for name, members in groups.items()]
