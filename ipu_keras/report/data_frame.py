"""Rows and other lines as data frames of pandas, which is imported only for this."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ipu_keras.report.libraries import needs_report_extra
from ipu_keras.report.rows import Row

if TYPE_CHECKING:
    import pandas

# Fields of a row and the columns that follow from its cycles, in the documented order.
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
# More columns, for programs with a pipeline or a weight update of its own.
_COLUMNS_OF_PARTS = ("stage", "phase")


def data_frame_of_lines(
    lines: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None
) -> "pandas.DataFrame":
    """Makes a data frame of lines, with these columns in order, or with all."""
    with needs_report_extra("A data frame"):
        import pandas
    return pandas.DataFrame(lines, columns=columns)


def data_frame(rows: Sequence[Row], clock_hz: float, total_cycles: int) -> "pandas.DataFrame":
    """Makes a data frame of rows, with the columns that `Report.to_dataframe` documents."""
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
