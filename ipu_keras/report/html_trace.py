"""One step of a program as bars on lanes, for the timeline of the HTML report."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ipu_keras.cost.vertices.cost import Cost
from ipu_keras.report.rows import Row, group

# More bars than a screen has pixels only make the file larger.
MAX_SPANS = 3000

# Of a timeline, in the units of its picture. Browsers keep those as float32, which has no room for
# the cycles of a long step: from 2**24 on, bars would be drawn where they are not.
TIMELINE_WIDTH = 10_000

_NUM_COLOURS = 10


@dataclass(frozen=True)
class Lane:
    """A horizontal part of the timeline.

    Args:
        name: What its bars are.
        top: Of the lane, in hundredths of the timeline's height.
        height: By the same measure.
    """

    name: str
    top: float
    height: float


LANES = {
    "host": Lane("host copies", 0, 10),
    "phase": Lane("phase", 13, 7),
    "family": Lane("families", 23, 17),
    "compute": Lane("compute", 43, 27),
    "exchange": Lane("exchange", 73, 12),
    "sync": Lane("sync", 88, 12),
}


@dataclass(frozen=True, kw_only=True)
class Span:
    """Compute sets that follow each other, drawn as one.

    Args:
        row: Their sum; the compute set's own row if there is one only.
        start: Tile cycles from the first compute set's beginning to theirs.
        num_compute_sets: How many they are.
        num_tiles: Tiles that have vertices, in the compute set with the most.
    """

    row: Row
    start: int
    num_compute_sets: int
    num_tiles: int


@dataclass(frozen=True)
class FamilyColours:
    """A colour of the page's style for each family.

    Args:
        families: Those with the most cycles first. The first ten differ in their colour.
    """

    families: tuple[str, ...]

    def of(self, family: str) -> str:
        """The name of a family's style; `"other"` if none is left."""
        named = self.families[:_NUM_COLOURS]
        return f"family-{named.index(family)}" if family in named else "other"


def units_of(total_cycles: int) -> Callable[[int], float]:
    """How wide cycles are on a timeline.

    Args:
        total_cycles: That the whole timeline shows, at least one.

    Returns:
        From cycles to units, of which the timeline has `TIMELINE_WIDTH`.

    Example:

    >>> units_of(1_000_000_000)(25_000)
    0.25
    """

    def units(cycles: int) -> float:
        # A unit's thousandth is seen only where the page does not zoom to.
        return round(cycles * TIMELINE_WIDTH / total_cycles, 4)

    return units


def spans(
    rows: Sequence[Row], costs: Sequence[Cost], max_spans: int = MAX_SPANS
) -> tuple[Span, ...]:
    """The bars of a timeline.

    Args:
        rows: In the order of execution.
        costs: Of each row's compute set.
        max_spans: If there are more rows, short ones are drawn together with
            their neighbours, so that about as many bars are left.
    """
    total = sum(row.cycles for row in rows)
    shortest = total / max_spans if len(rows) > max_spans else 0
    found = []
    start = 0
    for run in _runs(zip(rows, costs, strict=True), shortest):
        members = [row for row, _ in run]
        span = Span(
            row=members[0] if len(members) == 1 else group(_name(members), members),
            start=start,
            num_compute_sets=len(members),
            num_tiles=max(cost.tiles for _, cost in run),
        )
        found.append(span)
        start += span.row.cycles
    return tuple(found)


def _runs(
    pairs: Iterable[tuple[Row, Cost]], shortest: float
) -> Iterator[Sequence[tuple[Row, Cost]]]:
    """Splits pairs where those before a split take `shortest` cycles or more."""
    run = []
    cycles = 0
    for row, cost in pairs:
        run.append((row, cost))
        cycles += row.cycles
        if cycles >= shortest:
            yield run
            run, cycles = [], 0
    if run:
        yield run


def _name(members: Sequence[Row]) -> str:
    return f"{members[0].name} to {members[-1].name}"
