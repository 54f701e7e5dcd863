"""One step of a program as bars on lanes, for the timeline of the HTML report."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ipu_keras.cost.tile.cost import Cost
from ipu_keras.report.rows import Row, group

# More bars than a screen has pixels only make the file larger.
MAX_SPANS = 3000

# Width of a timeline in the units of its SVG. Cycles will not do: browsers keep coordinates as
# float32, and from 2**24 on, bars would be drawn in wrong places.
TIMELINE_WIDTH = 10_000

_NUM_COLOURS = 10


@dataclass(frozen=True)
class Lane:
    """A horizontal part of the timeline.

    Args:
        name: The label beside its bars.
        top: Distance from the top of the timeline, in hundredths of its height.
        height: Height of the lane, in hundredths of the timeline's.
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
    """Compute sets that follow each other, drawn as one bar.

    Args:
        row: The sum of their rows; if there is only one, its own row.
        start: Tile cycles from the beginning of the first compute set to that of the span.
        num_tiles: Tiles that have vertices, in the compute set with the most of them.
    """

    row: Row
    start: int
    num_compute_sets: int
    num_tiles: int


@dataclass(frozen=True)
class FamilyColours:
    """Gives each family one of the colours of the page's style.

    Args:
        families: Families with the most cycles first, as only the first ten differ in colour.
    """

    families: tuple[str, ...]

    def of(self, family: str) -> str:
        """Returns the name of a family's style, or `"other"` if no colour is left for it."""
        named = self.families[:_NUM_COLOURS]
        return f"family-{named.index(family)}" if family in named else "other"


def units_of(total_cycles: int) -> Callable[[int], float]:
    """Returns a function from cycles to units of a timeline that shows `total_cycles`, one or more.

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
    """Returns the bars of a timeline.

    Args:
        max_spans: If there are more rows, short ones are drawn together with their neighbours,
            so that about as many bars are left.
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
    """Splits pairs wherever those since the last split take `shortest` cycles or more."""
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
