"""How far the cost model is from hardware and from Graphcore's IPU Model.

Single operations by kind, whole programs, and poplibs' own benchmarks (`poplibs.py`).

Each operation that was measured becomes a small program, and goes through the code that reports
run. Points that the model was made by (`input_of` in `hardware/*.csv`) count for no band, and a
kind with fewer than three others has none: its points are shown as they are.

`--refits` prints what each fitted number would be without each network (`fidelity_refits.py`).
`--write` puts the result where reports take it from, `--markdown` prints the tables of the
documentation.
"""

import argparse
import json
from pathlib import Path
from statistics import median

import fidelity_convolutions
import fidelity_points
import fidelity_programs
import fidelity_refits
import poplibs
from measured import Comparison
from rich.console import Console
from rich.table import Table

import ipu_keras.report
from ipu_keras.machine.target import TARGETS
from ipu_keras.report.error_bands import Band, BenchmarkError, ErrorBands, PointError, ProgramError

BANDS = Path(ipu_keras.report.__file__).parent / "error_bands.json"

# Points of a kind that make a band.
FEWEST_POINTS = 3

# Largest median of the absolute error that we accept; of kinds without a band, largest error.
GOALS = {
    fidelity_convolutions.MATRIX_UNIT: 0.01,
    fidelity_convolutions.PRODUCTS: 0.10,
    fidelity_convolutions.SMALL: 0.25,
    fidelity_convolutions.MEDIUM: 0.25,
    fidelity_convolutions.LARGE: 0.25,
    **dict.fromkeys(fidelity_convolutions.GROUPS.values(), 0.25),
    fidelity_points.EXCHANGE: 0.05,
    fidelity_points.SUMS: 0.20,
    fidelity_points.WORD_COPIES: 0.20,
    fidelity_points.TILE_COPIES: 0.20,
    fidelity_points.LARGE_COPIES: 0.20,
    fidelity_points.HOST: 0.20,
    fidelity_points.RANDOM: 0.05,
}


def comparisons() -> list[Comparison]:
    """Every measurement of a single operation that has a program, the model's inputs included."""
    return [*fidelity_convolutions.comparisons(), *fidelity_points.comparisons()]


def by_kind(points: list[Comparison]) -> dict[str, list[Comparison]]:
    """Those that are no inputs of the model, those of a kind together.

    Args:
        points: As of `comparisons`.
    """
    found: dict[str, list[Comparison]] = {}
    for point in points:
        if not point.input_of:
            found.setdefault(point.kind, []).append(point)
    return found


def band(members: list[Comparison]) -> Band:
    """The errors of the points of a kind, to three digits.

    Args:
        members: They, measured on one target.
    """
    errors = [one.error for one in members]
    off = [one.cycles_off for one in members if one.cycles_off is not None]
    (target,) = {one.target for one in members}
    return Band(
        kind=members[0].kind,
        target=target,
        points=len(members),
        median_error=round(median(errors), 3),
        median_absolute_error=round(median(map(abs, errors)), 3),
        least_error=round(min(errors), 3),
        greatest_error=round(max(errors), 3),
        median_cycles_off=round(median(off)) if len(off) == len(members) else None,
    )


def error_bands(
    points: list[Comparison], programs: list[dict], benchmarks: list[dict]
) -> ErrorBands:
    """What reports say of the model's error.

    Args:
        points: As of `comparisons`.
        programs: As of `fidelity_programs.comparisons`.
        benchmarks: As of `poplibs.errors`.
    """
    kinds = by_kind(points).values()
    return ErrorBands(
        bands=tuple(band(members) for members in kinds if len(members) >= FEWEST_POINTS),
        points=tuple(
            PointError(
                kind=one.kind,
                target=one.target,
                description=one.description,
                error=round(one.error, 3),
            )
            for members in kinds
            if len(members) < FEWEST_POINTS
            for one in members
        ),
        programs=tuple(ProgramError(**program) for program in programs),
        benchmarks=tuple(BenchmarkError(**one) for one in benchmarks),
    )


def missed_goals(found: ErrorBands) -> list[str]:
    """The kinds whose error is greater than their goal.

    Args:
        found: The errors.
    """
    errors = {one.kind: one.median_absolute_error for one in found.bands}
    for point in found.points:
        errors[point.kind] = max(abs(point.error), errors.get(point.kind, 0.0))
    return [kind for kind, error in errors.items() if error > GOALS[kind]]


def _band_rows(found: ErrorBands) -> list[list[str]]:
    rows = [
        [
            one.kind,
            one.target,
            str(one.points),
            f"{one.median_error:+.1%}",
            f"{one.median_absolute_error:.1%}",
            f"{one.least_error:+.1%} to {one.greatest_error:+.1%}",
            "" if one.median_cycles_off is None else f"{one.median_cycles_off:+,}",
        ]
        for one in found.bands
    ]
    rows += [
        [f"{one.kind}: {one.description}", one.target, "1", f"{one.error:+.1%}", "", "", ""]
        for one in found.points
    ]
    return rows


_BAND_COLUMNS = ("operations", "IPU", "points", "median error", "absolute", "range", "cycles off")


def _program_rows(found: ErrorBands) -> list[list[str]]:
    return [
        [
            one.program,
            one.target,
            one.reference,
            *(
                "" if ratio is None else f"{ratio:.2f}"
                for ratio in (one.throughput, one.cycles, one.total_bytes, one.fullest_tile_bytes)
            ),
            "yes" if one.fits else "no",
        ]
        for one in found.programs
    ]


_PROGRAM_COLUMNS = (
    "program",
    "IPU",
    "published of",
    "throughput",
    "cycles",
    "bytes of all tiles",
    "of the fullest",
    "fits",
)


def _benchmark_rows(found: ErrorBands) -> list[list[str]]:
    return [
        [
            one.kind,
            one.target,
            str(one.programs),
            *(
                f"{getattr(one, figure):.0%}, {getattr(one, f'{figure}_of_nine_in_ten'):.0%}"
                for figure in poplibs.FIGURES
            ),
        ]
        for one in found.benchmarks
    ]


_BENCHMARK_COLUMNS = (
    "poplibs' benchmarks",
    "IPU",
    "programs",
    "cycles: median, nine in ten",
    "bytes of all tiles",
    "of the fullest",
)


def markdown(found: ErrorBands) -> str:
    """All tables as `docs/explanation/cost-model.md` has them.

    Args:
        found: The errors.
    """
    tables = (
        (_BAND_COLUMNS, _band_rows(found)),
        (_PROGRAM_COLUMNS, _program_rows(found)),
        (_BENCHMARK_COLUMNS, _benchmark_rows(found)),
    )
    return "\n".join(_markdown_table(columns, rows) for columns, rows in tables)


def _markdown_table(columns: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _table(title: str, columns: tuple[str, ...], rows: list[list[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table


def _goals(found: ErrorBands) -> Table:
    missed = missed_goals(found)
    kinds = dict.fromkeys(one.kind for one in (*found.bands, *found.points))
    rows = [[kind, f"≤ {GOALS[kind]:.0%}", "missed" if kind in missed else "met"] for kind in kinds]
    return _table("Goals of the absolute error", ("operations", "goal", ""), rows)


def _points(members: list[Comparison]) -> Table:
    rows = [
        [
            one.id,
            one.description,
            f"{one.measured:.4g}",
            f"{one.modelled:.4g}",
            one.unit,
            f"{one.error:+.1%}",
            one.input_of,
        ]
        for one in members
    ]
    columns = ("id", "what", "measured", "modelled", "unit", "error of the time", "input of")
    return _table(members[0].kind, columns, rows)


def _inputs() -> Table:
    """Points of the microbenchmarks without a band, and why."""
    rows = []
    for point in fidelity_points.points():
        if point["id"] not in fidelity_points.modelled_points():
            why = point["input_of"] and f"input of {point['input_of']}"
            why = why or fidelity_points.NOT_MODELLED[point["id"]]
            rows.append([point["id"], point["workload"], why])
    return _table("Left out", ("id", "what", "why"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--points", metavar="KIND", help="show each point of a kind")
    parser.add_argument("--left-out", action="store_true", help="show what has no band, and why")
    parser.add_argument(
        "--markdown", action="store_true", help="print the tables of the documentation"
    )
    parser.add_argument(
        "--refits", action="store_true", help="print what fitted numbers are without each network"
    )
    parser.add_argument("--write", action="store_true", help="write what reports say of errors")
    args = parser.parse_args()
    console = Console()
    if args.refits:
        layers = fidelity_convolutions.convolutions(TARGETS["gc2"])
        print(fidelity_refits.markdown(fidelity_refits.refits(layers)), end="")
        return
    points = comparisons()
    if args.points:
        members = [one for one in points if one.kind == args.points]
        if not members:
            kinds = ", ".join(dict.fromkeys(one.kind for one in points))
            parser.error(f"--points needs one of: {kinds}. Received: {args.points!r}")
        console.print(_points(members))
    if args.left_out:
        console.print(_inputs())
    found = error_bands(points, fidelity_programs.comparisons(), poplibs.errors())
    if args.write:
        BANDS.write_text(json.dumps(found.to_dict(), indent=1) + "\n", encoding="utf-8")
    if args.markdown:
        print(markdown(found), end="")
        return
    console.print(_table("Single operations, error of the time", _BAND_COLUMNS, _band_rows(found)))
    console.print(_goals(found))
    programs = "Whole programs, modelled divided by published"
    console.print(_table(programs, _PROGRAM_COLUMNS, _program_rows(found)))
    benchmarks = "Sizes of errors of poplibs' benchmarks"
    console.print(_table(benchmarks, _BENCHMARK_COLUMNS, _benchmark_rows(found)))


if __name__ == "__main__":
    main()
