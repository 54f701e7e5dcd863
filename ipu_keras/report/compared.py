"""The part of a report that is compared with another one, from a `Report` or from its JSON."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ipu_keras.report.memory_curves import MemoryCurves, curves_of
from ipu_keras.report.plain_options import SCHEMA_VERSION, plain_options
from ipu_keras.report.rows import NO_LAYER

# `ipu-keras diff` compares files, and has no need of the cost model, whose import takes longer.
if TYPE_CHECKING:
    from ipu_keras.report.figures import Figures

# Totals that have the same name in JSON.
_PLAIN_TOTALS = (
    "seconds_per_step",
    "seconds_per_execution",
    "flops_per_step",
    "utilisation",
    "guessed_share",
)

# Limits for files, which anybody may have written: no option has a value of more levels, and deeper
# ones would overflow Python's stack; no cycles or bytes are more, and larger ones overflow floats.
_MOST_LEVELS, _MOST = 8, 1e30


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The part of a report that is compared.

    Args:
        settings: Options, target and its numbers, whose differences explain the others.
        totals: Figures of the whole step, by names of the report's properties.
        layers: Tile cycles of one step by layer.
        families: Tile cycles of one step by family.
        memory: Bytes over all tiles by category.
        layer_memory: Bytes over all tiles by layer, of the values that are there when the
            fullest tile is at its fullest.
        layer_flops: Floating point operations of one step by layer.
        parameters: Numbers in variables by layer.
    """

    name: str
    settings: Mapping[str, Any]
    totals: Mapping[str, float]
    layers: Mapping[str, int]
    families: Mapping[str, int]
    memory: Mapping[str, int]
    layer_memory: Mapping[str, int] = field(default_factory=dict)
    layer_flops: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    curves: MemoryCurves | None = None


@dataclass(frozen=True)
class Change:
    """One number in two reports.

    Args:
        before: The number in the first report.
        after: The number in the second report.
    """

    before: float
    after: float

    @property
    def change(self) -> float:
        """What is added; negative if the number shrinks."""
        return self.after - self.before

    @property
    def ratio(self) -> float | None:
        """What is added as a share of the first number; `None` if that is 0."""
        return self.change / self.before if self.before else None

    def texts(self) -> tuple[str, str, str, str]:
        """Returns both numbers, what is added, and that as a share, which may be empty."""
        ratio = "" if self.ratio is None else f"{self.ratio:+.1%}"
        return _text(self.before), _text(self.after), _text(self.change, sign="+"), ratio


def _text(number: float, sign: str = "") -> str:
    whole = isinstance(number, int) or abs(number) >= 1000
    return f"{round(number):{sign},}" if whole else f"{number:{sign}.4g}"


def compared(report: "Figures") -> Compared:
    """Returns the part of a report that is compared."""
    target, memory = report.model.target, report.model.memory
    numbers = {f"target.{name}": getattr(target, name) for name in target.provenance}
    totals = {
        "cycles_per_step": report.cycles_per_step,
        "compute_cycles": report.compute_cycles,
        "host_cycles": report.host_cycles,
        "cycles_per_execution": report.cycles_per_execution,
        "seconds_per_step": report.seconds_per_step,
        "seconds_per_execution": report.seconds_per_execution,
        "flops_per_step": report.flops_per_step,
        "utilisation": report.utilisation,
        "guessed_share": report.guessed_share,
        "max_tile_bytes": memory.max_tile_bytes,
        "total_bytes": memory.total_bytes,
    }
    if report.samples_per_second is not None:
        totals["samples_per_second"] = report.samples_per_second
    return Compared(
        name=f"{report.name} on {target.name}",
        settings={
            "program": report.name,
            "batch_size": report.batch_size,
            **plain_options(report.model.options),
            "target": target.name,
            **numbers,
        },
        totals=totals,
        layers={row.name: row.cycles for row in report.by("layer")},
        families={row.name: row.cycles for row in report.by("family")},
        memory=memory.bytes_by_category,
        layer_memory={layer.name: layer.peak_bytes for layer in report.layers},
        layer_flops={layer.name: layer.flops for layer in report.layers},
        parameters={layer.name: layer.parameters for layer in report.layers},
        curves=curves_of(
            peak_by_tile=memory.peak_by_tile.tolist(),
            tile_bytes=memory.tile_bytes,
            num_ipus=memory.num_ipus,
            cycles=[row.cycles for row in report.rows],
            host_cycles=report.host_cycles,
            clock_hz=target.clock_hz,
            live=memory.live_by_position.tolist(),
            always_live=report.always_live_bytes,
        ),
    )


def compared_of_plain(plain: Any) -> Compared:
    """Returns the same from a report that was written as JSON, or says why it cannot be one."""
    if not isinstance(plain, Mapping) or plain.get("schema") != SCHEMA_VERSION:
        schema = plain.get("schema") if isinstance(plain, Mapping) else None
        raise ValueError(f"it must have schema {SCHEMA_VERSION}. Received: {schema!r}")
    try:
        found = _compared(plain)
    # Files come from anybody, and are not checked key by key: whatever fails while they are
    # read says enough.
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"it has another structure: {type(error).__name__}: {error}") from error
    _check(found)
    return found


def _compared(plain: Mapping[str, Any]) -> Compared:
    target, memory, cycles = plain["target"], plain["memory"], plain["cycles"]
    layers, families = Counter[str](), Counter[str]()
    for row in plain["rows"]:
        layers[row["layer"] or NO_LAYER] += row["cycles"]
        families[row["family"]] += row["cycles"]
    totals = {
        "cycles_per_step": cycles["per_step"],
        "compute_cycles": cycles["ipu"],
        "host_cycles": cycles["host"],
        "cycles_per_execution": cycles["per_execution"],
        **{name: plain[name] for name in _PLAIN_TOTALS},
        "max_tile_bytes": memory["max_tile_bytes"],
        "total_bytes": memory["total_bytes"],
    }
    if plain["samples_per_second"] is not None:
        totals["samples_per_second"] = plain["samples_per_second"]
    return Compared(
        name=f"{plain['name']} on {target['name']}",
        settings={
            "program": plain["name"],
            "batch_size": plain["batch_size"],
            **plain["options"],
            "target": target["name"],
            **{f"target.{name}": number for name, number in target["numbers"].items()},
        },
        totals=totals,
        layers=layers,
        families=families,
        memory={**memory["always_live_by_category"], **memory["not_always_live_by_category"]},
        layer_memory={layer["name"]: layer["peak_bytes"] for layer in plain["layers"]},
        layer_flops={layer["name"]: layer["flops"] for layer in plain["layers"]},
        parameters={layer["name"]: layer["parameters"] for layer in plain["layers"]},
        curves=curves_of(
            peak_by_tile=memory["peak_by_tile"],
            tile_bytes=memory["tile_bytes"],
            num_ipus=memory["num_ipus"],
            cycles=[row["cycles"] for row in plain["rows"]],
            host_cycles=cycles["host"],
            clock_hz=target["numbers"]["clock_hz"],
            live=memory["live_by_position"],
            always_live=sum(memory["always_live_by_category"].values()),
        ),
    )


def _check(found: Compared) -> None:
    """Refuses values that can be neither subtracted nor shown."""
    for name, value in found.settings.items():
        if not _is_shallow(value, _MOST_LEVELS):
            raise ValueError(f"its value of {name!r} is nested too deeply")
    curves, parts = found.curves, ("layers", "families", "memory", "layer_memory", "layer_flops")
    numbers = [
        *(item for part in parts for item in getattr(found, part).items()),
        *found.totals.items(),
        *found.parameters.items(),
    ]
    if curves is not None:
        numbers += [("tile_bytes", curves.tile_bytes), ("num_ipus", curves.num_ipus)]
        for part in ("peak_by_tile", "edges", "live"):
            numbers += [(part, number) for number in getattr(curves, part)]
    for name, number in numbers:
        # JSON's numbers may be NaN or infinite to Python, and `true` is an integer to it.
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not isinstance(name, str) or not is_number or not abs(number) < _MOST:
            raise ValueError(f"it must have a finite number for {name!r}. Received: {number!r}")


def _is_shallow(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return True
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in inner)
