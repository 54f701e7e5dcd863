"""Short scripts in total: processor time from after the imports to the end, beside stock Keras.

Each kind of script (`short_scripts.py`) trains a few steps, evaluates and predicts once, in
processes of its own that take turns: stock Keras, then `ipu_keras`. Nothing is asserted.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import geometric_mean, median

from rich.console import Console
from rich.table import Table

# What the processor time of each script may be, as a share of stock Keras's; scripts that stock
# Keras has not, or that only tell when XLA pays, have no goal.
GOALS = {
    "mlp": 1.0,
    "several_outputs": 1.0,
    "train_step": 1.0,
    "lstm": 1.0,
    "transformer": 1.0,
    "cnn": 1.1,
    "gan": 1.1,
    "accumulation": 1.0,
    "replicas": 1.1,
    "pipeline": 1.1,
    "strategy_run": 1.1,
    "session": 1.1,
}
# Of which the geometric mean has a goal, too.
WITHOUT_CONVOLUTIONS = ("mlp", "several_outputs", "train_step", "lstm", "transformer")
MEAN_GOAL = 0.8
STOCK, HERE = "stock", "ipu_keras"

Runs = dict[str, list[dict[str, float]]]


def command(script: str, side: str, num_steps: int) -> list[str]:
    """What starts one script in a process of its own."""
    file = str(Path(__file__).parent / "short_scripts.py")
    options = ["--on-ipu"] if side != STOCK else []
    return [sys.executable, file, script, "--steps", str(num_steps), *options]


def measure(script: str, num_turns: int, num_steps: int, trees: dict[str, str]) -> Runs:
    """What the processes of one script measured, by side.

    Args:
        script: Its name.
        num_turns: How often each side runs.
        num_steps: Steps of training.
        trees: Folders of other checkouts to compare with, by name.
    """
    found: Runs = {side: [] for side in (STOCK, HERE, *trees)}
    for _ in range(num_turns):
        for side, runs in found.items():
            environment = dict(os.environ)
            if side in trees:
                environment["PYTHONPATH"] = trees[side]
            process = subprocess.run(
                command(script, side, num_steps),
                env=environment,
                capture_output=True,
                text=True,
            )
            if process.returncode:
                sys.exit(f"{script} failed as {side}:\n{process.stderr}")
            runs.append(json.loads(process.stdout))
    return found


def ratio(runs: Runs, side: str = HERE, key: str = "processor") -> float:
    """The ratio of a side's median to stock Keras's."""
    return median_of(runs[side], key) / median_of(runs[STOCK], key)


def median_of(runs: list[dict[str, float]], key: str) -> float:
    """The median of what several processes measured."""
    return median(run[key] for run in runs)


def table_of(results: dict[str, Runs], num_steps: int) -> Table:
    """Medians of both sides, and what ours consists of, a row for each script."""
    table = Table(title=f"{num_steps} steps, processor s, medians", title_justify="left")
    others = [side for side in next(iter(results.values())) if side not in (STOCK, HERE)]
    headings = ("tracing", "XLA", "memory, MB", "wall s", "wall, stock")
    table.add_column("script")
    for heading in (STOCK, HERE, f"{HERE} / {STOCK}", *others, *headings):
        table.add_column(heading, justify="right")
    for script, runs in results.items():
        share, goal = ratio(runs), GOALS.get(script) if num_steps < 100 else None
        judged = "" if goal is None else f" {'✓' if share <= goal else '✗'} ≤ {goal}"
        ours = runs[HERE]
        table.add_row(
            script,
            f"{median_of(runs[STOCK], 'processor'):.2f}",
            f"{median_of(ours, 'processor'):.2f}",
            f"{share:.2f}{judged}",
            *(f"{median_of(runs[side], 'processor'):.2f}" for side in others),
            f"{median_of(ours, 'tracing'):.2f}",
            f"{median_of(ours, 'compilation'):.2f}",
            f"{median_of(ours, 'memory'):.0f}",
            f"{median_of(ours, 'wall'):.2f}",
            f"{median_of(runs[STOCK], 'wall'):.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scripts", default=",".join(GOALS), help="names, separated by commas")
    parser.add_argument("--turns", type=int, default=3, help="processes of each side")
    parser.add_argument("--steps", type=int, default=48, help="of training")
    parser.add_argument("--tree", help="another checkout to compare with, as a third side")
    parser.add_argument("--json", metavar="FILE", help="write all that was measured")
    args = parser.parse_args()
    console = Console()
    trees = {"other tree": args.tree} if args.tree else {}
    results = {}
    for script in args.scripts.split(","):
        with console.status(script):
            results[script] = measure(script, args.turns, args.steps, trees)
        console.print(f"[dim]{script}: {ratio(results[script]):.2f}")
    console.print(table_of(results, args.steps))
    console.print(
        "From after the imports to the end of the script. Tracing is processor time; XLA is the "
        "wall time of its compilations."
    )
    if set(WITHOUT_CONVOLUTIONS) <= set(results):
        mean = geometric_mean(ratio(results[script]) for script in WITHOUT_CONVOLUTIONS)
        met = "✓" if mean <= MEAN_GOAL else "✗"
        console.print(f"Geometric mean of {', '.join(WITHOUT_CONVOLUTIONS)}: {mean:.2f} {met}")
    if args.json:
        Path(args.json).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
