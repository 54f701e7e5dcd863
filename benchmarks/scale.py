"""Compares accumulation, replicas and pipelines with single steps and with large batches.

All contenders train on the same samples in one process, one epoch each per round in an
order that rotates. `stock mirrored` is stock Keras in a `MirroredStrategy` over as many logical
CPUs as there are replicas. `--compile` measures the time to the first execution instead, in
fresh processes. Nothing is asserted: goals are shown, met or not.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Long trainings are compared, and what XLA takes to compile them.
os.environ["IPU_KERAS_FIRST_STEPS"] = "0"

import keras
import tensorflow as tf
from models import BATCH_SIZE, WORKLOADS, Workload
from rich.console import Console
from rich.table import Table

SEED = 7
REPLICAS = (2, 4, 8)
COUNT = 8
# Batches of an execution, whoever takes them.
BATCHES = 32
MODELS = ("mlp", "cnn28", "cnn32", "lstm", "transformer")
# What accumulating over 8 batches may take, and what replicas may, in times of one batch as large.
GOALS = {"mlp": 1.3}
GOAL = 1.0
PIPELINE_GOAL = 1.1
COMPILE_GOAL_SECONDS = 4.0


@dataclass(frozen=True)
class Contender:
    """A way to train.

    Args:
        batches: Of the workload's size that make one batch of the model.
        accumulated: Steps per weight update.
        replicas: Copies of the model.
        stages: Of a pipeline, if the model has as many layers; 1 for none.
        mirrored: Whether stock Keras runs the replicas.
    """

    batches: int = 1
    accumulated: int = 1
    replicas: int = 1
    stages: int = 1
    mirrored: bool = False


CONTENDERS = {
    "steps": Contender(),
    f"accumulate {COUNT}": Contender(accumulated=COUNT),
    "pipeline": Contender(accumulated=COUNT, stages=4),
    **{f"batch x{r}": Contender(batches=r) for r in REPLICAS},
    **{f"{r} replicas": Contender(replicas=r) for r in REPLICAS},
    **{f"mirrored {r}": Contender(replicas=r, mirrored=True) for r in REPLICAS},
}
# Each with what it is compared with, and the goal by model.
Goal = Callable[[str], float]


def _of_batch(model: str) -> float:
    return GOALS.get(model, GOAL)


PAIRS: Sequence[tuple[str, str, Goal]] = (
    (f"accumulate {COUNT}", "steps", lambda model: 1.0),
    (f"accumulate {COUNT}", f"batch x{COUNT}", _of_batch),
    ("pipeline", f"accumulate {COUNT}", lambda model: PIPELINE_GOAL),
    *((f"{r} replicas", f"batch x{r}", _of_batch) for r in REPLICAS),
    *((f"{r} replicas", f"mirrored {r}", lambda model: 1.0) for r in REPLICAS),
)


def configure() -> None:
    """Gives the process IPU devices with 1, 2, 4 ... IPUs, and CPUs for stock Keras."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    logical = [tf.config.LogicalDeviceConfiguration()] * max(REPLICAS)
    tf.config.set_logical_device_configuration(cpu, logical)
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = [1, *REPLICAS]
    config.configure_ipu_system()


def strategy_of(contender: Contender) -> tf.distribute.Strategy:
    """Returns the strategy that a contender's model is made in."""
    if contender.mirrored:
        # Its default, collectives, lets a process have one model on one number of CPUs only.
        return tf.distribute.MirroredStrategy(
            [f"/cpu:{k}" for k in range(contender.replicas)],
            cross_device_ops=tf.distribute.ReductionToOneDevice(),
        )
    from tensorflow.python import ipu

    # Stages that would be too many for a model are fewer, on a device of as many IPUs.
    ordinal = (1, *REPLICAS).index(contender.replicas * contender.stages)
    return ipu.ipu_strategy.IPUStrategy(f"/device:IPU:{ordinal}")


def build(workload: Workload, contender: Contender) -> keras.Model:
    """Returns a compiled model."""
    keras.utils.set_random_seed(SEED)
    if contender.stages > 1:
        # A grouped pipeline of 2 or 4 stages takes 8 batches, and no stage may be empty.
        fits = len(workload.build().layers) >= contender.stages
        contender = replace(contender, stages=contender.stages if fits else 2)
    # Keras's loop over several steps fails in a MirroredStrategy over CPUs.
    steps = 1 if contender.mirrored else BATCHES // contender.batches // contender.replicas
    with strategy_of(contender).scope():
        model = workload.build()
        model.compile(
            optimizer="adam",
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
            steps_per_execution=steps,
            jit_compile=False if contender.mirrored else "auto",
        )
    if contender.stages > 1:
        assignment = model.get_pipeline_stage_assignment()
        for position, layer in enumerate(assignment):
            layer.pipeline_stage = position * contender.stages // len(assignment)
        model.set_pipeline_stage_assignment(assignment)
        model.set_pipelining_options(contender.accumulated)
    elif contender.accumulated > 1:
        model.set_gradient_accumulation_options(contender.accumulated)
    return model


def dataset_for(workload: Workload, contender: Contender) -> tf.data.Dataset:
    """Returns the workload's samples in batches of the size that the contender takes."""
    options = tf.data.Options()
    # Else closing an iterator waits for the tuner; see benchmarks/fit.py.
    options.autotune.enabled = False
    size = BATCH_SIZE * contender.batches
    if contender.mirrored:
        # MirroredStrategy shares a batch among its replicas.
        size *= contender.replicas
    examples = tf.data.Dataset.from_tensor_slices(workload.make_data())
    return examples.batch(size, drop_remainder=True).prefetch(2).with_options(options)


def measure(workload: Workload, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Returns the ms that each contender takes for a batch of the workload's size, by round."""
    models = {name: build(workload, CONTENDERS[name]) for name in names}
    datasets = {name: dataset_for(workload, CONTENDERS[name]) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    running = []
    for name, model in models.items():
        try:
            model.fit(datasets[name], epochs=1, shuffle=False, verbose=0)
            running.append(name)
        except tf.errors.OpError as error:
            # Stock Keras has models that it cannot train on several logical CPUs.
            if not CONTENDERS[name].mirrored:
                raise
            print(f"{name} fails: {error.message.splitlines()[0]}", file=sys.stderr)
            times[name] = [float("nan")] * rounds
    for index in range(rounds):
        start_at = index % len(running)
        for name in (*running[start_at:], *running[:start_at]):
            start = time.perf_counter()
            models[name].fit(datasets[name], epochs=1, shuffle=False, verbose=0)
            times[name].append(1000 * (time.perf_counter() - start) / workload.num_steps)
    return times


def _ratio(mine: Sequence[float], others: Sequence[float], goal: float) -> str:
    of_medians = median(mine) / median(others)
    of_rounds = median([a / b for a, b in zip(mine, others, strict=True)])
    sign = "[green]✓" if of_medians <= goal else "[red]✗"
    return f"{of_medians:.2f} ({of_rounds:.2f}) {sign} ≤ {goal}[/]"


def speed_tables(results: dict[str, dict[str, list[float]]]) -> list[Table]:
    """Returns a table of times, and one of ratios, with a column per model."""
    times = Table(title="ms per batch of 32 samples, median of rounds", title_justify="left")
    ratios = Table(title="Times of what it is compared with", title_justify="left")
    for table in (times, ratios):
        table.add_column("")
        for model in results:
            table.add_column(model, justify="right")
    names = list(next(iter(results.values())))
    for name in names:
        times.add_row(name, *(f"{median(found[name]):.2f}" for found in results.values()))
    for mine, other, goal in PAIRS:
        if mine in names and other in names:
            cells = (_ratio(found[mine], found[other], goal(m)) for m, found in results.items())
            ratios.add_row(f"{mine} / {other}", *cells)
    return [times, ratios]


def first_execution(model: str, contender: Contender) -> float:
    """Returns the seconds that the first execution takes in this process, a fresh one."""
    from tensorflow.python import ipu

    workload = WORKLOADS[model]
    dataset = dataset_for(workload, contender).take(BATCHES)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = contender.replicas
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        network = workload.build()
    network.compile(
        "adam",
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        steps_per_execution=BATCHES // contender.replicas,
    )
    start = time.perf_counter()
    network.fit(dataset, shuffle=False, verbose=0)
    return time.perf_counter() - start


def compile_table(models: Sequence[str], rounds: int) -> Table:
    """Returns the time to the first execution by model and number of replicas."""
    table = Table(title="Seconds to the end of the first execution", title_justify="left")
    table.add_column("replicas")
    for model in models:
        table.add_column(model, justify="right")
    for replicas in (1, *REPLICAS, 16):
        cells = []
        for model in models:
            command = [sys.executable, __file__, "--probe", str(replicas), "--models", model]
            seconds = [
                json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
                for _ in range(rounds)
            ]
            cells.append(f"{median(seconds):.2f}")
        table.add_row(str(replicas), *cells)
    return table


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="separated by commas")
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="time to the first execution")
    parser.add_argument("--probe", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    models = args.models.split(",")
    if args.probe:
        print(first_execution(models[0], Contender(replicas=args.probe)))
        return
    console = Console(width=None if sys.stdout.isatty() else 160)
    if args.compile:
        console.print(compile_table(models, args.rounds))
        console.print(f"Goal: {COMPILE_GOAL_SECONDS:g} s for 16 replicas of the MLP.")
        return
    configure()
    results = {}
    for model in models:
        results[model] = measure(WORKLOADS[model], args.contenders.split(","), args.rounds)
        keras.backend.clear_session()
    for table in speed_tables(results):
        console.print(table)


if __name__ == "__main__":
    main()
