"""What a program would cost on an IPU, as a value to look at and to compare."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from ipu_keras.atomic_files import write_atomically
from ipu_keras.compiler.memory import alive_on_worst_tile
from ipu_keras.compiler.modelling import Model
from ipu_keras.compiler.pipeline_placement import work_of_part
from ipu_keras.compiler.pipeline_timing import PipelineTiming
from ipu_keras.ir import NOT_LOWERED
from ipu_keras.recompilation import Recompilation
from ipu_keras.report import notebook
from ipu_keras.report.chrome_trace import chrome_trace
from ipu_keras.report.data_frame import data_frame
from ipu_keras.report.difference import Difference, Figures, difference
from ipu_keras.report.error_bands import error_bands
from ipu_keras.report.fixes import Fix, fixes_table
from ipu_keras.report.io_tiles_sentence import io_tiles_sentence
from ipu_keras.report.perfetto_trace import perfetto_trace
from ipu_keras.report.pipeline_view import PipelineView, pipeline_view, stage_table
from ipu_keras.report.plain_options import plain_options
from ipu_keras.report.rows import Row, arranged, row_of
from ipu_keras.report.text import cost_table, memory_table, rendered
from ipu_keras.report.timeline import IpuTimeline, Timeline, ipu_timeline, pipeline_timeline
from ipu_keras.target import SOURCES

if TYPE_CHECKING:
    import pandas

# Of the JSON form; raised when a reader of the last one could go wrong.
SCHEMA_VERSION = 2

# Layers that the text shows.
_NUM_LAYERS = 15


@dataclass(frozen=True, kw_only=True)
class Report:
    """The modelled cost of one program on one target.

    Args:
        model: The program as the compiler's passes left it.
        rows: Its compute sets in the order of execution.
        error_bands: Median and largest error of the model on hardware
            measurements, by class of measurement.
        batch_size: Samples of one step on one replica; `None` if it has none, or nobody
            knows.
        recompilations: Of programs that ran: why those of this name were compiled
            again for the model or function, oldest first.
        fixes: What would help a program that does not fit, as `suggest_fixes` found.

    Raises:
        ValueError: `batch_size` is not a positive integer.

    Example:

    >>> import tensorflow as tf
    >>> from ipu_keras import profile
    >>> report = profile(lambda x: x @ x, tf.TensorSpec((64, 64)))
    >>> report.fits, report.rows[0].family
    (True, 'dot')
    """

    model: Model = field(repr=False)
    rows: tuple[Row, ...]
    error_bands: Mapping[str, Mapping[str, Any]]
    batch_size: int | None = None
    recompilations: tuple[Recompilation, ...] = ()
    fixes: tuple[Fix, ...] = ()

    def __post_init__(self) -> None:
        size = self.batch_size
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(
                "`batch_size` must be a positive integer, or None for steps without samples. "
                f"Received: batch_size={size!r}"
            )

    @classmethod
    def of(cls, model: Model, batch_size: int | None = None) -> "Report":
        """The report of a finished model.

        Args:
            model: After all passes.
            batch_size: Samples of one step on one replica, if it has any.
        """
        pairs = zip(model.program.compute_sets, model.costs, strict=True)
        count = model.options.gradient_accumulation_count
        rows = tuple(row_of(one, cost, count) for one, cost in pairs)
        return cls(model=model, rows=rows, error_bands=error_bands(), batch_size=batch_size)

    @property
    def name(self) -> str:
        """Of the program."""
        return self.model.name

    @property
    def compute_cycles(self) -> int:
        """Tile cycles of one step, without copies between host and IPU.

        A step is one batch on each replica. If weights are updated after several steps, each
        has an equal share of the update.
        """
        return self.model.compute_cycles

    @property
    def busy_cycles(self) -> int:
        """Tile cycles of all `rows`: of all IPUs of a pipeline, which work at the same time."""
        return sum(row.cycles for row in self.rows)

    @cached_property
    def pipeline_timing(self) -> PipelineTiming | None:
        """When each IPU of a pipeline does what; `None` without one."""
        run = self.model.pipeline_run
        return None if run is None else run.timing()

    @property
    def pipeline(self) -> PipelineView | None:
        """Stages, bubbles and phases of a pipeline; `None` without one."""
        run, timing = self.model.pipeline_run, self.pipeline_timing
        return None if run is None or timing is None else pipeline_view(run, timing)

    @property
    def host_cycles(self) -> int:
        """Tile cycles of one step in which data moves between host and IPU.

        Without those that are hidden: with tiles for input and output, most of it moves while
        the others compute.
        """
        return self.model.host_cycles

    @property
    def cycles_per_step(self) -> int:
        """Tile cycles of one step."""
        return self.model.cycles_per_step

    @property
    def seconds_per_step(self) -> float:
        """Time of one step."""
        return self.cycles_per_step / self.model.target.clock_hz

    @property
    def cycles_per_execution(self) -> int:
        """Tile cycles of `steps_per_execution` steps."""
        return self.cycles_per_step * self.model.options.steps_per_execution

    @property
    def seconds_per_execution(self) -> float:
        """Time of `steps_per_execution` steps."""
        return self.cycles_per_execution / self.model.target.clock_hz

    @property
    def samples_per_second(self) -> float | None:
        """Samples of all replicas by time.

        `None` without a batch size, or if a step takes no time.
        """
        if self.batch_size is None or self.cycles_per_step == 0:
            return None
        return self.batch_size * self.model.options.num_replicas / self.seconds_per_step

    @property
    def flops_per_step(self) -> int:
        """Floating point operations of one step, on all replicas."""
        return sum(row.flops for row in self.rows) * self.model.options.num_replicas

    @property
    def peak_flops(self) -> float:
        """Floating point operations of float16 that all IPUs do in a second, at most."""
        target, options = self.model.target, self.model.options
        num_ipus = options.ipus_per_replica * options.num_replicas
        return max(target.amp_flops.values()) * target.num_tiles * target.clock_hz * num_ipus

    @property
    def utilisation(self) -> float:
        """Share of `peak_flops` that the step's operations reach; 0 if a step takes no time."""
        if self.cycles_per_step == 0:
            return 0.0
        return self.flops_per_step / (self.seconds_per_step * self.peak_flops)

    @property
    def bound(self) -> str:
        """What takes the larger part of a step: `"ipu"` or `"host"`."""
        host = self.host_cycles + self.model.hidden_host_cycles
        return "host" if host > self.compute_cycles else "ipu"

    @property
    def guessed_share(self) -> float:
        """Share of the IPU's cycles that rest on guesses."""
        guessed = sum(row.cycles for row in self.rows if row.confidence == "guessed")
        return guessed / max(self.busy_cycles, 1)

    @property
    def not_lowered(self) -> tuple[str, ...]:
        """TensorFlow's operations that XLA lacks: what they cost is guessed from their tensors."""
        ops = self.model.graph.walk()
        return tuple(sorted({op.kind for op in ops if NOT_LOWERED in op.attributes}))

    @property
    def fits(self) -> bool:
        """Whether the program fits into the memory of every tile of every IPU."""
        return self.model.memory.fits

    @property
    def memory_by_tile(self) -> np.ndarray:
        """`(num_tiles,)` int64: bytes on each tile when it is fullest. Read-only."""
        return _read_only(self.model.memory.peak_by_tile)

    @property
    def liveness(self) -> np.ndarray:
        """`(compute sets,)` int64: bytes over all tiles while each of `rows` runs. Read-only.

        What is always live is not among them: see `always_live_bytes`. A program
        that computes nothing has one position.
        """
        return _read_only(self.model.memory.live_by_position)

    @property
    def always_live_bytes(self) -> int:
        """Bytes over all tiles that are in use all the time."""
        return int(self.model.memory.always_live_by_tile.sum())

    def by(self, key: str, sort: str | None = "cycles") -> tuple[Row, ...]:
        """The rows in groups, those with the most cycles first.

        Args:
            key: `"layer"`, `"family"`, `"backward"`, `"confidence"`, `"stage"` or
                `"phase"` (forward, backward, weight update); `"op"` for the rows themselves.
            sort: What else comes first if there is most of it: `"compute_cycles"`,
                `"exchange_cycles"`, `"sync_cycles"`, `"flops"`, `"exchange_bytes"`,
                `"temporary_bytes"` or `"repeat"`. `"name"` sorts by letters,
                `None` leaves the order of execution.

        Raises:
            ValueError: Another key or column.
        """
        return arranged(self.rows, key, sort)

    def to_dataframe(self, by: str = "layer", sort: str | None = "cycles") -> "pandas.DataFrame":
        """The rows in groups, as a data frame of pandas.

        Its columns:

        - `name`, `family`, `layer`, `backward`, `confidence`, `detail`: as of `Row`.
        - `repeat`: how often it runs in a step; 1 for groups.
        - `cycles`: tile cycles in a step, the sum of `compute_cycles`,
          `exchange_cycles` and `sync_cycles`.
        - `seconds`: the time of these cycles.
        - `share`: of the step's cycles without copies between host and IPU, 0 to 1.
        - `flops`: floating point operations in a step.
        - `exchange_bytes`: bytes in a step for the tile that receives the most.
        - `temporary_bytes`: bytes that a tile needs only while it runs; of a
          group, the most.
        - `ipu`: where it runs; of a group, where its first member does.
        - `stage` and `phase`, if the step has parts: as of `Row`.

        Args:
            by: As `key` of `by`.
            sort: As for `by`.

        Raises:
            ImportError: pandas is not installed.
            ValueError: As for `by`.
        """
        clock_hz = self.model.target.clock_hz
        return data_frame(self.by(by, sort), clock_hz, self.busy_cycles)

    def diff(self, other: "Report") -> Difference:
        """What changes from this report to another one.

        Layers are compared by name. Keras numbers the names that it makes up, so
        layers of two models need names of their own to be compared.

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
        return difference(self._figures(), other._figures())

    def _figures(self) -> Figures:
        target, memory = self.model.target, self.model.memory
        numbers = {f"target.{name}": getattr(target, name) for name in target.provenance}
        totals = {
            "cycles_per_step": self.cycles_per_step,
            "compute_cycles": self.compute_cycles,
            "host_cycles": self.host_cycles,
            "cycles_per_execution": self.cycles_per_execution,
            "seconds_per_step": self.seconds_per_step,
            "seconds_per_execution": self.seconds_per_execution,
            "flops_per_step": self.flops_per_step,
            "utilisation": self.utilisation,
            "guessed_share": self.guessed_share,
            "max_tile_bytes": memory.max_tile_bytes,
            "total_bytes": memory.total_bytes,
        }
        if self.samples_per_second is not None:
            totals["samples_per_second"] = self.samples_per_second
        return Figures(
            name=f"{self.name} on {target.name}",
            settings={
                "program": self.name,
                "batch_size": self.batch_size,
                **plain_options(self.model.options),
                "target": target.name,
                **numbers,
            },
            totals=totals,
            layers={row.name: row.cycles for row in self.by("layer")},
            families={row.name: row.cycles for row in self.by("family")},
            memory=memory.bytes_by_category,
        )

    def layers_of_worst_tile(self) -> tuple[tuple[str, int], ...]:
        """Layers and bytes of their values on the fullest tile at its fullest, largest first.

        A variable is one of the first layer that uses it, or of the optimizer.
        """
        model = self.model
        layers: dict[str, str] = {}
        for one in model.program.compute_sets:
            layers.update((value.name, one.layer) for value in one.writes)
            if one.layer:  # the first to use a variable has it
                for name in one.reads:
                    if model.program.values[name].role == "variable":
                        layers.setdefault(name, one.layer)
        sizes: Counter[str] = Counter()
        for name, size in alive_on_worst_tile(model.program, model.regions, model.memory):
            owner = "variables" if model.program.values[name].role == "variable" else "the infeed"
            sizes[layers.get(name, owner) or "(no layer)"] += size
        return tuple(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, in a fixed order."""
        model, memory = self.model, self.model.memory
        return {
            "schema": SCHEMA_VERSION,
            "name": self.name,
            "target": _target_dict(model.target),
            "options": plain_options(model.options),
            "cycles": {
                "per_step": self.cycles_per_step,
                "per_execution": self.cycles_per_execution,
                "ipu": self.compute_cycles,
                "host": self.host_cycles,
                **({"hidden_host": model.hidden_host_cycles} if model.io_tile_bytes else {}),
            },
            "seconds_per_step": self.seconds_per_step,
            "seconds_per_execution": self.seconds_per_execution,
            "batch_size": self.batch_size,
            "samples_per_second": self.samples_per_second,
            "flops_per_step": self.flops_per_step,
            "peak_flops": self.peak_flops,
            "utilisation": self.utilisation,
            "bound": self.bound,
            "guessed_share": self.guessed_share,
            "unknown_loops": model.program.num_unknown_loops,
            "not_lowered": list(self.not_lowered),
            "recompilations": [list(one.reasons) for one in self.recompilations],
            "memory": {
                "fits": memory.fits,
                "tile_bytes": memory.tile_bytes,
                "max_tile_bytes": memory.max_tile_bytes,
                "worst_tile": memory.worst_tile,
                "worst_ipu": memory.worst_ipu,
                "worst_tile_by_region": memory.bytes_by_region,
                "total_bytes": memory.total_bytes,
                "always_live_by_category": memory.always_live_by_category,
                "not_always_live_by_category": memory.not_always_live_by_category,
                "peak_by_tile": _plain(memory.peak_by_tile),
                "live_by_position": _plain(memory.live_by_position),
            },
            "fixes": [asdict(fix) for fix in self.fixes],
            "error_bands": {name: dict(band) for name, band in self.error_bands.items()},
            "rows": [self._plain_row(row) for row in self.rows],
            **({} if self.pipeline is None else {"pipeline": self.pipeline.to_dict()}),
        }

    def _plain_row(self, row: Row) -> dict[str, Any]:
        plain = {**asdict(row), "cycles": row.cycles}
        if not self.model.options.has_parts:
            del plain["stage"], plain["weight_update"]
        return plain

    def to_json(self) -> str:
        """The report as JSON: equal text for equal programs, targets and options."""
        return json.dumps(self.to_dict(), indent=1)

    def to_chrome_trace(self) -> str:
        """One step on a timeline, in the JSON form that chrome://tracing and Perfetto read.

        Of a pipeline, all that happens between two weight updates, with its bubbles.

        Compute sets follow each other; each is split into synchronization, exchange
        and compute. Times are microseconds, memory is bytes over all tiles.
        """
        return json.dumps(chrome_trace(self._timeline()), indent=1)

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Writes one step on a timeline as Perfetto's own format, for https://ui.perfetto.dev.

        It shows what `to_chrome_trace` does: a process for each IPU with tracks for
        host copies, layers and phases, and a counter of the memory in use, in
        bytes over all tiles. Times are nanoseconds. Equal reports make equal files.

        Args:
            path: Of the file, by custom ending in `.pftrace`; one that exists is
                replaced.

        Raises:
            FileNotFoundError: There is no such folder.
            ImportError: The package `perfetto` is not installed.
        """
        write_atomically(Path(path), perfetto_trace(self._timeline()))

    def _timeline(self) -> Timeline:
        target, memory = self.model.target, self.model.memory
        always_live = memory.always_live_by_tile.reshape(memory.num_ipus, -1).sum(axis=1)
        ipus = tuple(
            self._ipu_timeline(ipu, memory.live_by_ipu[ipu] + always_live[ipu])
            for ipu in range(memory.num_ipus)
        )
        return Timeline(clock_hz=target.clock_hz, ipus=ipus)

    def _ipu_timeline(self, ipu: int, live: np.ndarray) -> IpuTimeline:
        name, timing = f"IPU {ipu} ({self.model.target.name})", self.pipeline_timing
        run = self.model.pipeline_run
        if run is None or timing is None:
            host = self.host_cycles
            return ipu_timeline(name, self.rows, ipu=ipu, host_cycles=host, live_bytes=live)
        by_part: dict[Any, int] = {}
        for one, num_bytes in zip(self.model.program.compute_sets, live, strict=False):
            part = work_of_part(one, ipu)
            if one.ipu == ipu:
                by_part[part] = max(by_part.get(part, 0), int(num_bytes))
        host = self.host_cycles * run.plan.num_micro_batches
        return pipeline_timeline(name, timing, ipu=ipu, host_cycles=host, live_bytes=by_part)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as a page for a browser: one file, which loads nothing else.

        It shows the memory of each tile, bytes in use over time, the step on a
        timeline, tables by layer, family and compute set, and where each number of
        the hardware comes from. Equal reports give equal pages.

        Args:
            path: Of the file, which is replaced if it is there.

        Raises:
            FileNotFoundError: There is no such folder.
            ImportError: The libraries of `pip install "ipu-keras[report]"` are missing.
        """
        from ipu_keras.report import html

        write_atomically(Path(path), html.page(self).encode())

    def _repr_html_(self) -> str | None:
        """What a notebook shows; without the libraries that `to_html` needs, it shows the text."""
        return notebook.cell(lambda html: html.notebook_cell(self))

    @property
    def memory_error(self) -> str | None:
        """What the IPU's compiler would say if the program does not fit; `None` if it does."""
        memory = self.model.memory
        if memory.fits:
            return None
        if not memory.code_fits:
            return (
                f"tile {memory.worst_tile} _poplar_start must be 0 not {memory.tile_bytes} bytes "
                "from the start of memory. Typically this error occurs when there is too much code "
                f"to fit incode memory. : {memory.code_bytes} bytes of code, but tiles can read "
                f"instructions from {memory.code_region_bytes} bytes only"
            )
        return (
            f"Memory allocation error : Out of memory on tile {memory.worst_tile}: "
            f"{memory.max_tile_bytes} bytes used but tiles only have {memory.tile_bytes} bytes "
            "of memory"
        )

    def __repr__(self) -> str:
        memory = self.model.memory
        return (
            f"<Report of {self.name!r} on {self.model.target.name}: {self.cycles_per_step:,} "
            f"cycles per step, {self.seconds_per_step * 1e3:.3f} ms; "
            f"{'fits' if self.fits else 'does not fit'}, {memory.max_tile_bytes:,} of "
            f"{memory.tile_bytes:,} bytes on the fullest tile>"
        )

    def __str__(self) -> str:
        layers, families, memory = self.by("layer"), self.by("family"), self.model.memory
        return rendered(
            *self._summary(),
            *([fixes_table(self.fixes)] if self.fixes else []),
            *([] if self.pipeline is None else [stage_table(self.pipeline.stages)]),
            cost_table(f"Layers ({len(layers)})", layers[:_NUM_LAYERS], self.busy_cycles),
            cost_table("Families", families, self.busy_cycles),
            memory_table(memory.always_live_by_category, memory.not_always_live_by_category),
        )

    def _summary(self) -> Iterator[str | Text]:
        model, memory = self.model, self.model.memory
        yield (
            f"{self.name} on {model.target.name}: {self.cycles_per_step:,} cycles per step, "
            f"{self.seconds_per_step * 1e3:.3f} ms, bound by the {self.bound}"
        )
        yield from self._pace()
        yield (
            f"{self.flops_per_step / 1e9:.3f} GFLOP per step, {self.utilisation:.1%} of the peak; "
            f"{self.guessed_share:.0%} of the cycles are guessed"
        )
        if self.memory_error is None:
            yield (
                f"It fits: {memory.max_tile_bytes:,} of {memory.tile_bytes:,} bytes on tile "
                f"{memory.worst_tile}"
            )
        else:
            # On one line, as scripts look for the IPU's own text.
            yield Text(self.memory_error)
        regions = ", ".join(f"{name} {size:,}" for name, size in self.bytes_by_region.items())
        yield f"Regions of that tile: {regions}"
        yield from self.remarks
        measured = [f"{name} {b['median_error']:.0%}" for name, b in self.error_bands.items()]
        yield f"Median error of the model on measurements of IPUs: {', '.join(measured)}"

    @property
    def bytes_by_region(self) -> dict[str, int]:
        """Bytes on the fullest tile by region of its memory, in words."""
        regions = self.model.memory.bytes_by_region.items()
        return {name.replace("_", "-"): size for name, size in regions}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know about the figures besides, a sentence each without a full stop."""
        return tuple(self._remarks())

    def _remarks(self) -> Iterator[str]:
        model, memory = self.model, self.model.memory
        if memory.num_ipus > 1:
            tile = memory.worst_tile % model.target.num_tiles
            pipelined = model.pipeline_run is not None
            yield (
                f"The fullest tile is tile {tile} of IPU {memory.worst_ipu} of {memory.num_ipus}"
                f"{'' if pipelined else ', which share the layers; one computes at a time'}"
            )
        if self.pipeline is not None:
            yield str(self.pipeline)
        if model.options.num_io_tiles:
            yield io_tiles_sentence(model)
        if not memory.code_fits:
            yield "Bytes of code are a guess of the model: no sizes of code are published"
        if model.program.remote_bytes:
            yield f"{model.program.remote_bytes:,} bytes lie in remote memory"
        loops = model.program.num_unknown_loops
        if loops:
            yield f"{loops} loops whose trips depend on data count with their bound, or once"
        if self.not_lowered:
            yield f"Guessed, because XLA lacks them: {', '.join(self.not_lowered)}"
        if self.recompilations:
            number, last = len(self.recompilations), self.recompilations[-1]
            times = "once" if number == 1 else f"{number} times"
            yield f"Compiled again {times}, last because {'; '.join(last.reasons)}"

    def _pace(self) -> Iterator[str]:
        """Lines on samples and executions, if there is something to say."""
        if self.samples_per_second is not None:
            replicas = self.model.options.num_replicas
            each = f" on each of {replicas} replicas" if replicas > 1 else ""
            yield f"{self.samples_per_second:,.0f} samples/s, {self.batch_size:,} in a step{each}"
        count = self.model.options.gradient_accumulation_count
        if count > 1:
            cycles = self.cycles_per_step * count
            yield f"Weights are updated after {count:,} steps, {cycles:,} cycles"
        steps = self.model.options.steps_per_execution
        if steps > 1:
            yield (
                f"An execution of {steps:,} steps takes {self.cycles_per_execution:,} cycles, "
                f"{self.seconds_per_execution * 1e3:.3f} ms"
            )


def _target_dict(target) -> dict[str, Any]:
    numbers = {name: _number(getattr(target, name)) for name in target.provenance}
    sources = {
        name: [SOURCES[p.source], p.confidence.value] for name, p in target.provenance.items()
    }
    return {"name": target.name, "numbers": numbers, "sources": sources}


def _number(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {"/".join(key): number for key, number in value.items()}
    return value


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _plain(array: np.ndarray) -> list[int]:
    return [int(number) for number in array]
