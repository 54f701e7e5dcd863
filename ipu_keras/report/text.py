"""Tables for a terminal."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from ipu_keras.report.layers import Layer
from ipu_keras.report.rows import Row

_WIDTH = 110


@dataclass(frozen=True, kw_only=True)
class PlainTable:
    """A table whose cells are texts, for a terminal or for a page.

    Args:
        title: Above it.
        columns: Their headings.
        rows: The cells of each, of which the first one is its name.
        justify: Where cells are in the other columns.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    justify: JustifyMethod = "right"

    def parts(self) -> Iterator[str | Table]:
        """For `rendered`: the title, and the table unless it is empty."""
        yield self.title
        if self.rows:
            table = Table()
            name, *others = self.columns
            table.add_column(name, overflow="fold")
            for column in others:
                table.add_column(column, justify=self.justify)
            for row in self.rows:
                table.add_row(*row)
            yield table


def rendered(*parts: str | Text | Table) -> str:
    """Paragraphs and tables as plain text.

    Args:
        *parts: In their order. A `Text` stays on one line, whatever its length.
    """
    text = io.StringIO()
    # Names may have brackets and colons, which are no markup.
    console = Console(file=text, width=_WIDTH, color_system=None, markup=False, emoji=False)
    for part in parts:
        console.print(part, highlight=False, soft_wrap=isinstance(part, Text))
    return text.getvalue()


def cost_table(title: str, rows: Sequence[Row], total_cycles: int) -> Table:
    """A line for each row.

    Args:
        title: Above the table.
        rows: In their order.
        total_cycles: Of which the share of each row is shown.
    """
    table = Table(title=title, title_justify="left")
    table.add_column("name", overflow="fold")
    for column in ("cycles", "share", "compute", "exchange", "sync", "MFLOP"):
        table.add_column(column, justify="right")
    table.add_column("confidence")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.cycles:,}",
            f"{row.cycles / max(total_cycles, 1):.1%}",
            f"{row.compute_cycles:,}",
            f"{row.exchange_cycles:,}",
            f"{row.sync_cycles:,}",
            f"{row.flops / 1e6:,.1f}",
            row.confidence,
        )
    return table


def layer_table(title: str, layers: Sequence[Layer], total_cycles: int) -> Table:
    """A line for each layer: what it has, does, needs and takes.

    Args:
        title: Above the table.
        layers: In their order.
        total_cycles: Of which the share of each layer is shown.
    """
    table = Table(title=title, title_justify="left")
    table.add_column("name", overflow="fold")
    headings = ("parameters", "MFLOP", "variables KiB", "at peak KiB", "cycles", "share")
    for column in headings:
        table.add_column(column, justify="right")
    table.add_column("confidence")
    for layer in layers:
        table.add_row(
            layer.name,
            f"{layer.parameters:,}",
            f"{layer.flops / 1e6:,.1f}",
            f"{layer.variable_bytes / 1024:,.1f}",
            f"{layer.peak_bytes / 1024:,.1f}",
            f"{layer.cycles:,}",
            f"{layer.cycles / max(total_cycles, 1):.1%}",
            layer.confidence,
        )
    return table


def memory_table(always_live: Mapping[str, int], not_always_live: Mapping[str, int]) -> Table:
    """A line for each category, and their sums.

    Args:
        always_live: Bytes over all tiles, by category.
        not_always_live: The same of what is in use some of the time.
    """
    table = Table(title="Memory of all tiles", title_justify="left", show_footer=True)
    table.add_column("category", footer="all")
    sides = always_live, not_always_live
    for title, sizes in zip(("always live", "not always live"), sides, strict=True):
        table.add_column(f"{title} [bytes]", f"{sum(sizes.values()):,}", justify="right")
    for category in {**always_live, **not_always_live}:
        cells = (f"{sizes[category]:,}" if category in sizes else "" for sizes in sides)
        table.add_row(category.replace("_", " "), *cells)
    return table
