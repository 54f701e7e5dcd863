"""Compares `popart.InferenceSession` with onnxruntime, which both get the same models.

Both compute with two threads in this process, in turns that change their order, on arrays that are
theirs from the start: onnxruntime returns new arrays, a session writes into those of `PyStepIO`.
What is shown is onnxruntime's time by ours, so more is better for us. Nothing is asserted: goals
are shown, met or not.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

if find_spec("onnxruntime") is None:
    sys.exit("There is nothing to compare with. Install it with: pip install onnxruntime")

import numpy as np
import onnxruntime
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from ipu_keras import popart

NUM_THREADS = 2
SEED = 7
# No less than so many seconds of each contender's calls are one time of a round.
LEAST_SECONDS = 0.05


class Network:
    """Draws a model with `popart.Builder`, layer after layer.

    Args:
        shape: Of its input, `(batch, ...)`.
    """

    def __init__(self, shape: Iterable[int]):
        self._random = np.random.default_rng(SEED)
        self.builder = popart.Builder(opsets={"ai.onnx": 10, "ai.onnx.ml": 1, "ai.graphcore": 1})
        self._onnx = self.builder.aiOnnxOpset10
        self.input = self.builder.addInputTensor(popart.TensorInfo("FLOAT", list(shape)))

    def _weight(self, *shape: int, fan_in: int | None = None, around: float = 0.0) -> str:
        scale = 0.1 if fan_in is None else np.sqrt(2 / fan_in)
        values = around + scale * self._random.standard_normal(shape)
        return self.builder.addInitializedInputTensor(values.astype(np.float32))

    def dense(self, x: str, units: int) -> str:
        """A layer of `units` results."""
        _, taken = self.builder.getTensorShape(x)
        weight = self._weight(taken, units, fan_in=taken)
        return self._onnx.gemm([x, weight, self._weight(units)])

    def conv(self, x: str, filters: int, kernel: int, *, stride=1, pad=0, bias=True) -> str:
        """A convolution with square windows."""
        channels = self.builder.getTensorShape(x)[1]
        inputs = [x, self._weight(filters, channels, kernel, kernel, fan_in=channels * kernel**2)]
        if bias:
            inputs.append(self._weight(filters))
        return self._onnx.conv(inputs, strides=[stride] * 2, pads=[pad] * 4, dilations=[1, 1])

    def batch_norm(self, x: str) -> str:
        """A normalization by statistics that are known."""
        size = self.builder.getTensorShape(x)[1]
        scale, bias, mean = self._weight(size, around=1.0), self._weight(size), self._weight(size)
        variance = self.builder.addInitializedInputTensor(
            self._random.uniform(0.5, 1.5, size).astype(np.float32)
        )
        (result,) = self._onnx.batchnormalization([x, scale, bias, mean, variance], num_outputs=1)
        return result

    def relu(self, x: str) -> str:
        """The larger of 0 and each element."""
        return self._onnx.relu([x])

    def max_pool(self, x: str, kernel: int = 2, stride: int = 2, pad: int = 0) -> str:
        """The largest element of each window."""
        found = self._onnx.maxpool(
            [x], num_outputs=1, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4
        )
        return found[0]

    def average(self, x: str) -> str:
        """The mean of each channel, `(batch, channels)`."""
        return self.flat(self._onnx.globalaveragepool([x]))

    def flat(self, x: str) -> str:
        """All of an example along one axis."""
        return self._onnx.flatten([x])

    def add(self, x: str, y: str) -> str:
        """A sum."""
        return self._onnx.add([x, y])

    def finished(self, logits: str) -> tuple[bytes, str]:
        """The model, and the name of its output: a softmax."""
        output = self._onnx.softmax([logits], axis=1)
        self.builder.addOutputTensor(output)
        return self.builder.getModelProto(), output


def mlp(network: Network) -> str:
    """A 784-512-512-10 perceptron."""
    x = network.input
    for _ in range(2):
        x = network.relu(network.dense(x, 512))
    return network.dense(x, 10)


def small_mlp(network: Network) -> str:
    """As `mlp` of `benchmarks/models.py`."""
    x = network.input
    for units in (256, 128):
        x = network.relu(network.dense(x, units))
    return network.dense(x, 10)


def cnn28(network: Network) -> str:
    """As `cnn28` of `benchmarks/models.py`."""
    x = network.input
    for filters in (32, 64):
        x = network.max_pool(network.relu(network.conv(x, filters, 3)))
    return network.dense(network.flat(x), 10)


def cnn32(network: Network) -> str:
    """As `cnn32_batch_norm` of `benchmarks/models.py`."""
    x = network.input
    for filters in (32, 64, 64):
        normalized = network.batch_norm(network.conv(x, filters, 3, pad=1))
        x = network.max_pool(network.relu(normalized))
    return network.dense(network.relu(network.dense(network.flat(x), 64)), 10)


def resnet50(network: Network) -> str:
    """ResNet-50, with the strides in the middle of its blocks."""

    def normalized(x: str, filters: int, kernel: int, stride: int = 1) -> str:
        made = network.conv(x, filters, kernel, stride=stride, pad=kernel // 2, bias=False)
        return network.batch_norm(made)

    x = network.relu(normalized(network.input, 64, 7, 2))
    x = network.max_pool(x, kernel=3, stride=2, pad=1)
    for stage, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            filters, stride = 64 << stage, 2 if stage and not block else 1
            inner = network.relu(normalized(x, filters, 1))
            inner = network.relu(normalized(inner, filters, 3, stride))
            inner = normalized(inner, 4 * filters, 1)
            shortcut = x if block else normalized(x, 4 * filters, 1, stride)
            x = network.relu(network.add(inner, shortcut))
    return network.dense(network.average(x), 1000)


@dataclass(frozen=True)
class Case:
    """A model, and how it runs.

    Args:
        draw: Draws its layers; returns the logits.
        shape: Of a batch.
        batches: Per step.
        goal: What onnxruntime's time by ours is meant to be at least, or `None`.
        milliseconds: What one run is meant to take at most, or `None`.
    """

    draw: Callable[[Network], str]
    shape: tuple[int, ...]
    batches: int
    goal: float | None = None
    milliseconds: float | None = None


CASES = {
    "mlp": Case(mlp, (32, 784), 32, goal=0.6),
    "mlp, one batch": Case(mlp, (32, 784), 1),
    "small mlp, one batch": Case(small_mlp, (32, 784), 1, milliseconds=0.3),
    "cnn28": Case(cnn28, (32, 1, 28, 28), 32, goal=0.95),
    "cnn32": Case(cnn32, (32, 3, 32, 32), 32, goal=0.85),
    "resnet50": Case(resnet50, (4, 3, 224, 224), 4, goal=0.85),
    "resnet50, one batch": Case(resnet50, (4, 3, 224, 224), 1),
}
PREPARE_GOAL = 2.0


class Contest:
    """A model in a session, and the same in onnxruntime.

    Args:
        case: What to run.
        constant: Whether the session may take the weights for constants.
    """

    def __init__(self, case: Case, *, constant: bool):
        network = Network(case.shape)
        proto, output = network.finished(case.draw(network))
        options = popart.SessionOptions()
        options.constantWeights = constant
        flow = popart.DataFlow(case.batches, {output: popart.AnchorReturnType("All")})
        self._session = popart.InferenceSession(
            proto, flow, popart.DeviceManager().createIpuModelDevice({}), userOptions=options
        )
        started = time.perf_counter()
        self._session.prepareDevice()
        self.preparation = time.perf_counter() - started
        self._arrays = self._session.initAnchorArrays()

        theirs = onnxruntime.SessionOptions()
        theirs.intra_op_num_threads = NUM_THREADS
        # Its threads look for work all the time while it computes, which is fastest, but would go
        # on with it while we do.
        theirs.add_session_config_entry("session.force_spinning_stop", "1")
        self._onnxruntime = onnxruntime.InferenceSession(
            proto, theirs, providers=["CPUExecutionProvider"]
        )
        random = np.random.default_rng(SEED)
        inputs = random.standard_normal((case.batches, *case.shape), dtype=np.float32)
        self._step_io = popart.PyStepIO({network.input: inputs}, self._arrays)
        self._batches = [{network.input: batch} for batch in inputs]
        self.contenders = {"onnxruntime": self._run_onnxruntime, "ours": self._run_session}
        self._check(output, case.batches)

    def _run_session(self) -> None:
        self._session.run(self._step_io)

    def _run_onnxruntime(self) -> None:
        for batch in self._batches:
            self._onnxruntime.run(None, batch)

    def _check(self, output: str, batches: int) -> None:
        self._run_session()
        expected = [self._onnxruntime.run(None, batch)[0] for batch in self._batches]
        np.testing.assert_allclose(
            self._arrays[output].reshape(batches, *expected[0].shape),
            expected,
            rtol=1e-3,
            atol=1e-5,
        )


def measure(contest: Contest, num_rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a run by contender, one number a round."""
    contenders = list(contest.contenders.items())
    repeats = {}
    for name, run in contenders:
        run()
        started = time.perf_counter()
        run()
        repeats[name] = max(1, int(LEAST_SECONDS / (time.perf_counter() - started)))
    times: dict[str, list[float]] = {name: [] for name, _ in contenders}
    for index in range(num_rounds):
        for name, run in contenders[:: -1 if index % 2 else 1]:
            started = time.perf_counter()
            for _ in range(repeats[name]):
                run()
            seconds = (time.perf_counter() - started) / repeats[name]
            times[name].append(1000 * seconds)
    return times


def _judged(text: str, met: bool | None, goal: str) -> str:
    return text if met is None else f"{text} {'[green]✓' if met else '[red]✗'} {goal}[/]"


def _row(name: str, case: Case, times: dict[str, list[float]], preparation: float) -> list[str]:
    theirs, ours = median(times["onnxruntime"]), median(times["ours"])
    of_rounds = median(a / b for a, b in zip(times["onnxruntime"], times["ours"], strict=True))
    limit, goal = case.milliseconds, case.goal
    prepared = f"{preparation:.2f}"
    if case.draw is resnet50:
        prepared = _judged(prepared, preparation <= PREPARE_GOAL, f"≤ {PREPARE_GOAL}")
    return [
        name,
        f"{theirs:.3f}",
        _judged(f"{ours:.3f}", None if limit is None else ours <= limit, f"≤ {limit}"),
        _judged(
            f"{theirs / ours:.2f} ({of_rounds:.2f})",
            None if goal is None else theirs / ours >= goal,
            f"≥ {goal}",
        ),
        prepared,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=lambda text: text.split(";"), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--constant", action="store_true", help="with constantWeights")
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(NUM_THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(NUM_THREADS)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(
        f"tensorflow {tf.__version__}, onnxruntime {onnxruntime.__version__}, "
        f"{os.cpu_count()} cores",
        style="dim",
    )
    table = Table(title="A run, ms, median of rounds", title_justify="left")
    for column in ("model", "onnxruntime", "ours", "onnxruntime / ours", "prepareDevice, s"):
        table.add_column(column)
    for name in args.cases:
        case = CASES[name]
        contest = Contest(case, constant=args.constant)
        times = measure(contest, args.rounds)
        table.add_row(*_row(name, case, times, contest.preparation))
        del contest
    console.print(table)
    console.print(
        "Ratios: of the medians (median of the ratios per round), and goal; more is better for us. "
        "prepareDevice ran once;\nthe first run, which XLA compiles in, came before the rounds."
    )


if __name__ == "__main__":
    main()
