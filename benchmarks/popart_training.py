"""Compares `popart.TrainingSession` with a Keras model under `IPUStrategy` that trains the same.

Both compute with the same host programs in this process, in turns that change their order. Keras's
`fit` reads its batches from a dataset that is cached in memory; a session is given arrays. What is
shown is Keras's time by the session's, so more is better for sessions, of the clock and of the
processor; the latter counts while others use the machine. Nothing is asserted: goals are shown, met
or not.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Long trainings are compared, and what XLA takes to compile them.
os.environ["IPU_KERAS_FIRST_STEPS"] = "0"

import keras
import models
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

import ipu_keras as ipu
from ipu_keras import popart

NUM_THREADS = 2
SEED = 7
BATCH = 32
STEPS_PER_EXECUTION = 32
EXECUTIONS = 2
RATE = 0.01
GOAL = 0.95


class Network:
    """Draws what `benchmarks/models.py` has with `popart.Builder`, layer after layer.

    Args:
        shape: Of its input, without the batch.
    """

    def __init__(self, shape: tuple[int, ...]):
        self._random = np.random.default_rng(SEED)
        self.builder = popart.Builder()
        self.input = self.builder.addInputTensor(popart.TensorInfo("FLOAT", [BATCH, *shape]))
        self.labels = self.builder.addInputTensor(popart.TensorInfo("INT32", [BATCH]))

    def _weight(self, *shape: int, fan_in: int = 0) -> str:
        scale = np.sqrt(2 / fan_in) if fan_in else 0.0
        values = (scale * self._random.standard_normal(shape)).astype(np.float32)
        return self.builder.addInitializedInputTensor(values)

    def dense(self, x: str, units: int) -> str:
        """A layer of `units` results."""
        _, taken = self.builder.getTensorShape(x)
        weights = self._weight(taken, units, fan_in=taken), self._weight(units)
        return self.builder.aiOnnx.gemm([x, *weights])

    def block(self, x: str, filters: int) -> str:
        """A convolution, its activation, and pooling."""
        channels = self.builder.getTensorShape(x)[1]
        weights = self._weight(filters, channels, 3, 3, fan_in=9 * channels), self._weight(filters)
        made = self.builder.aiOnnx.relu([self.builder.aiOnnx.conv([x, *weights])])
        return self.builder.aiOnnx.maxpool([made], 1, [2, 2], strides=[2, 2])[0]

    def finished(self, logits: str) -> tuple[bytes, str]:
        """The model, and its loss."""
        found = self.builder.aiOnnx.softmax([logits], axis=1)
        loss = self.builder.aiGraphcore.nllloss([found, self.labels])
        return self.builder.getModelProto(), loss


def mlp(network: Network) -> str:
    """As `mlp` of `benchmarks/models.py`."""
    x = network.input
    for units in (256, 128):
        x = network.builder.aiOnnx.relu([network.dense(x, units)])
    return network.dense(x, 10)


def cnn28(network: Network) -> str:
    """As `cnn28` of `benchmarks/models.py`."""
    x = network.input
    for filters in (32, 64):
        x = network.block(x, filters)
    return network.dense(network.builder.aiOnnx.flatten([x]), 10)


@dataclass(frozen=True)
class Case:
    """A model, and how it is trained.

    Args:
        draw: Draws its layers; returns the logits.
        keras_model: Makes it as a Keras model.
        shape: Of an image, channels first.
        accumulation: Steps of a weight update.
    """

    draw: Callable[[Network], str]
    keras_model: Callable[[], keras.Model]
    shape: tuple[int, ...]
    accumulation: int = 1


CASES = {
    "mlp": Case(mlp, models.mlp, (784,)),
    "mlp, accumulation of 8": Case(mlp, models.mlp, (784,), 8),
    "cnn28": Case(cnn28, models.cnn28, (1, 28, 28)),
    "cnn28, accumulation of 8": Case(cnn28, models.cnn28, (1, 28, 28), 8),
}


class Contest:
    """A model in a session, and the same in Keras.

    Args:
        case: What to train.
    """

    def __init__(self, case: Case):
        random = np.random.default_rng(SEED)
        count = (STEPS_PER_EXECUTION, BATCH)
        images = random.standard_normal((*count, *case.shape), dtype=np.float32)
        labels = random.integers(10, size=count).astype(np.int32)
        self._session, self._step_io = _session(case, images, labels)
        self._fit = _keras(case, np.moveaxis(images, 2, -1) if images.ndim > 3 else images, labels)
        self.contenders = {"Keras": self._fit, "session": self._run_session}

    def _run_session(self) -> None:
        for _ in range(EXECUTIONS):
            self._session.run(self._step_io)


def _session(
    case: Case, images: np.ndarray, labels: np.ndarray
) -> tuple[popart.TrainingSession, popart.PyStepIO]:
    network = Network(case.shape)
    proto, loss = network.finished(case.draw(network))
    options = popart.SessionOptions()
    options.enableGradientAccumulation = case.accumulation > 1
    options.accumulationFactor = case.accumulation
    session = popart.TrainingSession(
        proto,
        popart.DataFlow(
            STEPS_PER_EXECUTION // case.accumulation, {loss: popart.AnchorReturnType("Final")}
        ),
        loss,
        popart.SGD({"defaultLearningRate": (RATE, False)}),
        popart.DeviceManager().createIpuModelDevice({}),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    inputs = {network.input: images, network.labels: labels}
    return session, popart.PyStepIO(inputs, session.initAnchorArrays())


def _keras(case: Case, images: np.ndarray, labels: np.ndarray) -> Callable[[], None]:
    strategy = ipu.ipu_strategy.IPUStrategy()
    flat = (images.reshape(-1, *images.shape[2:]), labels.reshape(-1))
    dataset = tf.data.Dataset.from_tensor_slices(flat).batch(BATCH, drop_remainder=True)
    dataset = dataset.cache().repeat().prefetch(tf.data.AUTOTUNE)
    with strategy.scope():
        model = case.keras_model()
        if case.accumulation > 1:
            model.set_gradient_accumulation_options(
                gradient_accumulation_steps_per_replica=case.accumulation,
                gradient_accumulation_reduction_method="sum",
            )
        model.compile(
            keras.optimizers.SGD(RATE),
            "sparse_categorical_crossentropy",
            steps_per_execution=STEPS_PER_EXECUTION,
        )

    def fit() -> None:
        with strategy.scope():
            steps = EXECUTIONS * STEPS_PER_EXECUTION
            model.fit(dataset, steps_per_epoch=steps, shuffle=False, verbose=0)

    return fit


def measure(contest: Contest, num_rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds of a step by contender, of the clock and of the processor, a pair a round."""
    contenders = list(contest.contenders.items())
    for _, run in contenders:
        run()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in contenders}
    steps = EXECUTIONS * STEPS_PER_EXECUTION
    for index in range(num_rounds):
        for name, run in contenders[:: -1 if index % 2 else 1]:
            clock, processor = time.perf_counter(), time.process_time()
            run()
            clock, processor = time.perf_counter() - clock, time.process_time() - processor
            times[name].append((1000 * clock / steps, 1000 * processor / steps))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=lambda text: text.split(";"), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(NUM_THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(NUM_THREADS)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"tensorflow {tf.__version__}, {os.cpu_count()} cores", style="dim")
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    table = Table(title="A step, ms, median of rounds", title_justify="left")
    for column in ("model", "time", "Keras", "session", "Keras / session"):
        table.add_column(column)
    for name in args.cases:
        times = measure(Contest(CASES[name]), args.rounds)
        for kind, called in enumerate(("clock", "processor")):
            theirs, ours = ([each[kind] for each in times[n]] for n in ("Keras", "session"))
            ratio = median(theirs) / median(ours)
            of_rounds = median(a / b for a, b in zip(theirs, ours, strict=True))
            judged = f"{'[green]✓' if ratio >= GOAL else '[red]✗'} ≥ {GOAL}[/]"
            numbers = f"{median(theirs):.3f}", f"{median(ours):.3f}"
            table.add_row(name, called, *numbers, f"{ratio:.2f} ({of_rounds:.2f}) {judged}")
    console.print(table)


if __name__ == "__main__":
    main()
