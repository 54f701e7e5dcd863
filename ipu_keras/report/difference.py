"""What changes from one report to another."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from ipu_keras.report.text import rendered

# Layers that the text shows.
_NUM_LAYERS = 15


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What of a report is compared.

    Args:
        settings: What was given, by name.
        totals: Of the whole step, by names of the report's properties.
        layers: Tile cycles of one step by layer.
        families: Tile cycles of one step by family.
        memory: Bytes over all tiles by category.
    """

    settings: Mapping[str, Any]
    totals: Mapping[str, float]
    layers: Mapping[str, int]
    families: Mapping[str, int]
    memory: Mapping[str, int]


@dataclass(frozen=True)
class Change:
    """One number in two reports.

    Args:
        before: In the first one.
        after: In the second one.
    """

    before: float
    after: float

    @property
    def change(self) -> float:
        """What is added; negative if the number shrinks."""
        return self.after - self.before

    @property
    def ratio(self) -> float | None:
        """What is added as a share of the first number; `None` if that is 0."""
        return self.change / self.before if self.before else None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What changes from one report to another.

    Layers, families and categories are in order of their absolute change, the
    largest first. What is in one of the reports only is 0 in the other one.

    Args:
        settings: Both values of what was given differently: the program's name, its
            `batch_size`, the target and its numbers, and options.
        totals: Of the whole step, by names of `Report`'s properties, such as
            `"cycles_per_step"`, `"seconds_per_step"`, `"flops_per_step"`; also
            `"max_tile_bytes"` and `"total_bytes"` of memory.
            `"samples_per_second"` is there if both reports have it.
        layers: Tile cycles of one step by layer.
        families: Tile cycles of one step by family.
        memory: Bytes over all tiles by category.
    """

    settings: Mapping[str, tuple[Any, Any]]
    totals: Mapping[str, Change]
    layers: Mapping[str, Change]
    families: Mapping[str, Change]
    memory: Mapping[str, Change]

    def __str__(self) -> str:
        return rendered(
            _settings_table(self.settings) if self.settings else "Same settings",
            *_part("Totals", self.totals),
            *_part("Layers, cycles", self.layers, limit=_NUM_LAYERS),
            *_part("Families, cycles", self.families),
            *_part("Memory of all tiles, bytes", self.memory),
        )


def difference(before: Figures, after: Figures) -> Difference:
    """Compares the figures of two reports.

    Args:
        before: Of the first one.
        after: Of the second one.
    """
    names = {**before.settings, **after.settings}
    pairs = {name: (before.settings.get(name), after.settings.get(name)) for name in names}
    return Difference(
        settings={name: pair for name, pair in pairs.items() if pair[0] != pair[1]},
        totals={
            name: Change(number, after.totals[name])
            for name, number in before.totals.items()
            if name in after.totals
        },
        layers=_changes(before.layers, after.layers),
        families=_changes(before.families, after.families),
        memory=_changes(before.memory, after.memory),
    )


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Change]:
    names = sorted({*before, *after})
    found = [(name, Change(before.get(name, 0), after.get(name, 0))) for name in names]
    return dict(sorted(found, key=lambda item: -abs(item[1].change)))


def _settings_table(settings: Mapping[str, tuple[Any, Any]]) -> Table:
    table = Table("setting", "before", "after", title="Settings", title_justify="left")
    for name, pair in settings.items():
        table.add_row(name, *map(str, pair))
    return table


def _part(
    title: str, changes: Mapping[str, Change], limit: int | None = None
) -> Iterator[str | Table]:
    """A title, and a table with a line for each number that changes, up to a limit."""
    changed = {name: one for name, one in changes.items() if one.change}
    shown = list(changed.items())[:limit]
    more = f"; the largest {len(shown)} changes" if len(shown) < len(changed) else ""
    yield f"{title} ({len(changed)} of {len(changes)} differ{more})"
    if shown:
        yield _table(shown)


def _table(changes: Iterable[tuple[str, Change]]) -> Table:
    table = Table()
    table.add_column("name", overflow="fold")
    for column in ("before", "after", "change", "ratio"):
        table.add_column(column, justify="right")
    for name, one in changes:
        ratio = "" if one.ratio is None else f"{one.ratio:+.1%}"
        numbers = _text(one.before), _text(one.after), _text(one.change, sign="+")
        table.add_row(name, *numbers, ratio)
    return table


def _text(number: float, sign: str = "") -> str:
    whole = isinstance(number, int) or abs(number) >= 1000
    return f"{round(number):{sign},}" if whole else f"{number:{sign}.4g}"
