"""Tables for a terminal."""

import io
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from ipu_keras.report.rows import Row

_WIDTH = 110


def rendered(*parts: str | Table) -> str:
    """Paragraphs and tables as plain text.

    Args:
        *parts: In their order.
    """
    text = io.StringIO()
    console = Console(file=text, width=_WIDTH, color_system=None)
    for part in parts:
        console.print(part, highlight=False)
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
