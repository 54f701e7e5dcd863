"""How long it takes to model programs, by their length, and for two well-known ones.

The same network is modelled at once, twice and four times its depth, in turns, and medians
are compared: the time of an operation should stay what it is. ResNet-50 is profiled in a
process of its own, whose peak memory is shown. Goals are printed below.
"""

import argparse
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from keras import layers
from rich.console import Console
from rich.table import Table

from ipu_keras import profile
from ipu_keras.cost.passes import model_graph
from ipu_keras.ir import Graph
from ipu_keras.machine.target import TARGETS
from ipu_keras.report.report import Report
from ipu_keras.tracing import traced_for_xla
from ipu_keras.tracing.hlo import hlo_graph

DEPTHS = (1, 2, 4)
TARGET = TARGETS["gc200"]

# The parts of modelling a step, in their order.
PARTS = ("tracing", "XLA, reading", "passes", "report")
GOALS = (
    "Goals: MLP ≤ 0.3 s without tracing; ResNet-50 ≤ 30 s in all, of which passes ≤ 5 s, and ≤ 4 GB"
)


def seconds(
    call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Any]:
    """The time of a call, and what it returns."""
    start = clock()
    result = call()
    return clock() - start, result


def chain(depth: int) -> Graph:
    """The training step of ten blocks of convolution and normalization for each of `depth`."""
    model = keras.Sequential([keras.Input((16, 16, 8))])
    for index in range(10 * depth):
        model.add(layers.Conv2D(8 + 8 * (index % 3), 3, padding="same"))
        model.add(layers.BatchNormalization())
        model.add(layers.ReLU())
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(10, activation="softmax"))
    model.compile("adam", "sparse_categorical_crossentropy")
    specs = tf.TensorSpec((8, 16, 16, 8)), tf.TensorSpec((8,), tf.int32)
    return profile(model, *specs).model.graph


def pass_times(graphs: dict[int, Graph], rounds: int) -> dict[int, float]:
    """Median seconds of the passes over each graph; in a round, each of them has a turn.

    They run in one thread, whose own time other work on the machine disturbs least.
    """
    times: dict[int, list[float]] = {depth: [] for depth in graphs}
    for _ in range(rounds):
        for depth, graph in graphs.items():
            run = partial(model_graph, "step", graph, TARGET)
            times[depth].append(seconds(run, time.thread_time)[0])
    return {depth: median(found) for depth, found in times.items()}


def part_times(model: keras.Model, *specs: tf.TensorSpec) -> list[float]:
    """Seconds of each of `PARTS` for a training step of a model that has been built."""

    def step(*data):
        with traced_for_xla():
            return model.train_step(data)

    function = tf.function(step, autograph=False)
    tracing, traced = seconds(lambda: function.get_concrete_function(*specs))
    reading, graph = seconds(lambda: hlo_graph(traced))
    passes, modelled = seconds(lambda: model_graph("step", graph, TARGET))
    reporting, _ = seconds(lambda: Report.of(modelled).to_json())
    return [tracing, reading, passes, reporting]


def mlp_times(rounds: int) -> list[float]:
    """Median seconds of each of `PARTS` for the demo's perceptron."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    specs = tf.TensorSpec((16, 8, 8, 1)), tf.TensorSpec((16,), tf.int32)
    profile(model, *specs)  # builds it, and starts XLA
    times = [part_times(model, *specs) for _ in range(rounds)]
    return [median(part) for part in zip(*times, strict=True)]


def resnet50_times() -> tuple[float, int, list[float]]:
    """Of ResNet-50's training step in float16: seconds in all, peak bytes, seconds of the parts."""
    keras.config.set_dtype_policy("float16")
    model = keras.applications.ResNet50(weights=None)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    specs = tf.TensorSpec((4, 224, 224, 3), tf.float16), tf.TensorSpec((4,), tf.int32)
    in_all, _ = seconds(lambda: profile(model, *specs).to_json())
    # Linux counts in units of 1024 bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return in_all, peak, part_times(model, *specs)


def in_a_fresh_process(function: Callable[[], Any]) -> Any:
    """What a function returns in a process that has done nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function).result()


def scaling_table(graphs: dict[int, Graph], times: dict[int, float]) -> Table:
    """A line for each depth."""
    table = Table(title="Passes of the cost model", title_justify="left")
    for column in ("depth", "ops", "seconds", "µs per op"):
        table.add_column(column, justify="right")
    for depth, graph in graphs.items():
        per_op = times[depth] / len(graph.ops) * 1e6
        table.add_row(f"{depth}x", f"{len(graph.ops):,}", f"{times[depth]:.3f}", f"{per_op:.1f}")
    return table


def program_table(
    mlp: list[float], resnet50: list[float], resnet50_in_all: float, resnet50_peak: int
) -> Table:
    """A line for each of the two programs."""
    table = Table(title="A training step, in seconds", title_justify="left")
    table.add_column("model")
    for column in (*PARTS, "in all", "peak GB"):
        table.add_column(column, justify="right")
    for name, parts, in_all, peak in (
        ("MLP", mlp, "", ""),
        ("ResNet-50", resnet50, f"{resnet50_in_all:.1f}", f"{resnet50_peak / 1e9:.2f}"),
    ):
        table.add_row(name, *(f"{part:.3f}" for part in parts), in_all, peak)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="of which medians are taken")
    rounds = parser.parse_args().rounds
    console = Console()
    in_all, peak, resnet50 = in_a_fresh_process(resnet50_times)
    graphs = {depth: chain(depth) for depth in DEPTHS}
    console.print(scaling_table(graphs, pass_times(graphs, rounds)))
    console.print(program_table(mlp_times(rounds), resnet50, in_all, peak))
    console.print(GOALS)
    load = os.getloadavg()[1]
    console.print(
        f"Load of the machine in the last 5 minutes: {load:.1f} on {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
