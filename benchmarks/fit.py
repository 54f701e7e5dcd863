"""Compares `ipu_keras` with stock Keras on `fit`, `evaluate` and `predict`.

By default all contenders train in this process, one epoch each per round and in
an order that rotates, from equal weights on the same arrays. Before the rounds
each runs every operation on 32 batches, which holds tracing and compilation and
does not count. `--first-step` and `--memory` measure what that leaves out, each
contender in a fresh process. Nothing is asserted: goals are shown, met or not.
"""

import argparse
import compileall
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import fresh_process
import keras
import tensorflow as tf
from models import BATCH_SIZE, WORKLOADS, Workload
from rich.console import Console
from rich.table import Table

OPERATIONS = ("fit", "evaluate", "predict")
SEED = 7
SHUFFLE_BUFFER = 1024
NUM_WARM_UP_STEPS = 32
# A stock contender that needs this many times as long as the fastest, once, is not
# run again. A busy machine must not rule out the best one: that would flatter us.
HOPELESS = 3.0


@dataclass(frozen=True)
class Contender:
    """A way to run a model.

    Args:
        steps_per_execution: Passed to `compile`.
        jit_compile: Passed to `compile`.
        on_ipu: Whether the model is created in the scope of an `IPUStrategy`.
        environment: Variables of the process, which has to be one of its own.
    """

    steps_per_execution: int = 1
    jit_compile: bool | str = False
    on_ipu: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


# With them, what a program costs is modelled before it runs, however small it is.
MODELLED = {"POPLAR_ENGINE_OPTIONS": '{"debug.allowOutOfMemory": "false"}'}

IPU = "ipu_keras"
IPU_DEFAULT = "ipu_keras x1"
IPU_MODELLED = "modelled x1"
DEFAULT = "stock"
CONTENDERS = {
    IPU: Contender(steps_per_execution=32, jit_compile="auto", on_ipu=True),
    IPU_DEFAULT: Contender(jit_compile="auto", on_ipu=True),
    IPU_MODELLED: Contender(jit_compile="auto", on_ipu=True, environment=MODELLED),
    # With "auto", which is the default, stock Keras does not use XLA on a machine
    # that has only CPUs. It has to be said here, because "auto" would look at the
    # devices of this process, and an emulated IPU may be one of them.
    DEFAULT: Contender(),
    "stock x32": Contender(steps_per_execution=32),
    "stock jit": Contender(jit_compile=True),
    "stock jit x32": Contender(steps_per_execution=32, jit_compile=True),
}
SPEED_CONTENDERS = [name for name in CONTENDERS if name not in (IPU_DEFAULT, IPU_MODELLED)]


@dataclass(frozen=True)
class Goal:
    """How many times faster than stock Keras `ipu_keras` means to be.

    Args:
        default: Against stock with default arguments, or `None` for no goal.
        best: Against the fastest stock contender.
    """

    default: float | None
    best: float


FIT_GOALS = {
    "mlp": Goal(4.0, 1.6),
    "cnn28": Goal(1.2, 1.03),
    "cnn32": Goal(1.08, 1.0),
    "cnn32_batch_norm": Goal(1.08, 1.0),
    "lstm": Goal(2.2, 1.4),
    "transformer": Goal(1.4, 1.05),
    "transformer_dropout": Goal(1.1, 1.05),
}
INFERENCE_GOAL = Goal(None, 1.0)


@dataclass(frozen=True)
class FreshProcesses:
    """Two contenders that are compared in fresh processes, with the same steps per execution.

    Args:
        contender: The name of one.
        baseline: The name of the other.
        first_step: How many times as long the first may take to its first step.
        memory: How many times as much memory it may need.
    """

    contender: str
    baseline: str
    first_step: float
    memory: float


FRESH_PROCESSES = (
    FreshProcesses(IPU_DEFAULT, DEFAULT, first_step=1.0, memory=1.3),
    FreshProcesses(IPU, "stock x32", first_step=1.0, memory=1.3),
    FreshProcesses(IPU_MODELLED, IPU_DEFAULT, first_step=1.3, memory=1.3),
)

Times = dict[str, list[float]]


class Datasets:
    """The pipelines of one workload, shared by all contenders.

    Args:
        workload: What to make data for.
    """

    def __init__(self, workload: Workload):
        inputs, labels = workload.make_data()
        examples = tf.data.Dataset.from_tensor_slices((inputs, labels))
        self.fit = _batched(examples.shuffle(SHUFFLE_BUFFER, seed=SEED))
        self.evaluate = _batched(examples)
        self.predict = _batched(tf.data.Dataset.from_tensor_slices(inputs))


def _batched(examples: tf.data.Dataset) -> tf.data.Dataset:
    # There is nothing to tune here, but closing an iterator often waits until the
    # tuner wakes up, 10, 30, 70 ... 2550, 5110 ms after the start of the epoch.
    # That is up to half of the time, and would drown what is compared.
    options = tf.data.Options()
    options.autotune.enabled = False
    return examples.batch(BATCH_SIZE, drop_remainder=True).prefetch(2).with_options(options)


def ipu_strategy(*, fast_math: bool = False) -> tf.distribute.Strategy:
    """Returns a strategy for one emulated IPU, configured on the first call."""
    # Imported here so that the fresh process of a stock contender never sees it.
    from tensorflow.python import ipu

    if not tf.config.list_logical_devices("IPU"):
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.optimizations.enable_fast_math = fast_math
        config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy()


def build(workload: Workload, contender: Contender) -> keras.Model:
    """Returns a compiled model; its initial weights are the same for all contenders."""
    keras.utils.set_random_seed(SEED)
    if contender.on_ipu:
        with ipu_strategy().scope():
            return _compiled(workload, contender)
    return _compiled(workload, contender)


def _compiled(workload: Workload, contender: Contender) -> keras.Model:
    model = workload.build()
    model.compile(
        optimizer="adam",
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        steps_per_execution=contender.steps_per_execution,
        jit_compile=contender.jit_compile,
    )
    return model


def run_once(model: keras.Model, operation: str, dataset: tf.data.Dataset) -> float:
    """Returns the seconds that one pass over the data takes."""
    start = time.perf_counter()
    # `fit` would warn that it does not shuffle a dataset: this one shuffles itself.
    options = {"shuffle": False} if operation == "fit" else {}
    getattr(model, operation)(dataset, verbose=0, **options)
    return time.perf_counter() - start


def measure(
    workload: Workload, contenders: list[str], operations: Iterable[str], num_rounds: int
) -> dict[str, Times]:
    """Returns ms/step by operation and contender, one number per round.

    Stock contenders that the first round shows to be hopeless run in that one only.
    """
    datasets = Datasets(workload)
    models = {name: build(workload, CONTENDERS[name]) for name in contenders}
    first = models[contenders[0]]
    for model in models.values():
        model.set_weights(first.get_weights())
    for model in models.values():
        for operation in operations:
            run_once(model, operation, getattr(datasets, operation).take(NUM_WARM_UP_STEPS))

    results: dict[str, Times] = {operation: {c: [] for c in contenders} for operation in operations}
    for index in range(num_rounds):
        # Rotated, so that no contender always runs in the wake of the same one.
        shift = index % len(contenders)
        for operation, times in results.items():
            dropped = hopeless(times) if index else ()
            for name in contenders[shift:] + contenders[:shift]:
                if name not in dropped:
                    seconds = run_once(models[name], operation, getattr(datasets, operation))
                    times[name].append(1000 * seconds / workload.num_steps)
    return results


def hopeless(times: Times) -> set[str]:
    """Returns the contenders that the first round rules out as stock's best."""
    stock = {name: rounds[0] for name, rounds in times.items() if not CONTENDERS[name].on_ipu}
    return {
        name
        for name, ms_per_step in stock.items()
        if name != DEFAULT and ms_per_step > HOPELESS * min(stock.values())
    }


def probe(workload: Workload, contender: Contender) -> dict[str, float]:
    """Returns what one contender needs in this process, which must be a fresh one.

    TensorFlow and Keras are imported and the data is made when the time to the first step starts.
    """
    datasets = Datasets(workload)
    return fresh_process.probe(lambda: build(workload, contender), datasets.fit, shuffle=False)


def probe_in_fresh_processes(
    name: str, contenders: list[str], num_rounds: int, others: Mapping[str, list[str]]
) -> dict[str, dict[str, list[float]]]:
    """Returns the results of `probe` by what was measured and contender.

    Args:
        name: Of the model.
        contenders: Names of those of this file.
        num_rounds: How often each runs, in turns.
        others: Commands that print what `probe` returns, by name.
    """
    # pip does this when it installs a package; in a checkout it may not have been done yet.
    for package in find_spec("ipu_keras").submodule_search_locations:
        compileall.compile_dir(package, quiet=1)
    commands = {c: [sys.executable, __file__, "--models", name, "--probe", c] for c in contenders}
    commands |= others
    results: dict[str, Times] = {key: {c: [] for c in commands} for key in ("first_step", "memory")}
    for _ in range(num_rounds):
        for contender, command in commands.items():
            extra = CONTENDERS[contender].environment if contender in CONTENDERS else {}
            process = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **extra}
            )
            for key, value in json.loads(process.stdout).items():
                results[key][contender].append(value)
    return results


def best_stock(times: Times) -> str | None:
    """Returns the stock contender with the smallest median, if any has run."""
    dropped = hopeless(times)
    stock = [name for name in times if not CONTENDERS[name].on_ipu and name not in dropped]
    return min(stock, key=lambda name: median(times[name]), default=None)


def ratios(numerators: list[float], denominators: list[float]) -> tuple[float, float]:
    """Returns the ratio of the medians and the median of the ratios per round."""
    per_round = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return median(numerators) / median(denominators), median(per_round)


def _judged(ratio: tuple[float, float], met: bool | None, goal: str) -> str:
    of_medians, of_rounds = ratio
    text = f"{of_medians:.2f} ({of_rounds:.2f})"
    if met is None:
        return text
    return f"{text} {'[green]✓' if met else '[red]✗'} {goal}[/]"


def _speedup(times: Times, baseline: str | None, goal: float | None) -> str:
    if baseline not in times or IPU not in times:
        return "-"
    ratio = ratios(times[baseline], times[IPU])
    return _judged(ratio, None if goal is None else ratio[0] >= goal, f"≥ {goal}")


def speed_table(operation: str, results: dict[str, Times], goals: Callable[[str], Goal]) -> Table:
    """Returns ms/step and speed-ups of one operation, a row per model."""
    contenders = list(next(iter(results.values())))
    table = Table(title=f"{operation}: ms/step, median of rounds", title_justify="left")
    table.add_column("model")
    for name in contenders:
        table.add_column(name, justify="right")
    table.add_column("vs stock")
    table.add_column("vs best stock")
    for model, times in results.items():
        best = best_stock(times)
        dropped = hopeless(times)
        medians = [
            f"{'* ' if name == best else ''}{median(times[name]):.2f}"
            f"{'¹' if name in dropped else ''}"
            for name in contenders
        ]
        goal = goals(model)
        table.add_row(
            model,
            *medians,
            _speedup(times, DEFAULT, goal.default),
            _speedup(times, best, goal.best),
        )
    return table


def cost_table(
    title: str, results: dict[str, Times], goal_of: Callable[[FreshProcesses], float]
) -> Table:
    """Returns what fresh processes needed and how it compares, a row per model."""
    contenders = list(next(iter(results.values())))
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    for name in contenders:
        table.add_column(name, justify="right")
    pairs = [pair for pair in FRESH_PROCESSES if {pair.contender, pair.baseline} <= {*contenders}]
    for pair in pairs:
        table.add_column(f"{pair.contender} / {pair.baseline}")
    for model, costs in results.items():
        judged = []
        for pair in pairs:
            ratio = ratios(costs[pair.contender], costs[pair.baseline])
            judged.append(_judged(ratio, ratio[0] <= goal_of(pair), f"≤ {goal_of(pair)}"))
        table.add_row(model, *(f"{median(costs[name]):.2f}" for name in contenders), *judged)
    return table


def compare_speed(console: Console, args: argparse.Namespace) -> dict:
    """Measures and prints the interleaved comparison; returns the raw numbers."""
    # Long trainings are compared: XLA compiles what the steps before the rounds run.
    os.environ["IPU_KERAS_FIRST_STEPS"] = "0"
    by_operation: dict[str, dict[str, Times]] = {operation: {} for operation in args.only}
    for model in args.models:
        start = time.perf_counter()
        with console.status(f"{model}: {args.rounds} rounds"):
            measured = measure(WORKLOADS[model], args.contenders, args.only, args.rounds)
        console.print(f"[dim]{model}: {time.perf_counter() - start:.0f} s")
        for operation, times in measured.items():
            by_operation[operation][model] = times
        keras.backend.clear_session()
    for operation, results in by_operation.items():
        goals = FIT_GOALS.__getitem__ if operation == "fit" else lambda model: INFERENCE_GOAL
        console.print(speed_table(operation, results, goals))
    console.print(
        "Tracing and compilation are not included: 32 steps of each operation ran before. "
        "tf.data's autotuning is off.\n"
        "Speed-ups: ratio of medians (median of the ratios per round) and goal. "
        f"* is stock's best; ¹ ran once, being {HOPELESS:g}x slower."
    )
    return by_operation


def compare_fresh_processes(
    console: Console,
    args: argparse.Namespace,
    others: Callable[[str], Mapping[str, list[str]]] = lambda model: {},
) -> dict:
    """Measures and prints time to first step and memory; returns the raw numbers.

    Args:
        console: Where to print.
        args: Those of `parse_arguments`.
        others: Returns the commands of further contenders for a model, by name.
    """
    results: dict[str, dict[str, Times]] = {"first_step": {}, "memory": {}}
    for model in args.models:
        with console.status(f"{model}: {args.rounds} rounds of fresh processes"):
            probed = probe_in_fresh_processes(model, args.contenders, args.rounds, others(model))
        for key, costs in probed.items():
            results[key][model] = costs
    if args.first_step:
        title = "Time to the first step, s"
        console.print(cost_table(title, results["first_step"], lambda pair: pair.first_step))
        console.print(
            "From the start of building the model (importing and configuring the IPU included, "
            "importing TensorFlow not)\nto the end of the first execution: 1 step, or 32 with "
            "ipu_keras and stock x32."
        )
    if args.memory:
        title = "Peak memory of the process, MB"
        console.print(cost_table(title, results["memory"], lambda pair: pair.memory))
    return results


def _subset_of(allowed: Iterable[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(
                    f"expected some of {','.join(allowed)}, separated by commas. Received: {name}"
                )
        return names

    return parse


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=_subset_of(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--contenders", type=_subset_of(CONTENDERS), help="default: all")
    parser.add_argument("--only", type=_subset_of(OPERATIONS), default=list(OPERATIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first-step", action="store_true", help="time to the first step")
    parser.add_argument("--memory", action="store_true", help="peak memory")
    parser.add_argument(
        "--fast-math", action="store_true", help="with optimizations.enable_fast_math"
    )
    parser.add_argument(
        "--modelled", action="store_true", help="with all of our programs modelled first"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers")
    parser.add_argument("--probe", choices=CONTENDERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    fresh = args.first_step or args.memory
    if fresh and (args.fast_math or args.modelled):
        parser.error("--fast-math and --modelled are for speed in this process, not fresh ones")
    if args.contenders is None:
        args.contenders = (
            list(
                dict.fromkeys(
                    n for pair in FRESH_PROCESSES for n in (pair.contender, pair.baseline)
                )
            )
            if fresh
            else SPEED_CONTENDERS
        )
    if not fresh and any(CONTENDERS[name].environment for name in args.contenders):
        parser.error(f"{IPU_MODELLED!r} needs a process of its own; for speed, see --modelled")
    return args


def machine() -> dict[str, str | int | None]:
    """Returns what the numbers depend on besides the code."""
    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }


def main() -> None:
    args = parse_arguments()
    if args.probe:
        (model,) = args.models
        print(json.dumps(probe(WORKLOADS[model], CONTENDERS[args.probe])))
        return
    # Without a terminal rich assumes 80 columns, too few for the tables.
    console = Console(width=None if sys.stdout.isatty() else 140)
    about = machine()
    console.print(", ".join(f"{key} {value}" for key, value in about.items()), style="dim")
    if args.fast_math:
        ipu_strategy(fast_math=True)  # the first call configures
    if args.modelled:
        os.environ |= MODELLED
    fresh = args.first_step or args.memory
    results = (compare_fresh_processes if fresh else compare_speed)(console, args)
    if args.json:
        args.json.write_text(json.dumps({"machine": about, "results": results}, indent=1))


if __name__ == "__main__":
    main()
