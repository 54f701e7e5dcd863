"""What a program would cost on an IPU, as a value to look at and to compare."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ipu_keras.compiler.memory import alive_on_worst_tile
from ipu_keras.compiler.modelling import Model
from ipu_keras.report.chrome_trace import chrome_trace
from ipu_keras.report.error_bands import error_bands
from ipu_keras.report.fixes import Fix, fixes_table
from ipu_keras.report.rows import Row, group, row_of
from ipu_keras.report.text import cost_table, memory_table, rendered
from ipu_keras.target import SOURCES

# Of the JSON form; raised when a reader of the last one could go wrong.
SCHEMA_VERSION = 1

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
        fixes: What would help a program that does not fit, as `suggest_fixes` found.

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
    fixes: tuple[Fix, ...] = ()

    @classmethod
    def of(cls, model: Model) -> "Report":
        """The report of a finished model."""
        pairs = zip(model.program.compute_sets, model.costs, strict=True)
        rows = tuple(row_of(one, cost) for one, cost in pairs)
        return cls(model=model, rows=rows, error_bands=error_bands())

    @property
    def name(self) -> str:
        """Of the program."""
        return self.model.name

    @property
    def compute_cycles(self) -> int:
        """Tile cycles of one step, without copies between host and IPU."""
        return sum(row.cycles for row in self.rows)

    @property
    def host_cycles(self) -> int:
        """Tile cycles of one step in which data moves between host and IPU."""
        return self.model.host_cycles

    @property
    def cycles_per_step(self) -> int:
        """Tile cycles of one step."""
        return self.compute_cycles + self.host_cycles

    @property
    def seconds_per_step(self) -> float:
        """Time of one step."""
        return self.cycles_per_step / self.model.target.clock_hz

    @property
    def flops_per_step(self) -> int:
        """Floating point operations of one step."""
        return sum(row.flops for row in self.rows)

    @property
    def utilisation(self) -> float:
        """Share of the peak of all IPUs, for float16, that the step's operations reach."""
        target = self.model.target
        peak = max(target.amp_flops.values()) * target.num_tiles * self.model.options.num_ipus
        return self.flops_per_step / max(self.cycles_per_step * peak, 1)

    @property
    def bound(self) -> str:
        """What takes the larger part of a step: `"ipu"` or `"host"`."""
        return "host" if self.host_cycles > self.compute_cycles else "ipu"

    @property
    def guessed_share(self) -> float:
        """Share of the IPU's cycles that rest on guesses."""
        guessed = sum(row.cycles for row in self.rows if row.confidence == "guessed")
        return guessed / max(self.compute_cycles, 1)

    @property
    def fits(self) -> bool:
        """Whether the program fits into the memory of every tile of every IPU."""
        return self.model.memory.fits

    def by(self, key: str) -> tuple[Row, ...]:
        """The rows in groups, those with the most cycles first.

        Args:
            key: `"layer"`, `"family"`, `"backward"` or `"confidence"`.

        Raises:
            ValueError: Another key.
        """
        keys: dict[str, Callable[[Row], Any]] = {
            "layer": lambda row: row.layer or "(no layer)",
            "family": lambda row: row.family,
            "backward": lambda row: "backward" if row.backward else "forward",
            "confidence": lambda row: row.confidence,
        }
        if key not in keys:
            raise ValueError(f"Rows are grouped by one of {', '.join(keys)}. Received: {key!r}")
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(keys[key](row), []).append(row)
        grouped = [group(name, members) for name, members in groups.items()]
        return tuple(sorted(grouped, key=lambda row: (-row.cycles, row.name)))

    def layers_of_worst_tile(self) -> tuple[tuple[str, int], ...]:
        """Layers and bytes of their values on the fullest tile at its fullest, largest first."""
        model = self.model
        layers = {
            value.name: one.layer for one in model.program.compute_sets for value in one.writes
        }
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
            "options": asdict(model.options),
            "cycles": {
                "per_step": self.cycles_per_step,
                "ipu": self.compute_cycles,
                "host": self.host_cycles,
            },
            "seconds_per_step": self.seconds_per_step,
            "flops_per_step": self.flops_per_step,
            "utilisation": self.utilisation,
            "bound": self.bound,
            "guessed_share": self.guessed_share,
            "unknown_loops": model.program.num_unknown_loops,
            "memory": {
                "fits": memory.fits,
                "tile_bytes": memory.tile_bytes,
                "max_tile_bytes": memory.max_tile_bytes,
                "worst_tile": memory.worst_tile,
                "worst_ipu": memory.worst_ipu,
                "total_bytes": memory.total_bytes,
                "by_category": dict(memory.bytes_by_category),
                "peak_by_tile": _plain(memory.peak_by_tile),
                "live_by_position": _plain(memory.live_by_position),
            },
            "fixes": [asdict(fix) for fix in self.fixes],
            "error_bands": {name: dict(band) for name, band in self.error_bands.items()},
            "rows": [{**asdict(row), "cycles": row.cycles} for row in self.rows],
        }

    def to_json(self) -> str:
        """The report as JSON: equal text for equal programs, targets and options."""
        return json.dumps(self.to_dict(), indent=1)

    def to_chrome_trace(self) -> str:
        """One step on a timeline, in the JSON form that chrome://tracing and Perfetto read.

        Compute sets follow each other; each is split into synchronization, exchange
        and compute. Times are microseconds.
        """
        return json.dumps(chrome_trace(self.rows, self.model.target, self.host_cycles), indent=1)

    @property
    def memory_error(self) -> str | None:
        """What the IPU's compiler would say if the program does not fit; `None` if it does."""
        memory = self.model.memory
        if memory.fits:
            return None
        return (
            f"Memory allocation error : Out of memory on tile {memory.worst_tile}: "
            f"{memory.max_tile_bytes} bytes used but tiles only have {memory.tile_bytes} bytes "
            "of memory"
        )

    def __str__(self) -> str:
        layers, families = self.by("layer"), self.by("family")
        return rendered(
            self._summary(),
            *([fixes_table(self.fixes)] if self.fixes else []),
            cost_table(f"Layers ({len(layers)})", layers[:_NUM_LAYERS], self.compute_cycles),
            cost_table("Families", families, self.compute_cycles),
            memory_table(self.model.memory.bytes_by_category),
        )

    def _summary(self) -> str:
        model, memory = self.model, self.model.memory
        lines = [
            f"{self.name} on {model.target.name}: {self.cycles_per_step:,} cycles per step, "
            f"{self.seconds_per_step * 1e3:.3f} ms, bound by the {self.bound}",
            f"{self.flops_per_step / 1e9:.3f} GFLOP per step, {self.utilisation:.1%} of the peak; "
            f"{self.guessed_share:.0%} of the cycles are guessed",
            self.memory_error
            or f"It fits: {memory.max_tile_bytes:,} of {memory.tile_bytes:,} bytes on tile "
            f"{memory.worst_tile}",
        ]
        if memory.num_ipus > 1:
            num_tiles = model.target.num_tiles
            lines.append(
                f"That is tile {memory.worst_tile % num_tiles} of IPU {memory.worst_ipu} of "
                f"{memory.num_ipus}, which share the layers; one computes at a time"
            )
        loops = model.program.num_unknown_loops
        if loops:
            lines.append(
                f"{loops} loops whose trips depend on data count with their bound, or once"
            )
        measured = [f"{name} {b['median_error']:.0%}" for name, b in self.error_bands.items()]
        lines.append(f"Median error of the model on measurements of IPUs: {', '.join(measured)}")
        return "\n".join(lines)


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


def _plain(array: np.ndarray) -> list[int]:
    return [int(number) for number in array]
