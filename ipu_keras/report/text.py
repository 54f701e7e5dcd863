"""Tables for a terminal: as wide as it is, and without a number broken in two."""

import io
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ipu_keras.settings.arguments import legible

# Characters in a line of a terminal; also where there is none, as in files and notebooks.
_LEAST_WIDTH = 80

# Wrapped cells have lines of at least so many characters: names, and other words.
_LEAST_NAME, _LEAST_WORDS = 20, 16


@dataclass(frozen=True, kw_only=True)
class PlainTable:
    """A table whose cells are texts, for a terminal or for a page.

    Where a terminal is too narrow, words and headings are wrapped. Numbers are not: the table
    is drawn without spaces around its cells, or as several tables that repeat the names.

    Args:
        columns: The headings, of which the first is that of the names.
        words: Headings of the columns, besides the first, whose cells are words; the cells of
            all others are numbers.
        footer: Cells below all others; empty for none.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ()
    footer: tuple[str, ...] = ()

    def drawn(self, width: int) -> Iterator[Table]:
        """Yields the tables that show it in `width` characters; none if it has no rows."""
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
        """Characters of the longest cell."""
        return max(map(cell_len, (self.heading, *self._values)))

    @property
    def least_width(self) -> int:
        """Characters of the longest cell after headings, and words, have been wrapped."""
        if self.least_words is not None:
            return min(self.width, self.least_words)
        return max(map(cell_len, (*self.heading.split(), *self._values)), default=0)

    @property
    def _values(self) -> tuple[str, ...]:
        return self.cells if self.footer is None else (*self.cells, self.footer)


def _drawn(name: _Column, others: Sequence[_Column], width: int) -> Iterator[Table]:
    """Yields one table if it fits, without spaces around its cells if needed, else several."""
    whole = [name, *others]
    for padding in (1, 0):
        if _least(whole, padding) <= width:
            yield _table(whole, width, padding)
            return
    for part in _parts(name, others, width):
        yield _table(part, width, 1)


def _parts(name: _Column, others: Sequence[_Column], width: int) -> list[list[_Column]]:
    """Returns as few groups of columns as fit, of similar size, each after the names."""
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
    """Returns the characters of a line of cells, with the lines drawn around them."""
    return sum(widths) + (1 + 2 * padding) * len(widths) + 1


def _table(columns: Sequence[_Column], width: int, padding: int) -> Table:
    widths = [one.least_width for one in columns]
    # Spare characters go to the columns that lack the fewest: prose reads well when wrapped,
    # names do not.
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
    """A text for standard output, which may be a terminal with few characters."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of standard output; rich draws boxes in ASCII if it has no others."""
        return _encoding()


def _encoding() -> str:
    # Standard output may be redirected to a `StringIO`, which has no encoding and takes everything.
    streams = sys.stdout, sys.__stdout__
    return next((found for one in streams if (found := getattr(one, "encoding", None))), "utf-8")


def printable(text: str) -> str:
    """Escapes what a terminal would obey or cannot show, in the way that Python writes it.

    Args:
        text: A line of names that come from anywhere, such as a model of somebody else's.

    Example:

    >>> printable("a red \\x1b[31mname\\n")
    'a red \\\\x1b[31mname\\\\n'
    """
    encoding = _encoding()
    return legible(text).encode(encoding, "backslashreplace").decode(encoding)


def rendered(*parts: str | Text | PlainTable) -> str:
    """Returns paragraphs and tables as plain text, as wide as the terminal.

    Where standard output is no terminal, the text is as wide as `COLUMNS` of the environment
    says, or 80 characters; it is never narrower. It has only characters that standard output
    takes.

    Args:
        *parts: Paragraphs and tables in order; a `Text` stays on one line, whatever its length.
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
