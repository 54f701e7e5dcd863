"""How far the cost model is from measurements of IPUs, by class of measurement.

Nothing here is fitted: no constant of the model was chosen to meet these points, except
where a docstring of the model says so. As a check, both halves of the points, taken
alternately, are shown: a model that was bent towards some of them would differ.

`--write` puts the table where reports take their error bands from.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

import fidelity_convolutions
import fidelity_points
from measured import Comparison
from rich.console import Console
from rich.table import Table

import ipu_keras.report

BANDS = Path(ipu_keras.report.__file__).parent / "error_bands.json"

# Largest median of the absolute error that we accept.
GOALS = {
    "AMP 1x1": 0.01,
    "GEMM peaks": 0.10,
    "convolutions": 0.25,
    "on-chip exchange": 0.05,
    "links": 0.20,
    "collectives": 0.20,
    "host": 0.20,
}


def by_category() -> dict[str, list[Comparison]]:
    """All comparisons, those of a class together."""
    found: dict[str, list[Comparison]] = {}
    for comparison in [*fidelity_convolutions.comparisons(), *fidelity_points.comparisons()]:
        found.setdefault(comparison.category, []).append(comparison)
    return found


def band(comparisons: list[Comparison]) -> dict[str, Any]:
    """Number of points, and median and largest absolute error, to three digits."""
    errors = [abs(comparison.error) for comparison in comparisons]
    return {
        "points": len(errors),
        "median_error": round(median(errors), 3),
        "max_error": round(max(errors), 3),
    }


def bands() -> dict[str, dict[str, Any]]:
    """The error band of each class."""
    return {category: band(members) for category, members in by_category().items()}


def _table(comparisons: dict[str, list[Comparison]]) -> Table:
    table = Table(title="Cost model against measurements of hardware", title_justify="left")
    table.add_column("class")
    for column in ("points", "median error", "goal", "max error", "even points", "odd points"):
        table.add_column(column, justify="right")
    for category, members in comparisons.items():
        found, goal = band(members), GOALS.get(category)
        halves = [members[start::2] for start in (0, 1)]
        table.add_row(
            category,
            str(found["points"]),
            f"{found['median_error']:.1%}",
            "" if goal is None else f"≤ {goal:.0%}",
            f"{found['max_error']:.1%}",
            *(f"{band(half)['median_error']:.1%}" if half else "" for half in halves),
        )
    return table


def _points(comparisons: list[Comparison]) -> Table:
    table = Table("id", "what", "measured", "modelled", "unit", "error")
    for one in comparisons:
        numbers = f"{one.measured:.4g}", f"{one.modelled:.4g}"
        table.add_row(one.id, one.description, *numbers, one.unit, f"{one.error:+.1%}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--points", metavar="CLASS", help="show each point of a class")
    parser.add_argument("--write", action="store_true", help="write the error bands of reports")
    args = parser.parse_args()
    console = Console()
    comparisons = by_category()
    if args.points:
        console.print(_points(comparisons[args.points]))
    console.print(_table(comparisons))
    if args.write:
        BANDS.write_text(json.dumps(bands(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
