"""What a program would cost on an IPU, as a value to look at and to compare."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipu_keras.cost.model import ModelledProgram
from ipu_keras.report.chrome_trace import chrome_trace
from ipu_keras.report.compared import compared
from ipu_keras.report.data_frame import data_frame
from ipu_keras.report.difference import Difference, difference
from ipu_keras.report.error_bands import error_bands
from ipu_keras.report.figures import Figures
from ipu_keras.report.next_steps import NextStep, next_steps
from ipu_keras.report.perfetto_trace import perfetto_trace
from ipu_keras.report.plain_report import plain_report
from ipu_keras.report.rows import row_of
from ipu_keras.report.summary import summary
from ipu_keras.report.timeline import timeline_of
from ipu_keras.store.atomic_files import write_atomically

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, kw_only=True)
class Report(Figures):
    """The modelled cost of one program on one target.

    `ipu_keras.profile`, `last_report` and `what_if` make reports; there is no need to make one
    by hand.

    Args:
        model: The program after all passes of the cost model.
        rows: The program's compute sets in the order of execution.
        error_bands: How far the model was from hardware.
        batch_size: Samples of one step on one replica; `None` if a step has no samples, or
            their number is unknown.
        recompilations: Why programs of this name were compiled again for the model or function,
            oldest first; empty for programs that did not run.
        executions: When this host executed the program, oldest first; empty for programs that did
            not run, and for functions, which TensorFlow runs itself.
        fixes: Changes that would help a program that does not fit, as `suggest_fixes` found
            them.
        note: What text and page begin with, as that inference is modelled because a model is
            not compiled; empty if there is nothing to note.

    Raises:
        ValueError: `batch_size` is not a positive integer.

    Example:

    >>> import tensorflow as tf
    >>> from ipu_keras import profile
    >>> report = profile(lambda x: x @ x, tf.TensorSpec((64, 64)))
    >>> report.fits, report.rows[0].family
    (True, 'dot')
    """

    @classmethod
    def of(cls, model: ModelledProgram, batch_size: int | None = None) -> "Report":
        """Makes the report of a finished model.

        Args:
            model: The program after all passes of the cost model.
            batch_size: Samples of one step on one replica, or `None` if it has none.
        """
        pairs = zip(model.program.compute_sets, model.costs, strict=True)
        count = model.options.gradient_accumulation_count
        rows = tuple(row_of(one, cost, count) for one, cost in pairs)
        return cls(model=model, rows=rows, error_bands=error_bands(), batch_size=batch_size)

    def to_dataframe(self, by: str = "layer", sort: str | None = "cycles") -> "pandas.DataFrame":
        """Returns the rows in groups, as a data frame of pandas.

        The columns are:

        - `name`, `family`, `layer`, `backward`, `confidence`, `detail`: the same as in `Row`.
        - `repeat`: how often the compute set runs in a step; 1 for groups.
        - `cycles`: tile cycles in a step, the sum of `compute_cycles`, `exchange_cycles` and
          `sync_cycles`.
        - `seconds`: the time of these cycles.
        - `share`: the part of the step's cycles, 0 to 1; copies between host and IPU do not
          count.
        - `flops`: floating point operations in a step.
        - `exchange_bytes`: bytes in a step for the tile that receives the most.
        - `temporary_bytes`: bytes that a tile needs only while the compute set runs; for a
          group, the largest number of its members.
        - `ipu`: the IPU that it runs on; for a group, that of its first member.
        - `stage` and `phase`, if the step has parts: the same as in `Row`.

        Args:
            by: What the rows of a group have in common, one of the keys that `by` takes.
            sort: The column to sort by, or `None`, as in `by`.

        Raises:
            ImportError: pandas is not installed.
            ValueError: `by` or `sort` is not one of those.
        """
        clock_hz = self.model.target.clock_hz
        return data_frame(self.by(by, sort), clock_hz, self.busy_cycles)

    def diff(self, other: "Report") -> Difference:
        """Returns what changes from this report to another one.

        Layers are compared by name. Keras numbers the names that it makes up, so layers of two
        models need names of their own to be compared.

        Args:
            other: The report after a change; this one is from before.

        Raises:
            TypeError: `other` is not a `Report`.

        Example:

        >>> import tensorflow as tf
        >>> from ipu_keras import profile
        >>> single, half = (
        ...     profile(lambda x: x @ x, tf.TensorSpec((512, 512), dtype))
        ...     for dtype in ("float32", "float16")
        ... )
        >>> single.diff(half).families["dot"].change < 0
        True
        """
        if not isinstance(other, Report):
            raise TypeError(
                "A report is compared with another `Report`, such as `profile` returns. "
                f"Received: other={other!r}, of type {type(other).__name__}"
            )
        return difference(compared(self), compared(other))

    @property
    def next_steps(self) -> tuple[NextStep, ...]:
        """What to do about the findings, the most urgent first, each with lines to write."""
        return next_steps(self)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values, in a fixed order."""
        return plain_report(self)

    def to_json(self) -> str:
        """Returns the report as JSON; equal programs, targets and options give equal text."""
        return json.dumps(self.to_dict(), indent=1)

    def to_chrome_trace(self) -> str:
        """Returns one step on a timeline, as JSON for chrome://tracing and Perfetto.

        For a pipeline, the timeline shows everything between two weight updates, bubbles
        included.

        Compute sets follow each other; each is split into synchronization, exchange and
        compute. Times are microseconds, memory is bytes over all tiles.
        """
        return json.dumps(chrome_trace(timeline_of(self)), indent=1)

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Writes one step on a timeline in Perfetto's own format, for https://ui.perfetto.dev.

        It shows the same as `to_chrome_trace`: a process for each IPU with tracks for host
        copies, layers and phases, and a counter of the memory in use, in bytes over all tiles.
        Times are nanoseconds. Equal reports make equal files.

        Args:
            path: The file to write, by custom ending in `.pftrace`; a file that exists is
                replaced.

        Raises:
            FileNotFoundError: The folder of the file does not exist.
            ImportError: The package `perfetto` is not installed.
        """
        write_atomically(Path(path), perfetto_trace(timeline_of(self)))

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as a page for a browser: one file, which loads nothing else.

        The page begins with whether the program fits, and what to do next. It shows the memory of
        each tile by category, what lies there while which compute set runs, bytes in use over
        time, the step on a timeline, the last executions on this host beside it if the program
        ran, the program as a tree, layers below their roofline, tables
        by layer, family and compute set, which compute set takes what of which other, where each
        number of the hardware comes from, and a glossary. Equal reports give equal pages.

        Args:
            path: The file to write; a file that exists is replaced.

        Raises:
            FileNotFoundError: The folder of the file does not exist.
            ImportError: The libraries of `pip install "ipu-keras[report]"` are missing.
        """
        # Importing it takes matplotlib and jinja2, which are an extra and slow to import.
        from ipu_keras.report import html

        write_atomically(Path(path), html.page(self).encode())

    def _repr_html_(self) -> str | None:
        """Returns what a notebook shows, or `None`, after which it shows the text."""
        try:
            from ipu_keras.report import html
        except ImportError:
            return None
        return html.notebook_cell(self)

    def __repr__(self) -> str:
        memory = self.model.memory
        return (
            f"<Report of {self.name!r} on {self.model.target.name}: {self.cycles_per_step:,} "
            f"cycles per step, {self.seconds_per_step * 1e3:.3f} ms; "
            f"{'fits' if self.fits else 'does not fit'}, {memory.max_tile_bytes:,} of "
            f"{memory.tile_bytes:,} bytes on the fullest tile>"
        )

    def __str__(self) -> str:
        return summary(self)
