"""Reports of the same step under different choices, side by side."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ipu_keras.advice.choices import smallest_that_fits
from ipu_keras.machine.target import Target
from ipu_keras.report.data_frame import data_frame_of_lines
from ipu_keras.report.figures_in_words import bound_in_words
from ipu_keras.report.notebook import tables_cell
from ipu_keras.report.options_in_words import choice_in_words
from ipu_keras.report.report import Report
from ipu_keras.report.text import PlainTable, rendered

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Choice:
    """One combination of choices.

    Args:
        choices: What was chosen, by name; `batch_size` is always among them.
        report: The report of the step under these choices.
    """

    choices: Mapping[str, Any]
    report: Report

    @property
    def num_ipus(self) -> int:
        """The number of IPUs of all replicas together."""
        return self.report.num_ipus

    @property
    def fits(self) -> bool:
        """Whether the program fits into the memory of every tile."""
        return self.report.fits

    @property
    def samples_per_second(self) -> float | None:
        """Samples of all replicas in a second; `None` if the step takes no time."""
        return self.report.samples_per_second


@dataclass(frozen=True)
class WhatIf:
    """A table of choices, as `ipu_keras.what_if` makes it.

    Args:
        rows: One or more combinations, in the order of the choices.
    """

    rows: tuple[Choice, ...]

    @property
    def best(self) -> Choice | None:
        """The smallest choice that fits; `None` if none does.

        It has the fewest IPUs and, among those with as many, takes the least time per sample.
        """
        return smallest_that_fits(self.rows)

    def to_dataframe(self) -> "pandas.DataFrame":
        """Returns the choices as a data frame of pandas, a line each, in their order.

        The columns are:

        - the choices by name; for a `Target`, its name.
        - `cycles_per_step`, `seconds_per_step`, `samples_per_second`, `fits` and `bound`: the
          same as in `Report`.
        - `max_tile_bytes` and `tile_bytes`: bytes on the fullest tile, and the bytes that a
          tile has.
        - `is_best`: whether the choice is `best`.

        Raises:
            ImportError: pandas is not installed.
        """
        best = self.best
        lines = (
            {
                **{name: _plain(value) for name, value in row.choices.items()},
                "cycles_per_step": row.report.cycles_per_step,
                "seconds_per_step": row.report.seconds_per_step,
                "samples_per_second": row.samples_per_second,
                "max_tile_bytes": row.report.model.memory.max_tile_bytes,
                "tile_bytes": row.report.model.memory.tile_bytes,
                "fits": row.fits,
                "bound": row.report.bound,
                "is_best": row is best,
            }
            for row in self.rows
        )
        return data_frame_of_lines(lines)

    def __str__(self) -> str:
        return rendered(self._table())

    def __repr__(self) -> str:
        num_fitting = sum(row.fits for row in self.rows)
        best, found = self.best, ""
        if best is not None:
            choices = ", ".join(f"{name}={_plain(value)}" for name, value in best.choices.items())
            found = f"; best is {choices} with {best.report.cycles_per_step:,} cycles per step"
        return (
            f"<WhatIf of {self.rows[0].report.name!r} on {self._targets()}: "
            f"{len(self.rows)} choices, {num_fitting} of which fit{found}>"
        )

    def _repr_html_(self) -> str | None:
        """Returns what a notebook shows, or `None`, after which it shows the text."""
        title = f"{self.rows[0].report.name} on {self._targets()}"
        return tables_cell(title, (self._table(),))

    def _targets(self) -> str:
        return ", ".join(dict.fromkeys(row.report.model.target.name for row in self.rows))

    def _table(self) -> PlainTable:
        choices = (name.replace("_", " ") for name in self.rows[0].choices)
        figures = ("cycles per step", "samples/s", "fullest tile", "fits", "bound by")
        return PlainTable(
            title=f"What if: {self.rows[0].report.name}",
            columns=("row", *choices, *figures),
            rows=tuple(self._cells()),
        )

    def _cells(self) -> Iterator[tuple[str, ...]]:
        best = self.best
        for number, row in enumerate(self.rows):
            report = row.report
            memory = report.model.memory
            yield (
                f"{number} *" if row is best else str(number),
                *(choice_in_words(name, value) for name, value in row.choices.items()),
                f"{report.cycles_per_step:,}",
                "" if row.samples_per_second is None else f"{row.samples_per_second:,.0f}",
                f"{memory.max_tile_bytes / memory.tile_bytes:.1%}",
                "yes" if row.fits else "no",
                bound_in_words(report),
            )


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, Target) else value
