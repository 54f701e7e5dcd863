"""The numbers that follow from a modelled program."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ipu_keras.advice.changes import Fix
from ipu_keras.cost.flat.memory import MemoryPlan
from ipu_keras.cost.model import ModelledProgram
from ipu_keras.cost.pipeline.timing import PipelineTiming
from ipu_keras.ir import NOT_LOWERED, UNKNOWN, family_of
from ipu_keras.program.compilation_history import Recompilation
from ipu_keras.program.executions import Execution
from ipu_keras.report.error_bands import ErrorBands
from ipu_keras.report.layers import Layer, layers_of, layers_of_worst_tile
from ipu_keras.report.pipeline_view import PipelineView, pipeline_view
from ipu_keras.report.remarks import remarks
from ipu_keras.report.rows import Row, arranged


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A modelled program and the figures that follow from it.

    Users see the subclass `Report`, whose docstring describes the fields. The figures are apart
    from it so that the modules that draw and write them need not import `Report`, which calls
    them.
    """

    model: ModelledProgram = field(repr=False)
    rows: tuple[Row, ...]
    error_bands: ErrorBands
    batch_size: int | None = None
    recompilations: tuple[Recompilation, ...] = ()
    executions: tuple[Execution, ...] = field(default=(), repr=False)
    fixes: tuple[Fix, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        size = self.batch_size
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(
                "`batch_size` must be a positive integer, or None for steps without samples. "
                f"Received: batch_size={size!r}"
            )

    @property
    def name(self) -> str:
        """The name of the program."""
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
        """Tile cycles of all `rows`, summed over a pipeline's IPUs, which work at the same time."""
        return sum(row.cycles for row in self.rows)

    @cached_property
    def pipeline_timing(self) -> PipelineTiming | None:
        """When each IPU of a pipeline does what; `None` without a pipeline."""
        run = self.model.pipeline_run
        return None if run is None else run.timing()

    @property
    def pipeline(self) -> PipelineView | None:
        """Stages, bubbles and phases of the pipeline; `None` without a pipeline."""
        run, timing = self.model.pipeline_run, self.pipeline_timing
        return None if run is None or timing is None else pipeline_view(run, timing)

    @property
    def host_cycles(self) -> int:
        """Tile cycles of one step in which data moves between host and IPU.

        Hidden copies do not count: with tiles set apart for input and output, most data moves
        while the other tiles compute.
        """
        return self.model.host_cycles

    @property
    def cycles_per_step(self) -> int:
        """Tile cycles of one step, copies between host and IPU included."""
        return self.model.cycles_per_step

    @property
    def seconds_per_step(self) -> float:
        """Time of one step in seconds."""
        return self.cycles_per_step / self.model.target.clock_hz

    @property
    def cycles_per_execution(self) -> int:
        """Tile cycles of the `steps_per_execution` steps of an execution."""
        return self.cycles_per_step * self.model.options.steps_per_execution

    @property
    def seconds_per_execution(self) -> float:
        """Time of the `steps_per_execution` steps of an execution, in seconds."""
        return self.cycles_per_execution / self.model.target.clock_hz

    @property
    def samples_per_second(self) -> float | None:
        """Samples of all replicas in a second.

        This is `None` without a batch size, or if a step takes no time.
        """
        if self.batch_size is None or self.cycles_per_step == 0:
            return None
        return self.batch_size * self.model.options.num_replicas / self.seconds_per_step

    @property
    def throughput_range(self) -> tuple[float, float] | None:
        """The least and the most samples in a second, by the errors of programs on hardware.

        Without such errors, both are what is modelled; it is `None` where
        `samples_per_second` is.
        """
        modelled = self.samples_per_second
        return None if modelled is None else self.error_bands.throughput_range(modelled)

    @property
    def flops_per_step(self) -> int:
        """Floating point operations of one step, over all replicas."""
        return sum(row.flops for row in self.rows) * self.model.options.num_replicas

    @property
    def num_ipus(self) -> int:
        """The number of IPUs of all replicas together."""
        options = self.model.options
        return options.ipus_per_replica * options.num_replicas

    @property
    def peak_flops(self) -> float:
        """The most floating point operations of float16 that all IPUs can do in a second."""
        target = self.model.target
        return max(target.amp_flops.values()) * target.num_tiles * target.clock_hz * self.num_ipus

    @property
    def utilisation(self) -> float:
        """The share of `peak_flops` that a step reaches, 0 to 1; 0 if it takes no time."""
        if self.cycles_per_step == 0:
            return 0.0
        return self.flops_per_step / (self.seconds_per_step * self.peak_flops)

    @property
    def bound(self) -> str:
        """What takes the larger part of a step: `"ipu"` or `"host"`."""
        # Hidden copies count as well: once they take longer than what they hide behind, the step
        # waits for them.
        host = self.host_cycles + self.model.hidden_host_cycles
        return "host" if host > self.compute_cycles else "ipu"

    @property
    def guessed_share(self) -> float:
        """The share of the IPU's cycles that rest on guesses, 0 to 1."""
        guessed = sum(row.cycles for row in self.rows if row.confidence == "guessed")
        return guessed / max(self.busy_cycles, 1)

    @property
    def not_lowered(self) -> tuple[str, ...]:
        """TensorFlow's operations that XLA lacks or refused; their cost is guessed."""
        ops = self.model.graph.walk()
        return tuple(sorted({op.kind for op in ops if NOT_LOWERED in op.attributes}))

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """XLA's operations and calls that the model does not know; their cost is guessed."""
        ops = self.model.graph.walk()
        unknown = (op for op in ops if family_of(op.kind) == UNKNOWN)
        return tuple(
            sorted(
                {
                    # All custom calls are of one kind: only the target says which operation it
                    # was.
                    op.attributes.get("custom_call_target", op.kind)
                    for op in unknown
                    if NOT_LOWERED not in op.attributes
                }
            )
        )

    @property
    def fits(self) -> bool:
        """Whether the program fits into the memory of every tile of every IPU."""
        return self.model.memory.fits

    @property
    def fullest_tile_range(self) -> tuple[int, int]:
        """The least and the most bytes on the fullest tile, by the errors of whole programs.

        Without such errors, both are what is modelled.
        """
        return self.error_bands.fullest_tile_range(self.model.memory.max_tile_bytes)

    def is_close(self, num_bytes: int) -> bool:
        """Whether so many bytes on the fullest tile are too close to say if a program fits."""
        return self.error_bands.is_close(num_bytes, self.model.memory.tile_bytes)

    @property
    def verdict(self) -> str:
        """`"fits"`, `"does not fit"`, or `"too close to say"`.

        It is too close to say if the model's answer, `fits`, holds for a part of
        `fullest_tile_range` only, or if the program does not fit by guessed bytes of code alone.
        """
        memory, (least, _) = self.model.memory, self.fullest_tile_range
        if not memory.code_fits:
            # How many bytes the code has is a guess, which has no error to compare with.
            return "does not fit" if least > memory.tile_bytes else "too close to say"
        if self.is_close(memory.max_tile_bytes):
            return "too close to say"
        return "fits" if memory.fits else "does not fit"

    @property
    def memory_by_tile(self) -> np.ndarray:
        """`(num_tiles,)` int64: bytes on each tile when it is fullest. Read-only."""
        return _read_only(self.model.memory.peak_by_tile)

    @property
    def liveness(self) -> np.ndarray:
        """`(compute sets,)` int64: bytes over all tiles while each of `rows` runs. Read-only.

        Memory that is always live does not count: see `always_live_bytes`. A program that
        computes nothing has one position.
        """
        return _read_only(self.model.memory.live_by_position)

    @property
    def always_live_bytes(self) -> int:
        """Bytes over all tiles that are in use during the whole step."""
        return int(self.model.memory.always_live_by_tile.sum())

    def by(self, key: str, sort: str | None = "cycles") -> tuple[Row, ...]:
        """Returns the rows in groups, those with the most cycles first.

        Args:
            key: What the rows of a group have in common: `"layer"`, `"family"`, `"backward"`,
                `"confidence"`, `"stage"` or `"phase"` (forward, backward, weight update);
                `"op"` leaves each row on its own.
            sort: The column whose largest numbers come first: `"cycles"`, `"compute_cycles"`,
                `"exchange_cycles"`, `"sync_cycles"`, `"flops"`, `"exchange_bytes"`,
                `"temporary_bytes"` or `"repeat"`. `"name"` sorts by letters, `None` leaves the
                order of execution.

        Raises:
            ValueError: There is no such key or column.
        """
        return arranged(self.rows, key, sort)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Parameters, operations, memory and cycles of each layer, most cycles first."""
        return layers_of(self.model, self.rows)

    @property
    def bytes_by_region(self) -> dict[str, int]:
        """Bytes on the fullest tile by region of its memory, such as `"interleaved"`."""
        regions = self.model.memory.bytes_by_region.items()
        return {name.replace("_", "-"): size for name, size in regions}

    def layers_of_worst_tile(self) -> tuple[tuple[str, int], ...]:
        """Returns layers and bytes of their values on the fullest tile at its peak, largest first.

        A variable or constant counts for the first layer that uses it, or for the optimizer.
        """
        return layers_of_worst_tile(self.model)

    @property
    def memory_error(self) -> str | None:
        """The message of the IPU's compiler if the program does not fit; `None` if it fits."""
        return _memory_error(self.model.memory)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What else to know about the figures, a sentence each without a full stop."""
        guesses = {
            "XLA cannot lower": self.not_lowered,
            "the model does not know": self.not_modelled,
        }
        found = remarks(self.model, self.pipeline, guesses, self.recompilations)
        return (*self._on_verdict(), *found)

    def _on_verdict(self) -> Iterator[str]:
        """Yields what a close verdict depends on."""
        least, most = self.fullest_tile_range
        if self.is_close(self.model.memory.max_tile_bytes):
            yield (
                "Whether it fits is too close to say: by the errors of whole programs, its fullest "
                f"tile needs {least:,} to {most:,} bytes"
            )


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _memory_error(memory: MemoryPlan) -> str | None:
    """Returns the message of the IPU's compiler in one line; `None` if the program fits."""
    if memory.fits:
        return None
    # "incode" is Poplar's own spelling.
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
