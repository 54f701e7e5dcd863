"""What changes from one report to another, for a terminal, a page and JSON."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ipu_keras.report.compared import Change, Compared
from ipu_keras.report.memory_curves import MemoryCurves
from ipu_keras.report.notebook import tables_cell
from ipu_keras.report.text import PlainTable, rendered
from ipu_keras.store.atomic_files import write_atomically

# Layers that the text shows; `to_dict` and the page have all of them.
_NUM_LAYERS = 15

# Totals that tell the difference in short.
_KEY_FIGURES = ("cycles_per_step", "seconds_per_step", "max_tile_bytes")

# Totals at the top of a page, with what they are called there.
_PAGE_FIGURES = (
    ("cycles_per_step", "cycles per step"),
    ("samples_per_second", "samples per second"),
    ("max_tile_bytes", "bytes on the fullest tile"),
    ("total_bytes", "bytes on all tiles"),
    ("flops_per_step", "operations per step"),
)
_NONE = Change(0, 0)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What changes from one report to another.

    `Report.diff` makes it. Layers, families and categories are in order of their absolute
    change, the largest first. What is in one of the reports only is 0 in the other one.

    Args:
        names: The names of both programs with their targets.
        settings: Both values of what was given differently: the program's name, its
            `batch_size`, the target and its numbers, and options.
        totals: Changes of the whole step, by names of `Report`'s properties, such as
            `"cycles_per_step"`, `"seconds_per_step"`, `"flops_per_step"`; also
            `"max_tile_bytes"` and `"total_bytes"` of memory. `"samples_per_second"` is there if
            both reports have it.
        layers: Tile cycles of one step by layer.
        families: Tile cycles of one step by family.
        memory: Bytes over all tiles by category.
        layer_memory: Bytes over all tiles by layer, of the values that are there when the
            fullest tile is at its fullest.
        layer_flops: Floating point operations of one step by layer.
        parameters: Numbers in variables by layer.
        curves: The curves that pictures of memory draw, before and after; `None` if they are
            unknown.
    """

    names: tuple[str, str]
    settings: Mapping[str, tuple[Any, Any]]
    totals: Mapping[str, Change]
    layers: Mapping[str, Change]
    families: Mapping[str, Change]
    memory: Mapping[str, Change]
    layer_memory: Mapping[str, Change]
    layer_flops: Mapping[str, Change]
    parameters: Mapping[str, Change]
    curves: tuple[MemoryCurves | None, MemoryCurves | None] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Returns the changes as plain values, in a fixed order, without the curves of pictures."""
        settings = {name: list(pair) for name, pair in self.settings.items()}
        changes = {
            one.name: {name: asdict(change) for name, change in getattr(self, one.name).items()}
            for one in fields(self)
            if one.name not in ("names", "settings", "curves")
        }
        return {"names": list(self.names), "settings": settings, **changes}

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes a page for a browser: one file, which loads nothing else.

        The page shows the memory of each tile, bytes in use over time, layers, families and
        settings, before and after. Equal differences give equal pages.

        Args:
            path: The file to write; a file that exists is replaced.

        Raises:
            FileNotFoundError: The folder of the file does not exist.
            ImportError: The libraries of `pip install "ipu-keras[report]"` are missing.
        """
        write_atomically(Path(path), self._page().encode())

    def _page(self) -> str:
        from ipu_keras.report.html_pictures import (
            broad_and_narrow,
            compared_liveness,
            compared_memory,
        )
        from ipu_keras.report.html_templates import template_named

        before, after = self.curves
        drawn = None if before is None or after is None else (before, after)
        return template_named("comparison.html.j2").render(
            names=self.names,
            settings=self.settings,
            key_figures=[
                (word, self.totals[name]) for name, word in _PAGE_FIGURES if name in self.totals
            ],
            totals=self.totals,
            families=self.families,
            memory=self.memory,
            layers={
                name: (
                    self.layers.get(name, _NONE),
                    self.layer_memory.get(name, _NONE),
                    self.layer_flops.get(name, _NONE),
                    self.parameters.get(name, _NONE),
                )
                for name in self.layers
            },
            memory_picture="" if drawn is None else broad_and_narrow(compared_memory, *drawn),
            liveness_picture=""
            if drawn is None or not (drawn[0].live and drawn[1].live)
            else broad_and_narrow(compared_liveness, *drawn),
        )

    def __str__(self) -> str:
        return rendered(*self._tables())

    def __repr__(self) -> str:
        before, after = self.names
        changes = ((name, self.totals[name]) for name in _KEY_FIGURES if name in self.totals)
        figures = ", ".join(f"{name} {' -> '.join(one.texts()[:2])}" for name, one in changes)
        return f"<Difference from {before!r} to {after!r}: {figures}>"

    def _repr_html_(self) -> str | None:
        """Returns what a notebook shows, or `None`, after which it shows the text."""
        title = "From {} to {}".format(*self.names)
        return tables_cell(title, tuple(self._tables()))

    def grown(self) -> str | None:
        """Returns tables of the numbers that are larger in the second report; `None` if none is.

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
        full = [table for table in tables if table.rows]
        return rendered(*full) if full else None

    def _tables(self) -> Iterator[PlainTable]:
        yield PlainTable(
            title="Settings" if self.settings else "Same settings",
            columns=("setting", "before", "after"),
            rows=tuple((name, *map(str, pair)) for name, pair in self.settings.items()),
            words=("before", "after"),
        )
        yield _table("Totals", self.totals)
        yield _table("Layers, cycles", self.layers, limit=_NUM_LAYERS)
        if self.layer_memory:
            yield _table("Layers, bytes at the peak", self.layer_memory, limit=_NUM_LAYERS)
        yield _table("Families, cycles", self.families)
        yield _table("Memory of all tiles, bytes", self.memory)


def difference(before: Compared, after: Compared) -> Difference:
    """Compares the figures of two reports."""
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
        layer_memory=_changes(before.layer_memory, after.layer_memory),
        layer_flops=_changes(before.layer_flops, after.layer_flops),
        parameters=_changes(before.parameters, after.parameters),
        curves=(before.curves, after.curves),
    )


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Change]:
    names = sorted({*before, *after})
    found = [(name, Change(before.get(name, 0), after.get(name, 0))) for name in names]
    return dict(sorted(found, key=lambda item: -abs(item[1].change)))


def _table(
    title: str, changes: Mapping[str, Change], limit: int | None = None, *, grown: bool = False
) -> PlainTable:
    """Makes a line for each number that changes (or grows, if `grown`), up to a limit."""
    changed = {name: one for name, one in changes.items() if one.change}
    shown = list(changed.items())[:limit]
    more = f"; the largest {len(shown)} changes" if len(shown) < len(changed) else ""
    count = "" if grown else f" ({len(changed)} of {len(changes)} differ{more})"
    return PlainTable(
        title=f"{title}{count}",
        columns=("name", "before", "after", "change", "ratio"),
        rows=tuple((name, *one.texts()) for name, one in shown),
    )
