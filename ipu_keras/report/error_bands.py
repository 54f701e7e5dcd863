"""How far the model was from hardware, for single operations and for whole programs.

`benchmarks/fidelity.py` measures it and writes `error_bands.json`; this module reads that file.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from ipu_keras.report.text import PlainTable


@dataclass(frozen=True, kw_only=True)
class Band:
    """The errors of operations of one kind, none of which were used to make the model.

    An error is how much longer the model takes, as a share of the measured time: -0.1 is a
    tenth too fast.

    Args:
        kind: The kind of the operations, in words.
        target: The IPU that they were measured on.
        points: The number of measurements.
        median_error: Median of the errors.
        median_absolute_error: Median of the errors, whatever their signs.
        least_error: Error of the point whose time is most underestimated.
        greatest_error: Error of the point whose time is most overestimated.
        median_cycles_off: Median of the cycles that the model counts too many; `None` for
            bandwidths.
    """

    kind: str
    target: str
    points: int
    median_error: float
    median_absolute_error: float
    least_error: float
    greatest_error: float
    median_cycles_off: int | None


@dataclass(frozen=True, kw_only=True)
class PointError:
    """The error of a single measurement, for a kind with too few of them for a band.

    Args:
        kind: The kind of the operation, in words.
        target: The IPU that it was measured on.
        description: What was measured, in words.
        error: The error, counted as in `Band`.
    """

    kind: str
    target: str
    description: str
    error: float


@dataclass(frozen=True, kw_only=True)
class ProgramError:
    """What the model says of a whole program, divided by what is published.

    A ratio is `None` if nothing is published that it could be divided by.

    Args:
        program: The name of the program.
        target: The IPU that the published figures are for.
        reference: Whose figures are published: `"hardware"`, or the name of another model.
        throughput: Ratio of the samples in a second.
        cycles: Ratio of the tile cycles of a step without copies between host and IPU.
        total_bytes: Ratio of the bytes over all tiles.
        fullest_tile_bytes: Ratio of the bytes on the fullest tile.
        fits: Whether it fits into memory by the model; on the hardware, it did.
        configuration: What is compared, in words.
    """

    program: str
    target: str
    reference: str
    throughput: float | None
    cycles: float | None
    total_bytes: float | None
    fullest_tile_bytes: float | None
    fits: bool
    configuration: str


@dataclass(frozen=True, kw_only=True)
class BenchmarkError:
    """The errors of poplibs' own benchmarks of one kind, against Graphcore's IPU Model.

    Sizes of errors are shares of what poplibs' tests expect, whatever their signs. Of each
    figure there is the median, and what nine of ten programs are not beyond.

    Args:
        kind: What the programs compute, in words.
        target: The IPU that they are for.
        programs: The number of these benchmarks.
        cycles: Median for the tile cycles, without copies with the host.
        cycles_of_nine_in_ten: The same of nine in ten.
        total_bytes: Median for the bytes over all tiles, without gaps.
        total_bytes_of_nine_in_ten: The same of nine in ten.
        fullest_tile_bytes: Median for the bytes of the fullest tile, with gaps.
        fullest_tile_bytes_of_nine_in_ten: The same of nine in ten.
    """

    kind: str
    target: str
    programs: int
    cycles: float
    cycles_of_nine_in_ten: float
    total_bytes: float
    total_bytes_of_nine_in_ten: float
    fullest_tile_bytes: float
    fullest_tile_bytes_of_nine_in_ten: float


# The ratios of a program that sentences name, in words.
_FIGURES = {
    "throughput": "throughput",
    "cycles": "cycles",
    "total_bytes": "bytes of all tiles",
    "fullest_tile_bytes": "bytes of the fullest tile",
}


@dataclass(frozen=True, kw_only=True)
class ErrorBands:
    """All that is known of the model's error.

    Args:
        bands: Errors of operations, by kind.
        points: Errors of kinds that have too few measurements for a band.
        programs: Ratios of whole programs.
        benchmarks: Errors of poplibs' benchmarks, by kind.
    """

    bands: tuple[Band, ...]
    points: tuple[PointError, ...]
    programs: tuple[ProgramError, ...]
    benchmarks: tuple[BenchmarkError, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the errors as plain values, in a fixed order."""
        return {name: [asdict(one) for one in getattr(self, name)] for name in _PARTS}

    def sentences(self, target: str) -> tuple[str, ...]:
        """Returns what a report says about its errors, a sentence each without a full stop.

        Args:
            target: The name of the report's target, which may be one that nothing was measured
                on.
        """
        return tuple(self._sentences(target))

    def fullest_tile_range(self, num_bytes: int) -> tuple[int, int]:
        """Returns the least and the most bytes that modelled ones stand for, by whole programs.

        Both are those modelled if no program is known whose fullest tile is published.

        Args:
            num_bytes: Modelled bytes of the fullest tile.
        """
        found = _stood_for(num_bytes, [one.fullest_tile_bytes for one in self.programs])
        return round(found[0]), round(found[1])

    def throughput_range(self, throughput: float) -> tuple[float, float]:
        """Returns the least and the most samples in a second that modelled ones stand for.

        That is by whole programs that ran on hardware; both are what is modelled without any.

        Args:
            throughput: Modelled samples in a second.
        """
        return _stood_for(throughput, self.throughput_ratios)

    @property
    def throughput_ratios(self) -> tuple[float, ...]:
        """Modelled throughput divided by what hardware had, of each program known."""
        programs = (one for one in self.programs if one.reference == "hardware")
        return tuple(one.throughput for one in programs if one.throughput is not None)

    def is_close(self, num_bytes: int, tile_bytes: int) -> bool:
        """Whether modelled bytes are too close to those of a tile to say if a program fits."""
        figures = (num_bytes, *self.fullest_tile_range(num_bytes))
        return len({each <= tile_bytes for each in figures}) > 1

    def _sentences(self, target: str) -> Iterator[str]:
        for reference, ipu in dict.fromkeys((one.reference, one.target) for one in self.programs):
            programs = [
                one for one in self.programs if (one.reference, one.target) == (reference, ipu)
            ]
            yield (
                f"Whole programs on {ipu}, modelled divided by {reference}: "
                f"{'; '.join((*_ratios(programs), _fitting(programs)))}"
            )
        yield from self._of_benchmarks(target)
        measured = dict.fromkeys(band.target for band in self.bands)
        measured |= dict.fromkeys(point.target for point in self.points)
        lacking = "" if target in measured else f"; none was measured on {target}"
        yield (
            "Errors of single operations say little of these, and hold for where they were "
            f"measured, {' and '.join(measured)}{lacking}"
        )

    def _of_benchmarks(self, target: str) -> Iterator[str]:
        """Yields a sentence on benchmarks for the target, or for the IPU of its architecture."""
        targets = {one.target for one in self.benchmarks}
        ipu = target if target in targets else "gc200"  # later ones have its tiles
        found = [
            f"{one.kind} {one.cycles:.0%} and {one.fullest_tile_bytes:.0%}"
            for one in self.benchmarks
            if one.target == ipu
        ]
        if found:
            yield (
                f"Poplibs' benchmarks on {ipu}, median errors of cycles and of the fullest tile "
                f"against Graphcore's IPU Model: {', '.join(found)}"
            )

    def table(self) -> PlainTable:
        """Returns the errors of single operations as a table for a terminal."""
        bands = (
            (
                band.kind,
                band.target,
                str(band.points),
                _signed(band.median_error),
                f"{band.median_absolute_error:.0%}",
                "" if band.median_cycles_off is None else f"{band.median_cycles_off:+,}",
            )
            for band in self.bands
        )
        points = (
            (f"{point.kind}: {point.description}", point.target, "1", _signed(point.error), "", "")
            for point in self.points
        )
        return PlainTable(
            title="Errors of the time of single operations: below 0, the model is too fast",
            columns=("operations", "IPU", "points", "median", "absolute", "cycles"),
            rows=(*bands, *points),
        )


def _stood_for(modelled: float, ratios: Sequence[float | None]) -> tuple[float, float]:
    """Returns between which figures the one modelled lies, by its ratios to published ones."""
    known = [ratio for ratio in ratios if ratio] or [1.0]
    return modelled / max(known), modelled / min(known)


def _ratios(programs: Sequence[ProgramError]) -> Iterator[str]:
    """Yields the ratios of each figure that is published of some of the programs."""
    for name, words in _FIGURES.items():
        found = [
            f"{one.program} {getattr(one, name):.2f}"
            for one in programs
            if getattr(one, name) is not None
        ]
        if found:
            yield f"{words} {', '.join(found)}"


def _fitting(programs: Sequence[ProgramError]) -> str:
    lacking = [one.program for one in programs if not one.fits]
    return f"{', '.join(lacking)} would not fit, but did" if lacking else "all fit, as they did"


_PARTS: Mapping[str, type] = {
    "bands": Band,
    "points": PointError,
    "programs": ProgramError,
    "benchmarks": BenchmarkError,
}


def _signed(error: float) -> str:
    """Returns a share with its sign, or a factor if the model is more than twice off."""
    # A share hides how wrong a large error is: ten times too fast would be "-90%".
    if error < -0.5:
        return f"{1 / (1 + error):.1f} times too fast"
    if error > 1:
        return f"{1 + error:.1f} times too slow"
    return f"{error:+.0%}" if abs(error) >= 0.005 else "0%"


def error_bands() -> ErrorBands:
    """Reads the errors that `benchmarks/fidelity.py` found.

    Example:

    >>> sorted({band.target for band in error_bands().bands})
    ['bow', 'gc2']
    >>> [one.program for one in error_bands().programs if one.reference == "hardware"]
    ['MNIST MLP', 'ResNet-50']
    """
    text = resources.files(__package__).joinpath("error_bands.json").read_text("utf-8")
    found = json.loads(text)
    return ErrorBands(
        **{name: tuple(kind(**one) for one in found[name]) for name, kind in _PARTS.items()}
    )
