"""Compares short calls, steps of `fit` and first steps with stock Keras, on TensorFlow and on JAX.

A backend is chosen once for a process, so each side has one of its own (`call_worker.py`). They
take turns, one call after the other: in a turn, a side runs the call once, which does not count, as
the others have used the caches of the processor since, and then a few times more. What is printed
are medians over the turns, of the median of each. Nothing is asserted: goals are shown, met or not.

Keras on JAX is left out unless `--jax-environment` says where it is, or is to be installed.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
from call_worker import EPOCH, NUM_STEPS, STEPS_PER_EXECUTION
from fit import DEFAULT, IPU, IPU_DEFAULT, compare_fresh_processes, machine
from models import WORKLOADS
from rich.console import Console
from rich.table import Table

MODEL = "mlp"
WORKER = str(Path(__file__).with_name("call_worker.py"))
STOCK, JAX, HERE = "stock", "Keras on JAX", "ipu_keras"
# Of the calls of a turn that count; an epoch is as long as many others.
NUM_CALLS = 3
# Steps before what counts, which hold tracing and compilation.
WARM_UP_STEPS = 4
# Short calls are those of a process that has run for long: XLA compiles what it runs at once.
COMPILED = {"IPU_KERAS_FIRST_STEPS": "0"}


@dataclass(frozen=True)
class Call:
    """A call that is measured.

    Args:
        title: What it is.
        goal: Milliseconds that it means to take at most, or `None`.
        goal_of_jax: The same in times of Keras on JAX.
        num_calls: How many of a turn count.
        num_steps: The time is that of one step of so many.
    """

    title: str
    goal: float | None = None
    goal_of_jax: float | None = None
    num_calls: int = NUM_CALLS
    num_steps: int = 1


CALLS = {
    "fit": Call(f"fit, {NUM_STEPS} steps", goal=4.0),
    "evaluate": Call(f"evaluate, {NUM_STEPS} steps", goal=4.0),
    "predict": Call(f"predict, {NUM_STEPS} steps", goal=2.5),
    "train_on_batch": Call("train_on_batch", goal=1.2),
    "predict_on_batch": Call("predict_on_batch", goal=0.3),
    "model(x)": Call("model(x)", goal_of_jax=1.3),
}
# How many times as fast as Keras on JAX a step of `fit` means to be.
GOALS_OF_STEPS = {"mlp": 1.2, "cnn28": 2.7, "lstm": 1.7, "transformer": 2.0}

# Milliseconds by side, one for each turn, of what `Call` describes.
Times = dict[str, dict[str, list[float]]]
Row = tuple[Call, dict[str, list[float]]]
Side = Callable[[str, int], list[float]]


def make_jax_environment(directory: Path) -> Path:
    """Returns the Python of an environment with Keras on JAX, which is made if there is none.

    Args:
        directory: Where it is. It is not there, or was made by this.

    Raises:
        SystemExit: It is there and has no Keras on JAX, or another version of Keras.
    """
    python = directory / "bin" / "python"
    if not directory.exists():
        venv.create(directory, with_pip=True)
        packages = ["jax", f"keras=={keras.__version__}"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    elif not python.exists():
        raise SystemExit(
            "`--jax-environment` must be an environment that this has made, or a folder that does "
            f"not exist yet. Received: {directory}, which has no bin/python."
        )
    asked = "import jax, keras; print(keras.__version__)"
    found = subprocess.run(
        [python, "-c", asked], env=_on_jax(), stdout=subprocess.PIPE, text=True, check=False
    )
    if found.returncode or found.stdout.strip() != keras.__version__:
        raise SystemExit(
            f"`--jax-environment` must have Keras {keras.__version__} and JAX; delete it to have "
            f"it made again. Received: {directory}, which has Keras {found.stdout.strip()!r}."
        )
    return python


def _on_jax() -> dict[str, str]:
    return {**os.environ, "KERAS_BACKEND": "jax"}


@contextmanager
def running(command: Sequence[str | Path], environment: Mapping[str, str]) -> Iterator[Side]:
    """A side that runs until the end of the block, as a function from a call to its seconds."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:

        def seconds(name: str, count: int) -> list[float]:
            process.stdin.write(json.dumps([name, count]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"{' '.join(map(str, command))} ended while it ran {name!r}.")
            return json.loads(line)

        yield seconds
        process.stdin.close()


def step_of_fit(model: str) -> Call:
    """A step of a model's epoch, in long executions."""
    goal = GOALS_OF_STEPS.get(model)
    return Call(
        model,
        goal_of_jax=None if goal is None else round(1 / goal, 2),
        num_calls=1,
        num_steps=WORKLOADS[model].num_steps,
    )


def measure(model: str, calls: Mapping[str, Call], jax: Path | None, num_turns: int) -> Times:
    """Returns the milliseconds of each call on each side.

    Args:
        model: Of `models.py`.
        calls: By the name that `call_worker.py` has for them.
        jax: The Python of the environment of Keras on JAX, if there is one.
        num_turns: How often each side runs each call.
    """
    times: Times = {}
    with ExitStack() as stack:
        commands = {STOCK: ([sys.executable, WORKER, model], os.environ)}
        if jax is not None:
            commands[JAX] = ([jax, WORKER, model], _on_jax())
        commands[HERE] = ([sys.executable, WORKER, model, "--on-ipu"], os.environ | COMPILED)
        sides = {side: stack.enter_context(running(*command)) for side, command in commands.items()}
        names = list(sides)
        for name, call in calls.items():
            times[name] = {side: [] for side in names}
            for run in sides.values():
                run(name, math.ceil(WARM_UP_STEPS / call.num_steps))
            for turn in range(num_turns):
                # Rotated, so that no side always runs in the wake of the same one.
                shift = turn % len(names)
                for side in names[shift:] + names[:shift]:
                    seconds = sides[side](name, 1 + call.num_calls)[1:]
                    times[name][side].append(1000 * median(seconds) / call.num_steps)
    return times


def _judged(value: float, goal: float | None) -> str:
    if goal is None:
        return f"{value:.2f}"
    return f"{value:.2f} {'[green]✓' if value <= goal else '[red]✗'} ≤ {goal}[/]"


def table_of(title: str, what: str, rows: Sequence[Row]) -> Table:
    """Returns the medians, and how they compare.

    Args:
        title: Of the table.
        what: Of the column that says what a row is.
        rows: What was measured, and the milliseconds of each side.
    """
    table = Table(title=f"{title}, ms, medians", title_justify="left")
    table.add_column(what)
    sides = list(rows[0][1])
    for side in (*sides, *(f"{HERE} / {side}" for side in sides if side != HERE)):
        table.add_column(side, justify="right")
    for call, by_side in rows:
        medians = {side: median(measured) for side, measured in by_side.items()}
        here = medians.pop(HERE)
        ratios = [
            _judged(here / other, call.goal_of_jax if side == JAX else None)
            for side, other in medians.items()
        ]
        times_of_others = [f"{other:.2f}" for other in medians.values()]
        table.add_row(call.title, *times_of_others, _judged(here, call.goal), *ratios)
    return table


def compare_calls(console: Console, jax: Path | None, num_turns: int) -> Times:
    """Measures and prints short calls; returns the raw numbers."""
    with console.status(f"{num_turns} turns of {len(CALLS)} calls"):
        times = measure(MODEL, CALLS, jax, num_turns)
    rows = [(CALLS[name], by_side) for name, by_side in times.items()]
    console.print(table_of(f"Short calls of the {MODEL}", "call", rows))
    return times


def compare_steps(
    console: Console, jax: Path | None, models: Sequence[str], num_turns: int
) -> Times:
    """Measures and prints steps of `fit` of models; returns the raw numbers."""
    times, rows = {}, []
    for model in models:
        call = step_of_fit(model)
        with console.status(f"{num_turns} turns of an epoch: {model}"):
            times[model] = measure(model, {EPOCH: call}, jax, num_turns)[EPOCH]
        rows.append((call, times[model]))
    title = f"A step of fit, {STEPS_PER_EXECUTION} an execution"
    console.print(table_of(title, "model", rows))
    return times


def compare_first_steps(console: Console, jax: Path | None, args: argparse.Namespace) -> dict:
    """Measures and prints first steps; returns the raw numbers."""

    def on_jax(model: str) -> dict[str, list[str]]:
        if jax is None:
            return {}
        return {
            f"{JAX} x{steps}": [
                "env",
                "KERAS_BACKEND=jax",
                str(jax),
                WORKER,
                model,
                f"--probe={steps}",
            ]
            for steps in (1, STEPS_PER_EXECUTION)
        }

    asked = argparse.Namespace(
        models=args.models,
        contenders=[IPU_DEFAULT, DEFAULT, IPU, f"stock x{STEPS_PER_EXECUTION}"],
        rounds=args.rounds,
        first_step=True,
        memory=False,
    )
    results = compare_fresh_processes(console, asked, on_jax)
    if jax is not None:
        console.print(
            f"{JAX} trains on arrays, without a metric; the others on a `tf.data` pipeline."
        )
    return results


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=["calls", "steps", "first-steps"], help="default: all")
    parser.add_argument(
        "--jax-environment",
        type=Path,
        metavar="DIR",
        help="an environment with Keras on JAX; it is made if it does not exist",
    )
    parser.add_argument("--turns", type=int, default=30, help="of each call on each side")
    parser.add_argument("--epochs", type=int, default=9, help="of each model on each side")
    parser.add_argument("--models", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=3, help="of first steps")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    jax = args.jax_environment and make_jax_environment(args.jax_environment)
    # Without a terminal rich assumes 80 columns, too few for the tables.
    console = Console(width=None if sys.stdout.isatty() else 140)
    about = machine()
    console.print(", ".join(f"{key} {value}" for key, value in about.items()), style="dim")
    if jax is None:
        console.print(
            f"Without {JAX}: --jax-environment DIR installs it there, and has it run too."
        )
    results: dict = {"machine": about}
    if args.only in (None, "calls"):
        results["calls"] = compare_calls(console, jax, args.turns)
    if args.only in (None, "steps"):
        results["steps"] = compare_steps(console, jax, args.models, args.epochs)
    if args.only in (None, "first-steps"):
        results["first_steps"] = compare_first_steps(console, jax, args)["first_step"]
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
