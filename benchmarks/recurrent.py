"""Compares training with Popnn's recurrent layers and with Keras's own.

Run `python benchmarks/recurrent.py`. All contenders train in this process, an epoch each per
round and in an order that rotates, from equal weights on the same arrays; the medians are
compared. Before the rounds each trains one epoch, which holds tracing and compilation. Work of
others on the machine disturbs all contenders, and ratios less than times.
"""

import argparse
import os
import time
from collections.abc import Callable
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from ipu_tensorflow_addons.keras.layers import PopnnGRU, PopnnLSTM
from rich.console import Console
from rich.table import Table
from tensorflow.python import ipu

BATCH_SIZE, TIME, FEATURES, UNITS = 32, 64, 64, 64
STEPS_PER_EXECUTION = 32
LAYERS = {
    "LSTM": (keras.layers.LSTM, PopnnLSTM),
    "GRU": (keras.layers.GRU, PopnnGRU),
}


def build(layer_class: type, **compile_options: object) -> keras.Model:
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [
            keras.Input((TIME, FEATURES), batch_size=BATCH_SIZE),
            layer_class(UNITS),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", **compile_options)
    return model


def contenders(strategy: ipu.ipu_strategy.IPUStrategy, name: str) -> dict[str, keras.Model]:
    """Models by what a table calls them; the first is what the others are compared with."""
    stock, popnn = LAYERS[name]
    # What "auto" is without an IPU among the devices of the process.
    stock_options = {"jit_compile": False}
    models = {
        "Keras's layer, stock Keras": build(stock, **stock_options),
        f"Keras's layer, stock Keras, x{STEPS_PER_EXECUTION}": build(
            stock, steps_per_execution=STEPS_PER_EXECUTION, **stock_options
        ),
        "Popnn's layer, stock Keras": build(popnn, **stock_options),
    }
    with strategy.scope():
        models[f"Keras's layer on the IPU, x{STEPS_PER_EXECUTION}"] = build(
            stock, steps_per_execution=STEPS_PER_EXECUTION
        )
        models[f"Popnn's layer on the IPU, x{STEPS_PER_EXECUTION}"] = build(
            popnn, steps_per_execution=STEPS_PER_EXECUTION
        )
    weights = next(iter(models.values())).get_weights()
    for model in models.values():
        model.set_weights(weights)
    return models


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(models: dict[str, keras.Model], num_steps: int, num_rounds: int) -> dict[str, float]:
    """Returns the median of milliseconds per step, by contender."""
    random = np.random.default_rng(0)
    x = random.normal(size=(num_steps * BATCH_SIZE, TIME, FEATURES)).astype("float32")
    y = (x[:, :, 0].sum(axis=1) > 0).astype("int32")
    times: dict[str, list[float]] = {name: [] for name in models}

    def train(name: str) -> None:
        models[name].fit(x, y, batch_size=BATCH_SIZE, shuffle=False, verbose=0)

    names = list(models)
    for name in names:
        train(name)
    for first in range(num_rounds):
        for place in range(len(names)):
            name = names[(first + place) % len(names)]
            times[name].append(seconds(lambda name=name: train(name)))
    return {name: median(measured) / num_steps * 1e3 for name, measured in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", nargs="*", choices=LAYERS, default=[*LAYERS])
    parser.add_argument("--steps", type=int, default=64, help="per epoch")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    for name in options.layers:
        found = measure(contenders(strategy, name), options.steps, options.rounds)
        baseline = next(iter(found.values()))
        title = f"{name}: batch {BATCH_SIZE}, {TIME} steps of {FEATURES}, {UNITS} units"
        table = Table("contender", "ms/step", "times as fast", title=title)
        for contender, milliseconds in found.items():
            table.add_row(contender, f"{milliseconds:.2f}", f"{baseline / milliseconds:.2f}")
        Console().print(table)


if __name__ == "__main__":
    main()
