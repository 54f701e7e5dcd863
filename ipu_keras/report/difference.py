"""What changes from one report to another."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ipu_keras.report import notebook
from ipu_keras.report.figures import Figures
from ipu_keras.report.plain_options import plain_options
from ipu_keras.report.plain_report import SCHEMA_VERSION
from ipu_keras.report.rows import NO_LAYER
from ipu_keras.report.text import PlainTable, rendered

# Layers that the text shows.
_NUM_LAYERS = 15

# Totals that have the same name in JSON.
_PLAIN_TOTALS = (
    "seconds_per_step",
    "seconds_per_execution",
    "flops_per_step",
    "utilisation",
    "guessed_share",
)

# Totals that tell the difference in short.
_KEY_FIGURES = ("cycles_per_step", "seconds_per_step", "max_tile_bytes")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What of a report is compared.

    Args:
        name: Of the program, and its target.
        settings: What was given, by name.
        totals: Of the whole step, by names of the report's properties.
        layers: Tile cycles of one step by layer.
        families: Tile cycles of one step by family.
        memory: Bytes over all tiles by category.
    """

    name: str
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
        names: Of both programs, and their targets.
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

    names: tuple[str, str]
    settings: Mapping[str, tuple[Any, Any]]
    totals: Mapping[str, Change]
    layers: Mapping[str, Change]
    families: Mapping[str, Change]
    memory: Mapping[str, Change]

    def __str__(self) -> str:
        return rendered(*(part for table in self._tables() for part in table.parts()))

    def __repr__(self) -> str:
        before, after = self.names
        changes = ((name, self.totals[name]) for name in _KEY_FIGURES if name in self.totals)
        figures = ", ".join(f"{name} {' -> '.join(_cells(one)[:2])}" for name, one in changes)
        return f"<Difference from {before!r} to {after!r}: {figures}>"

    def _repr_html_(self) -> str | None:
        """What a notebook shows; without the libraries of HTML reports, it shows the text."""
        title = "From {} to {}".format(*self.names)
        return notebook.cell(lambda html: html.tables_cell(title, tuple(self._tables())))

    def grown(self) -> str | None:
        """Tables of what is more in the second report; `None` if nothing is.

        Example:

        >>> import tensorflow as tf
        >>> from ipu_keras import profile
        >>> small, large = (profile(lambda x: x @ x, tf.TensorSpec((n, n))) for n in (64, 128))
        >>> "dot" in small.diff(large).grown(), large.diff(large).grown()
        (True, None)
        """
        more = (
            ("Totals", self.totals),
            ("Layers, cycles", self.layers),
            ("Families, cycles", self.families),
            ("Memory of all tiles, bytes", self.memory),
        )
        tables = [
            _table(
                title, {name: one for name, one in changes.items() if one.change > 0}, grown=True
            )
            for title, changes in more
        ]
        parts = [part for table in tables if table.rows for part in table.parts()]
        return rendered(*parts) if parts else None

    def _tables(self) -> Iterator[PlainTable]:
        yield PlainTable(
            title="Settings" if self.settings else "Same settings",
            columns=("setting", "before", "after"),
            rows=tuple((name, *map(str, pair)) for name, pair in self.settings.items()),
            justify="left",
        )
        yield _table("Totals", self.totals)
        yield _table("Layers, cycles", self.layers, limit=_NUM_LAYERS)
        yield _table("Families, cycles", self.families)
        yield _table("Memory of all tiles, bytes", self.memory)


def compared(report: Figures) -> Compared:
    """What of a report is compared.

    Args:
        report: A `Report`.
    """
    target, memory = report.model.target, report.model.memory
    numbers = {f"target.{name}": getattr(target, name) for name in target.provenance}
    totals = {
        "cycles_per_step": report.cycles_per_step,
        "compute_cycles": report.compute_cycles,
        "host_cycles": report.host_cycles,
        "cycles_per_execution": report.cycles_per_execution,
        "seconds_per_step": report.seconds_per_step,
        "seconds_per_execution": report.seconds_per_execution,
        "flops_per_step": report.flops_per_step,
        "utilisation": report.utilisation,
        "guessed_share": report.guessed_share,
        "max_tile_bytes": memory.max_tile_bytes,
        "total_bytes": memory.total_bytes,
    }
    if report.samples_per_second is not None:
        totals["samples_per_second"] = report.samples_per_second
    return Compared(
        name=f"{report.name} on {target.name}",
        settings={
            "program": report.name,
            "batch_size": report.batch_size,
            **plain_options(report.model.options),
            "target": target.name,
            **numbers,
        },
        totals=totals,
        layers={row.name: row.cycles for row in report.by("layer")},
        families={row.name: row.cycles for row in report.by("family")},
        memory=memory.bytes_by_category,
    )


def compared_of_plain(plain: Any) -> Compared:
    """The same of a report that was written as JSON.

    Args:
        plain: What `Report.to_dict` gives, or JSON of it.

    Raises:
        ValueError: It is something else, or of another version.
    """
    if not isinstance(plain, Mapping) or plain.get("schema") != SCHEMA_VERSION:
        schema = plain.get("schema") if isinstance(plain, Mapping) else None
        raise ValueError(f"it must have schema {SCHEMA_VERSION}. Received: {schema!r}")
    target, memory, cycles = plain["target"], plain["memory"], plain["cycles"]
    layers, families = Counter[str](), Counter[str]()
    for row in plain["rows"]:
        layers[row["layer"] or NO_LAYER] += row["cycles"]
        families[row["family"]] += row["cycles"]
    totals = {
        "cycles_per_step": cycles["per_step"],
        "compute_cycles": cycles["ipu"],
        "host_cycles": cycles["host"],
        "cycles_per_execution": cycles["per_execution"],
        **{name: plain[name] for name in _PLAIN_TOTALS},
        "max_tile_bytes": memory["max_tile_bytes"],
        "total_bytes": memory["total_bytes"],
    }
    if plain["samples_per_second"] is not None:
        totals["samples_per_second"] = plain["samples_per_second"]
    return Compared(
        name=f"{plain['name']} on {target['name']}",
        settings={
            "program": plain["name"],
            "batch_size": plain["batch_size"],
            **plain["options"],
            "target": target["name"],
            **{f"target.{name}": number for name, number in target["numbers"].items()},
        },
        totals=totals,
        layers=layers,
        families=families,
        memory={**memory["always_live_by_category"], **memory["not_always_live_by_category"]},
    )


def difference(before: Compared, after: Compared) -> Difference:
    """Compares the figures of two reports.

    Args:
        before: Of the first one.
        after: Of the second one.
    """
    names = {**before.settings, **after.settings}
    pairs = {name: (before.settings.get(name), after.settings.get(name)) for name in names}
    return Difference(
        names=(before.name, after.name),
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


def _table(
    title: str, changes: Mapping[str, Change], limit: int | None = None, *, grown: bool = False
) -> PlainTable:
    """A line for each number that changes, or of which all have grown, up to a limit."""
    changed = {name: one for name, one in changes.items() if one.change}
    shown = list(changed.items())[:limit]
    more = f"; the largest {len(shown)} changes" if len(shown) < len(changed) else ""
    count = "" if grown else f" ({len(changed)} of {len(changes)} differ{more})"
    return PlainTable(
        title=f"{title}{count}",
        columns=("name", "before", "after", "change", "ratio"),
        rows=tuple((name, *_cells(one)) for name, one in shown),
    )


def _cells(one: Change) -> tuple[str, str, str, str]:
    ratio = "" if one.ratio is None else f"{one.ratio:+.1%}"
    return _text(one.before), _text(one.after), _text(one.change, sign="+"), ratio


def _text(number: float, sign: str = "") -> str:
    whole = isinstance(number, int) or abs(number) >= 1000
    return f"{round(number):{sign},}" if whole else f"{number:{sign}.4g}"
