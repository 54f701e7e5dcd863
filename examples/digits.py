"""Trains an MLP and a CNN on handwritten digits, on an emulated IPU.

Each model is evaluated, saved, loaded in stock Keras by a process that cannot
import `ipu_keras`, and timed against stock Keras.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(
    __name__,
    __doc__,
    mlp_epochs=(20, "of the perceptron"),
    cnn_epochs=(16, "of the convolutional network"),
    timed_epochs=(5, "whose median is its speed"),
)

import digits_data
import keras
import numpy as np
from keras import layers
from rich.console import Console
from rich.table import Table
from tensorflow.python import ipu

from ipu_keras.device import DeviceCounters, device_for

BATCH_SIZE = 16
# 88 steps of training and 22 of testing: all executions are full ones.
STEPS_PER_EXECUTION = 22


def build_mlp() -> keras.Model:
    """A 64-128-64-10 perceptron."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def build_cnn() -> keras.Model:
    """Two convolutions with batch normalization, pooling and dropout."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )


@dataclass(frozen=True)
class Result:
    """What became of one model.

    Args:
        num_epochs: Epochs in the history of `fit`.
        accuracy: Share of the test images that `evaluate` found classified right.
        predicted_accuracy: The same, counted from the output of `predict`.
        stock_difference: Largest difference between this prediction and the one of
            stock Keras from the saved model.
        samples_per_second: Training throughput here and of stock Keras.
        variable_devices: Devices of the model's variables.
        counters: What training, evaluation and prediction dispatched to the IPU.
    """

    num_epochs: int
    accuracy: float
    predicted_accuracy: float
    stock_difference: float
    samples_per_second: dict[str, float]
    variable_devices: set[str]
    counters: DeviceCounters


def compile_model(model: keras.Model, steps_per_execution: int, **options) -> None:
    """Compiles any of the models; `options` are further arguments of `compile`."""
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
        **options,
    )


def run(
    strategy: ipu.ipu_strategy.IPUStrategy,
    build: Callable[[], keras.Model],
    num_epochs: int,
    num_timed_epochs: int,
) -> Result:
    """Trains, evaluates, saves and times the model that `build` returns."""
    (x_train, y_train), (x_test, y_test) = digits_data.load()
    device = device_for("/device:IPU:0")
    device.reset_counters()

    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = build()
        compile_model(model, STEPS_PER_EXECUTION)
    history = model.fit(x_train, y_train, batch_size=BATCH_SIZE, epochs=num_epochs, verbose=0)
    _, accuracy = model.evaluate(x_test, y_test, batch_size=BATCH_SIZE, verbose=0)
    predictions = model.predict(x_test, batch_size=BATCH_SIZE, verbose=0)
    counters = device.counters()

    return Result(
        num_epochs=len(history.epoch),
        accuracy=accuracy,
        predicted_accuracy=float(np.mean(predictions.argmax(axis=1) == y_test)),
        stock_difference=float(np.abs(predictions - predict_in_stock_keras(model, x_test)).max()),
        samples_per_second=compare_throughput(model, build, num_timed_epochs),
        variable_devices={variable.value.device for variable in model.variables},
        counters=counters,
    )


def predict_in_stock_keras(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Saves the model and returns what a process without `ipu_keras` predicts with it."""
    script = Path(__file__).with_name("predict_with_stock_keras.py")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.save(folder / "model.keras")
        np.save(folder / "images.npy", images)
        files = [folder / file for file in ("model.keras", "images.npy", "predictions.npy")]
        subprocess.run([sys.executable, script, *files], check=True)
        return np.load(files[-1])


class EpochTimer(keras.callbacks.Callback):
    """Keeps the seconds that each epoch took, without starting and closing `fit`."""

    def __init__(self):
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self._start)


def compare_throughput(
    ipu_model: keras.Model, build: Callable[[], keras.Model], num_epochs: int
) -> dict[str, float]:
    """Returns samples per second of training, the median of interleaved epochs.

    Args:
        ipu_model: The model on the IPU; it is trained further.
        build: Returns the same model for stock Keras.
        num_epochs: Epochs that count; one more warms up.
    """
    # "auto" looks at the devices of this process. Without an IPU, that is on CPUs
    # only, stock Keras resolves it to False.
    models = {"ipu_keras": ipu_model, "stock Keras": build(), "stock Keras, same steps": build()}
    compile_model(models["stock Keras"], 1, jit_compile=False)
    compile_model(models["stock Keras, same steps"], STEPS_PER_EXECUTION, jit_compile=False)
    images, labels = digits_data.load()[0]
    timers = {name: EpochTimer() for name in models}
    for _ in range(1 + num_epochs):
        for name, model in models.items():
            model.fit(images, labels, batch_size=BATCH_SIZE, verbose=0, callbacks=[timers[name]])
    return {name: len(images) / median(timer.seconds[1:]) for name, timer in timers.items()}


def results_table(results: dict[str, Result]) -> Table:
    """Returns what the models reached, a row for each."""
    table = Table(title="Handwritten digits, 352 test images", title_justify="left")
    for column in ("model", "epochs", "test accuracy", "difference to stock Keras", "variables on"):
        table.add_column(column)
    for name, result in results.items():
        table.add_row(
            name,
            str(result.num_epochs),
            f"{result.accuracy:.3f}",
            f"{result.stock_difference:.1e}",
            ", ".join(device.partition("/device:")[2] for device in result.variable_devices),
        )
    return table


def throughput_table(results: dict[str, Result]) -> Table:
    """Returns samples per second, a row per model."""
    table = Table(title="Training, samples/s, interleaved epochs", title_justify="left")
    table.add_column("model")
    for column in next(iter(results.values())).samples_per_second:
        table.add_column(column, justify="right")
    for name, result in results.items():
        table.add_row(name, *(f"{rate:,.0f}" for rate in result.samples_per_second.values()))
    return table


def counters_table(results: dict[str, Result]) -> Table:
    """Returns what was dispatched to the IPU, a row per model."""
    table = Table(title="Dispatched to /device:IPU:0", title_justify="left")
    table.add_column("model")
    for column in ("function calls", "executions", "eager ops", "MB to IPU", "MB from IPU"):
        table.add_column(column, justify="right")
    for name, result in results.items():
        counters = result.counters
        table.add_row(
            name,
            f"{counters.num_function_calls:,}",
            f"{sum(counters.program_executions.values()):,}",
            f"{counters.num_operations:,}",
            f"{counters.num_bytes_to_device / 1e6:.1f}",
            f"{counters.num_bytes_from_device / 1e6:.1f}",
        )
    return table


def main(
    mlp_epochs: int = ARGUMENTS.mlp_epochs,
    cnn_epochs: int = ARGUMENTS.cnn_epochs,
    num_timed_epochs: int = ARGUMENTS.timed_epochs,
) -> dict[str, Result]:
    """Runs both models, prints the tables and returns the results."""
    console = Console()

    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()

    results = {}
    for name, build, epochs in (("MLP", build_mlp, mlp_epochs), ("CNN", build_cnn, cnn_epochs)):
        with console.status(f"{name}: {epochs} epochs"):
            results[name] = run(strategy, build, epochs, num_timed_epochs)
    for table in (results_table, throughput_table, counters_table):
        console.print(table(results))
    return results


if __name__ == "__main__":
    main()
