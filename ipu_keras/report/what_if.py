"""Reports of the same step under different choices, side by side."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from ipu_keras.report.report import Report
from ipu_keras.report.text import rendered
from ipu_keras.target import Target


@dataclass(frozen=True)
class Choice:
    """One combination of choices.

    Args:
        choices: By name; `batch_size` is always among them.
        report: What the step would cost.
    """

    choices: Mapping[str, Any]
    report: Report

    @property
    def num_ipus(self) -> int:
        """IPUs that share the layers."""
        return self.report.model.options.num_ipus

    @property
    def samples_per_second(self) -> float | None:
        """As the report's; `None` if the step takes no time."""
        return self.report.samples_per_second


@dataclass(frozen=True)
class WhatIf:
    """A table of choices.

    Args:
        rows: At least one, in the order of the choices.
    """

    rows: tuple[Choice, ...]

    @property
    def best(self) -> Choice | None:
        """The smallest choice that fits; `None` if none does.

        It has the fewest IPUs, and of these takes the least time per sample.
        """
        fitting = [row for row in self.rows if row.report.fits]

        def size_and_time(row: Choice) -> tuple[int, float]:
            return row.num_ipus, -(row.samples_per_second or math.inf)

        return min(fitting, key=size_and_time, default=None)

    def __str__(self) -> str:
        table = Table(title=f"What if: {self.rows[0].report.name}", title_justify="left")
        table.add_column("")
        for name in self.rows[0].choices:
            table.add_column(name.replace("_", " "), justify="right")
        for column in ("cycles per step", "samples/s", "fullest tile", "fits", "bound by"):
            table.add_column(column, justify="right")
        best = self.best
        for row in self.rows:
            report = row.report
            memory = report.model.memory
            table.add_row(
                "*" if row is best else "",
                *map(_text, row.choices.values()),
                f"{report.cycles_per_step:,}",
                "" if row.samples_per_second is None else f"{row.samples_per_second:,.0f}",
                f"{memory.max_tile_bytes / memory.tile_bytes:.1%}",
                "yes" if report.fits else "no",
                report.bound,
            )
        return rendered(table)


def _text(value: Any) -> str:
    return value.name if isinstance(value, Target) else str(value)
