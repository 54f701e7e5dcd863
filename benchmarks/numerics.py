"""Compares training with halves, as an IPU computes them, with training in float32.

`float16_esr` is float16 with stochastic rounding, which has goals as a multiple of float16, and
`float32_exceptions` is float32 where `inv`, `div0` and `oflo` stop.

Run `python benchmarks/numerics.py`. All contenders of a model train in this process, an epoch each
per round and in an order that rotates, and medians of processor time are compared: work of others
on the machine disturbs them less than it does times of a clock. Before the rounds each trains one
epoch, which holds tracing and compilation and is shown apart. XLA compiles from the start. Nothing
is asserted: goals are shown, met or not.
"""

import argparse
import os
import time
from collections.abc import Iterable
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("IPU_KERAS_FIRST_STEPS", "0")

import keras
from models import BATCH_SIZE, WORKLOADS
from rich.console import Console
from rich.table import Table
from tensorflow.python import ipu

FLOAT32, HALF, MIXED, STOCHASTIC = "float32", "float16", "mixed_float16", "float16_esr"
EXCEPTIONS = "float32_exceptions"
POLICIES = {STOCHASTIC: HALF, EXCEPTIONS: FLOAT32}

# By model and contender: at most so many times the processor time of float32.
GOALS = {
    ("mlp", HALF): 1.2,
    ("cnn28", HALF): 2.0,
    ("transformer", HALF): 1.5,
    ("cnn28", MIXED): 1.5,
    **{(model, EXCEPTIONS): 1.3 for model in ("mlp", "cnn28", "transformer")},
}
# The same of float16, for a step and for the first epoch.
GOALS_OF_HALF = {STOCHASTIC: (1.3, 1.5)}


def build(
    strategy: ipu.ipu_strategy.IPUStrategy, model: str, contender: str, steps_per_execution: int
) -> keras.Model:
    keras.utils.set_random_seed(7)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(POLICIES.get(contender, contender))
    try:
        with strategy.scope():
            built = WORKLOADS[model].build()
            built.compile(
                keras.optimizers.Adam(epsilon=1e-3),
                "sparse_categorical_crossentropy",
                steps_per_execution=steps_per_execution,
            )
    finally:
        keras.config.set_dtype_policy(before)
    return built


def configure(contender: str) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    behaviour = config.floating_point_behaviour
    behaviour.esr = contender == STOCHASTIC
    behaviour.inv = behaviour.div0 = behaviour.oflo = contender == EXCEPTIONS
    ipu.config.reset_ipu_configuration()
    config.configure_ipu_system()


def measured(
    model: str, contenders: Iterable[str], num_steps: int, num_rounds: int, steps_per_execution: int
) -> dict[str, tuple[float, float]]:
    """Returns milliseconds of a step, and seconds of the first epoch, by contender."""
    configure(FLOAT32)
    strategy = ipu.ipu_strategy.IPUStrategy()
    x, y = (array[: num_steps * BATCH_SIZE] for array in WORKLOADS[model].make_data())
    models = {name: build(strategy, model, name, steps_per_execution) for name in contenders}

    def train(name: str) -> float:
        # Models compute as is configured when they run.
        configure(name)
        start = time.process_time()
        models[name].fit(x, y, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
        return time.process_time() - start

    names = list(models)
    first = {name: train(name) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for k in range(num_rounds):
        for place in range(len(names)):
            name = names[(k + place) % len(names)]
            times[name].append(train(name))
    return {name: (median(times[name]) / num_steps * 1e3, first[name]) for name in names}


def said(ratio: float, goal: float) -> str:
    return f"{ratio:.2f} of {goal:.2f}, {'met' if ratio <= goal else 'not met'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    models = ("mlp", "cnn28", "transformer")
    parser.add_argument("--models", nargs="*", choices=models, default=models)
    parser.add_argument(
        "--contenders", nargs="*", default=(FLOAT32, HALF, MIXED, STOCHASTIC, EXCEPTIONS)
    )
    parser.add_argument("--steps", type=int, default=64, help="per epoch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps-per-execution", type=int, default=32)
    options = parser.parse_args()
    table = Table("model", "numbers", "ms a step", "of float32", "goal", "first epoch, s")
    for model in options.models:
        found = measured(
            model, options.contenders, options.steps, options.rounds, options.steps_per_execution
        )
        whole = found[FLOAT32][0]
        for name, (step, first) in found.items():
            ratio, met = step / whole, ""
            if name in GOALS_OF_HALF and HALF in found:
                ratios = step / found[HALF][0], first / found[HALF][1]
                met = "; ".join(map(said, ratios, GOALS_OF_HALF[name]))
            elif (model, name) in GOALS:
                met = said(ratio, GOALS[model, name])
            table.add_row(model, name, f"{step:.2f}", f"{ratio:.2f}", met, f"{first:.1f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
