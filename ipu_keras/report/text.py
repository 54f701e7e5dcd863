"""Tables for a terminal: as wide as it is, and numbers in one piece."""

import io
import math
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ipu_keras.report.layers import Layer
from ipu_keras.report.rows import Row
from ipu_keras.settings.names import legible

# Columns of characters of a terminal; also where there is none, as in files and notebooks.
_LEAST_WIDTH = 80

# Where words go on in further lines, the characters of a line, at least: of names, and of others.
_LEAST_NAME, _LEAST_WORDS = 20, 16


@dataclass(frozen=True, kw_only=True)
class PlainTable:
    """A table whose cells are texts, for a terminal or for a page.

    Where a terminal is too narrow, words and headings go on in further lines. Numbers do not: the
    table is drawn closer, or as several, which begin with the same names.

    Args:
        title: Above it.
        columns: Their headings.
        rows: The cells of each, of which the first one is its name.
        words: The columns besides the first whose cells are words, by their headings. The cells
            of others are numbers.
        footer: The cells below all others, if there are any.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ()
    footer: tuple[str, ...] = ()

    def drawn(self, width: int) -> Iterator[Table]:
        """Its one or more tables; none if it has no rows.

        Args:
            width: Of the terminal, in characters.
        """
        if not self.rows:
            return
        name, *others = (self._column(place) for place in range(len(self.columns)))
        yield from _drawn(name, others, width)

    def _column(self, place: int) -> "_Column":
        heading = self.columns[place]
        return _Column(
            heading=printable(heading),
            cells=tuple(printable(row[place]) for row in self.rows),
            footer=printable(self.footer[place]) if self.footer else None,
            least_words=(
                _LEAST_NAME if place == 0 else _LEAST_WORDS if heading in self.words else None
            ),
        )


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A column of a table that is drawn."""

    heading: str
    cells: tuple[str, ...]
    footer: str | None
    least_words: int | None  # `None` of numbers

    @property
    def width(self) -> int:
        """Characters of its longest cell."""
        return max(map(cell_len, (self.heading, *self._values)))

    @property
    def least_width(self) -> int:
        """The same where headings, and words, go on in further lines."""
        if self.least_words is not None:
            return min(self.width, self.least_words)
        return max(map(cell_len, (*self.heading.split(), *self._values)), default=0)

    @property
    def _values(self) -> tuple[str, ...]:
        return self.cells if self.footer is None else (*self.cells, self.footer)


def _drawn(name: _Column, others: Sequence[_Column], width: int) -> Iterator[Table]:
    """One table that fits; without spaces around its cells, or several, if it needs that."""
    whole = [name, *others]
    for padding in (1, 0):
        if _least(whole, padding) <= width:
            yield _table(whole, width, padding)
            return
    for part in _parts(name, others, width):
        yield _table(part, width, 1)


def _parts(name: _Column, others: Sequence[_Column], width: int) -> list[list[_Column]]:
    """As few as can be, with as many columns each, after the names."""
    parts = [[name]]
    for count in range(2, len(others) + 1):
        size = math.ceil(len(others) / count)
        parts = [[name, *others[k : k + size]] for k in range(0, len(others), size)]
        if all(_least(part, 1) <= width for part in parts):
            break
    return parts


def _least(columns: Sequence[_Column], padding: int) -> int:
    return _line([one.least_width for one in columns], padding)


def _line(widths: Sequence[int], padding: int) -> int:
    """Characters of a line of cells, with what is drawn around them."""
    return sum(widths) + (1 + 2 * padding) * len(widths) + 1


def _table(columns: Sequence[_Column], width: int, padding: int) -> Table:
    widths = [one.least_width for one in columns]
    # What is left is for those that lack the least: prose is read in lines, names are not.
    for place in sorted(range(len(columns)), key=lambda k: columns[k].width - widths[k]):
        spare = max(width - _line(widths, padding), 0)
        widths[place] += min(spare, columns[place].width - widths[place])
    table = Table(show_footer=columns[0].footer is not None, padding=(0, padding))
    for one, characters in zip(columns, widths, strict=True):
        table.add_column(
            one.heading,
            footer=one.footer or "",
            justify="right" if one.least_words is None else "left",
            overflow="fold",
            width=characters,
        )
    for cells in zip(*(one.cells for one in columns), strict=True):
        table.add_row(*cells)
    return table


class _Page(io.StringIO):
    """A text for standard output, which may be that of a terminal with few characters."""

    @property
    def encoding(self) -> str:
        return _encoding()


def _encoding() -> str:
    # What takes the place of standard output for a while may be a text, which has all characters.
    streams = sys.stdout, sys.__stdout__
    return next((found for one in streams if (found := getattr(one, "encoding", None))), "utf-8")


def printable(text: str) -> str:
    """A text without what the terminal would obey or cannot show, which is written as Python does.

    Args:
        text: A line of names that come from anywhere, such as a model of somebody else's.

    Example:

    >>> printable("a red \\x1b[31mname\\n")
    'a red \\\\x1b[31mname\\\\n'
    """
    encoding = _encoding()
    return legible(text).encode(encoding, "backslashreplace").decode(encoding)


def rendered(*parts: str | Text | PlainTable) -> str:
    """Paragraphs and tables as plain text, as wide as the terminal.

    Where standard output is no terminal, they are as wide as `COLUMNS` of the environment says,
    or 80 characters; they never have less. They are of the characters that it takes.

    Args:
        *parts: In their order. A `Text` stays on one line, whatever its length.
    """
    width = max(_LEAST_WIDTH, shutil.get_terminal_size((_LEAST_WIDTH, 0)).columns)
    text = _Page()
    # Names may have brackets and colons, which are no markup.
    console = Console(file=text, width=width, color_system=None, markup=False, emoji=False)
    for part in parts:
        if isinstance(part, PlainTable):
            console.print(printable(part.title), highlight=False)
            for table in part.drawn(width):
                console.print(table, highlight=False)
        else:
            line = part if isinstance(part, Text) else printable(part)
            console.print(line, highlight=False, soft_wrap=isinstance(part, Text))
    return text.getvalue()


def cost_table(title: str, rows: Sequence[Row], total_cycles: int) -> PlainTable:
    """A line for each row.

    Args:
        title: Above the table.
        rows: In their order.
        total_cycles: Of which the share of each row is shown.
    """
    names = ("name", "cycles", "share", "compute", "exchange", "sync", "MFLOP", "confidence")
    return PlainTable(
        title=title,
        columns=names,
        words=("confidence",),
        rows=tuple(
            (
                row.name,
                f"{row.cycles:,}",
                f"{row.cycles / max(total_cycles, 1):.1%}",
                f"{row.compute_cycles:,}",
                f"{row.exchange_cycles:,}",
                f"{row.sync_cycles:,}",
                f"{row.flops / 1e6:,.1f}",
                row.confidence,
            )
            for row in rows
        ),
    )


def layer_table(title: str, layers: Sequence[Layer], total_cycles: int) -> PlainTable:
    """A line for each layer: what it has, does, needs and takes.

    Args:
        title: Above the table.
        layers: In their order.
        total_cycles: Of which the share of each layer is shown.
    """
    has = ("name", "parameters", "MFLOP", "variables KiB", "at peak KiB")
    return PlainTable(
        title=title,
        columns=(*has, "cycles", "share", "confidence"),
        words=("confidence",),
        rows=tuple(
            (
                layer.name,
                f"{layer.parameters:,}",
                f"{layer.flops / 1e6:,.1f}",
                f"{layer.variable_bytes / 1024:,.1f}",
                f"{layer.peak_bytes / 1024:,.1f}",
                f"{layer.cycles:,}",
                f"{layer.cycles / max(total_cycles, 1):.1%}",
                layer.confidence,
            )
            for layer in layers
        ),
    )


def memory_table(always_live: Mapping[str, int], not_always_live: Mapping[str, int]) -> PlainTable:
    """A line for each category, and their sums.

    Args:
        always_live: Bytes over all tiles, by category.
        not_always_live: The same of what is in use some of the time.
    """
    sides = always_live, not_always_live
    return PlainTable(
        title="Memory of all tiles",
        columns=("category", "always live [bytes]", "not always live [bytes]"),
        rows=tuple(
            (
                category.replace("_", " "),
                *(f"{sizes[category]:,}" if category in sizes else "" for sizes in sides),
            )
            for category in {**always_live, **not_always_live}
        ),
        footer=("all", *(f"{sum(sizes.values()):,}" for sizes in sides)),
    )
