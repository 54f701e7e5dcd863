"""Each number that was fitted to measurements, refitted without each network in turn.

Numbers that no network was measured for are refitted without each of their points. What was left
out is then modelled with the refitted number. Times are straight lines of it, so that no model is
made twice: what a program takes beside it, and what it takes for each unit of it.

`python benchmarks/fidelity.py --refits` prints the table of `docs/explanation/cost-model.md`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

import fidelity_convolutions
import fidelity_points
from measured import Comparison

from ipu_keras.cost.products.convolution_costs import empty_compute_sets_cycles
from ipu_keras.cost.products.convolution_planner import plan
from ipu_keras.cost.vertices.products import convolution_of
from ipu_keras.ir import TensorSpec
from ipu_keras.machine.target import TARGETS, Target

# A load, and the operation.
_CYCLES_OF_VECTOR = 2


@dataclass(frozen=True, kw_only=True)
class Refit:
    """A number without some of its points.

    Args:
        number: What was fitted, with its unit.
        in_model: Its value in the model.
        left_out: The network or point that was.
        points: How many points are left; without any there is no value.
        refitted: The value that these make.
        error: The median size of the error of the time of what was left out, modelled with it.
    """

    number: str
    in_model: float
    left_out: str
    points: int
    refitted: float | None
    error: float | None


@dataclass(frozen=True, kw_only=True)
class _Point:
    """A measured time: of a network, with what it takes beside the number and for each unit."""

    of: str
    measured: float
    beside: float
    for_each: float

    def error(self, value: float) -> float:
        return abs((self.beside + value * self.for_each) / self.measured - 1)

    @property
    def implied(self) -> float:
        """The value without an error."""
        return (self.measured - self.beside) / self.for_each


def refits(layers: Sequence[Comparison]) -> list[Refit]:
    """All refits, number by number.

    Args:
        layers: As of `fidelity_convolutions.convolutions`.
    """
    gc2 = TARGETS["gc2"]
    return [
        *_weight_loads(TARGETS["bow"]),
        *_of_convolutions(gc2, layers),
        *_of_microbenchmarks(gc2),
    ]


_COLUMNS = ("number", "in the model", "without", "points left", "refitted", "error of that")


def markdown(found: Iterable[Refit]) -> str:
    """The table as `docs/explanation/cost-model.md` has it.

    Args:
        found: As of `refits`.
    """
    lines = [_COLUMNS, ("---",) * len(_COLUMNS), *map(_line, found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _line(one: Refit) -> tuple[str, ...]:
    refitted = "" if one.refitted is None else f"{one.refitted:,.4g}"
    error = "" if one.error is None else f"{one.error:.1%}"
    in_model = f"{one.in_model:,.4g}"
    return one.number, in_model, one.left_out, str(one.points), refitted, error


def _without_each(
    number: str,
    in_model: float,
    points: Sequence[_Point],
    *,
    choices: Iterable[float] = (),
    shown: Callable[[float], float] = lambda value: value,
) -> Iterator[Refit]:
    """Refits a number to the least median error, by those choices or by what points imply."""
    for left_out in dict.fromkeys(point.of for point in points):
        others = [point for point in points if point.of != left_out]
        value = _fitted(others, choices) if others else None
        errors = [] if value is None else [p.error(value) for p in points if p.of == left_out]
        yield Refit(
            number=number,
            in_model=in_model,
            left_out=left_out,
            points=len(others),
            refitted=None if value is None else shown(value),
            error=median(errors) if errors else None,
        )


def _fitted(points: Sequence[_Point], choices: Iterable[float]) -> float:
    implied = [point.implied for point in points]
    return min(
        list(choices) or [median(implied), *implied],
        key=lambda value: median(point.error(value) for point in points),
    )


def _weight_loads(bow: Target) -> Iterator[Refit]:
    """The bytes of weights that a Bow loads in a cycle, by quarters of the sizes."""
    slow, fast = fidelity_convolutions.WEIGHT_LOAD_BYTES
    by_bytes = [
        fidelity_convolutions.matrix_unit(bow.with_numbers(weight_load_bytes=num_bytes))
        for num_bytes in (slow, fast)
    ]
    points = []
    for k, (one, other) in enumerate(zip(*by_bytes, strict=True)):
        cycles_of_byte = (one.modelled - other.modelled) / (1 / slow - 1 / fast)
        points.append(
            _Point(
                of=f"quarter {1 + 4 * k // len(by_bytes[0])} of the sizes",
                measured=one.measured,
                beside=one.modelled - cycles_of_byte / slow,
                for_each=cycles_of_byte,
            )
        )
    yield from _without_each(
        "bytes of weights loaded in a cycle (8 or 16)",
        bow.weight_load_bytes,
        points,
        choices=(1 / slow, 1 / fast),
        shown=lambda value: 1 / value,
    )


def _of_convolutions(gc2: Target, layers: Sequence[Comparison]) -> Iterator[Refit]:
    """Numbers that convolutions of a GC2 made."""
    alone = empty_compute_sets_cycles(gc2)
    empty, thirds, halves = [], [], []
    for run, one in zip(fidelity_convolutions.runs(), layers, strict=True):
        measured = one.cycles_off / one.error
        cycles = measured + one.cycles_off
        copied = plan(gc2, convolution_of(run.program[-1], _operands(run))).transform_cycles - alone
        if run.groups == 1 and one.kind == fidelity_convolutions.SMALL:
            empty.append(
                _Point(of=run.layer[0], measured=measured, beside=cycles - alone, for_each=1)
            )
        if not copied:
            continue
        copies = _Point(of=run.layer[0], measured=measured, beside=cycles - copied, for_each=copied)
        if run.channels_of_group == 3:
            thirds.append(copies)
        elif run.channels_of_group in (2, 4):
            halves.append(replace(copies, of=f"{run.layer[0]}, {run.channels_of_group} channels"))
    yield from _without_each("cycles of compute sets without work", alone, empty)
    yield from _without_each("copies of pieces that are no words, of two each", 2, _twice(thirds))
    yield from _without_each("copies of single halves beside zeros, by the model's", 1, halves)


def _twice(points: Iterable[_Point]) -> list[_Point]:
    """Counts copies one by one, of which the model makes two."""
    return [replace(point, for_each=point.for_each / 2) for point in points]


def _operands(run: fidelity_convolutions.Run) -> list[TensorSpec]:
    return [op.outputs[0] for op in run.program[:-1]]


def _of_microbenchmarks(gc2: Target) -> Iterator[Refit]:
    """Numbers that are read off points of the microbenchmarks."""
    values = {point["id"]: float(point["value"]) for point in fidelity_points.points()}
    clock, tiles = gc2.clock_hz, gc2.num_tiles

    def read(times: dict[str, float]) -> list[_Point]:
        return [_Point(of=name, measured=t, beside=0, for_each=1) for name, t in times.items()]

    own = {
        "V10": values["V10"] * 1e9,
        "V11": values["V11"] * 1e9 / tiles,
        "M02": values["M02"] * 1e9,
    }
    yield from _without_each(
        "bytes exchanged in a cycle",
        gc2.exchange_bytes,
        read({name: clock / rate for name, rate in own.items()}),
        shown=lambda cycles: 1 / cycles,
    )
    hops = {
        after: (values[after] - values[before]) / count  # hops more than of the one before
        for before, after, count in (("M07", "M08", 1), ("M08", "M09", 2), ("M09", "M10", 4))
    }
    yield from _without_each(
        "microseconds of a hop between IPUs", gc2.link_latency_seconds * 1e6, read(hops)
    )
    copies = {name: values[name] * 1e-6 * clock for name in ("M22", "M23")}
    yield from _without_each("cycles of a host copy", gc2.host_latency_cycles, read(copies))
    vectors = fidelity_points.MANY_FLOATS * fidelity_points.WORD / gc2.vector_bytes
    sums = []
    for name, ipus in (("M17", 1), ("M18", 16)):
        floats = gc2.num_tiles * ipus * fidelity_points.MANY_FLOATS
        measured = floats * fidelity_points.WORD / (values[name] * 1e9) * clock
        modelled = fidelity_points.sum_of_all(ipus, fidelity_points.MANY_FLOATS)(gc2) * clock / 1e6
        beside = modelled - _CYCLES_OF_VECTOR * vectors
        sums.append(_Point(of=name, measured=measured, beside=beside, for_each=vectors))
    yield from _without_each("cycles of a vector that is added", _CYCLES_OF_VECTOR, sums)
    # Read off one point each.
    for number, in_model, name in (
        ("bytes that two tiles receive in a cycle", gc2.shared_exchange_bytes, "V15"),
        ("gigabytes a second of a link", gc2.link_bytes_per_second / 1e9, "V12"),
        ("gigabytes a second of the host", gc2.host_bytes_per_second / 1e9, "V22"),
        ("cycles of a launch", gc2.launch_cycles, "V26"),
    ):
        yield Refit(
            number=number, in_model=in_model, left_out=name, points=0, refitted=None, error=None
        )
