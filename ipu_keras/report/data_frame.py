"""Rows and other lines as data frames of pandas."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ipu_keras.report.libraries import needs_report_extra
from ipu_keras.report.rows import Row

if TYPE_CHECKING:
    import pandas

# Fields of a row, and what follows from its cycles.
_COLUMNS = (
    "name",
    "family",
    "layer",
    "backward",
    "repeat",
    "cycles",
    "compute_cycles",
    "exchange_cycles",
    "sync_cycles",
    "seconds",
    "share",
    "flops",
    "exchange_bytes",
    "temporary_bytes",
    "confidence",
    "detail",
    "ipu",
)
# Of programs whose steps have parts.
_COLUMNS_OF_PARTS = ("stage", "phase")


def data_frame_of_lines(
    lines: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None
) -> "pandas.DataFrame":
    """Lines in their order.

    Args:
        lines: Values by name.
        columns: The names that are shown; all by default.

    Raises:
        ImportError: pandas is not installed.
    """
    with needs_report_extra("A data frame"):
        import pandas
    return pandas.DataFrame(lines, columns=columns)


def data_frame(rows: Sequence[Row], clock_hz: float, total_cycles: int) -> "pandas.DataFrame":
    """A line for each row.

    Args:
        rows: In their order.
        clock_hz: Tile cycles per second.
        total_cycles: Of which the share of each row is.

    Returns:
        Columns are documented at `Report.to_dataframe`.

    Raises:
        ImportError: pandas is not installed.
    """
    lines = (
        {
            **vars(row),
            "cycles": row.cycles,
            "phase": row.phase,
            "seconds": row.cycles / clock_hz,
            "share": row.cycles / max(total_cycles, 1),
        }
        for row in rows
    )
    has_parts = any(row.stage is not None or row.weight_update for row in rows)
    return data_frame_of_lines(lines, [*_COLUMNS, *(_COLUMNS_OF_PARTS if has_parts else ())])
