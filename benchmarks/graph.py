"""Compares programs of graphs and functions with stock TensorFlow.

Contenders of a case train the same model from equal weights on the same batches, in this process,
one execution each per round and in an order that rotates. What is printed are medians over the
rounds, and ratios of times that were measured in the same round. XLA compiles the programs from
their first step on, as long runs are compared. Nothing is asserted: goals are shown, met or not.
"""

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("IPU_KERAS_FIRST_STEPS", "0")

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table
from tensorflow.python import ipu

v1 = tf.compat.v1

BATCH_SIZE = 32
NUM_BATCHES = 64
IPU = "/device:IPU:0"
REPLICAS = (2, 4)

# Executes `steps` steps, and returns when they are done.
Contender = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """Ways to train the same model.

    Args:
        steps: Of an execution.
        contenders: By name. The first is the stock one that the others are compared with.
        goals: By name, what the first's time divided by this one's should be.
        others: Name of another one, name of the one that is compared with it, and the goal.
    """

    steps: int
    contenders: Mapping[str, Contender]
    goals: Mapping[str, float]
    others: Sequence[tuple[str, str, float]] = ()


def images(*shape: int) -> tf.data.Dataset:
    """Batches without an end, the same for all who ask."""
    random = np.random.default_rng(0)
    x = random.standard_normal((NUM_BATCHES * BATCH_SIZE, *shape)).astype("float32")
    y = random.integers(0, 10, NUM_BATCHES * BATCH_SIZE).astype("int32")
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    return dataset.batch(BATCH_SIZE, drop_remainder=True).repeat()


def variable(name: str, *shape: int) -> tf.Variable:
    """A weight, or a bias of zeros."""
    initializer = v1.glorot_uniform_initializer(seed=1) if len(shape) > 1 else tf.zeros
    return v1.get_variable(name, initializer=initializer(shape), use_resource=True)


def mlp(x: tf.Tensor) -> tf.Tensor:
    """A 784-256-128-10 perceptron."""
    for layer, (width, units) in enumerate([(784, 256), (256, 128), (128, 10)]):
        x = x @ variable(f"w{layer}", width, units) + variable(f"b{layer}", units)
        x = tf.nn.relu(x) if layer < 2 else x
    return x


def cnn28(x: tf.Tensor) -> tf.Tensor:
    """Two blocks of convolution and pooling on 28x28 grey images."""
    for layer, (width, filters) in enumerate([(1, 32), (32, 64)]):
        x = tf.nn.conv2d(x, variable(f"w{layer}", 3, 3, width, filters), 1, "VALID")
        x = tf.nn.max_pool2d(tf.nn.relu(x + variable(f"b{layer}", filters)), 2, 2, "VALID")
    x = tf.reshape(x, (BATCH_SIZE, 1600))
    return x @ variable("w2", 1600, 10) + variable("b2", 10)


def loss_of(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The mean over a batch."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )


def in_session(
    model: Callable, shape: tuple[int, ...], build: Callable[[Callable, tf.data.Dataset], Any]
) -> Contender:
    """Training in a session of its own.

    Args:
        model: From images to logits.
        shape: Of an image.
        build: Takes a step and batches for it; returns what a session runs, and how often.
    """
    with tf.Graph().as_default() as graph:

        def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            loss = loss_of(model(x), y)
            with tf.control_dependencies([v1.train.AdamOptimizer(1e-3).minimize(loss)]):
                return tf.identity(loss)

        fetches, times, initializers = build(step, images(*shape))
        session = v1.Session(graph=graph)
        session.run([v1.global_variables_initializer(), *initializers])

    def run() -> None:
        for _ in range(times):
            session.run(fetches)

    return run


def stock_session(steps: int) -> Callable:
    """A `session.run` for each step."""

    def build(step: Callable, dataset: tf.data.Dataset) -> Any:
        iterator = v1.data.make_initializable_iterator(dataset)
        return step(*iterator.get_next()), steps, [iterator.initializer]

    return build


def ipu_session(steps: int) -> Callable:
    """One `session.run` for all steps."""

    def build(step: Callable, dataset: tf.data.Dataset) -> Any:
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(
            outfeed_mode=ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST
        )

        def loop() -> Any:
            return ipu.loops.repeat(steps, lambda x, y: outfeed.enqueue(step(x, y)), [], infeed)

        with ipu.scopes.ipu_scope(IPU):
            program = ipu.ipu_compiler.compile(loop, [])
        return program, 1, [infeed.initializer]

    return build


def ipu_single_step() -> Callable:
    """One step in a `session.run`, which takes its batch from the graph around it."""

    def build(step: Callable, dataset: tf.data.Dataset) -> Any:
        iterator = v1.data.make_initializable_iterator(dataset)
        with ipu.scopes.ipu_scope(IPU):
            program = ipu.ipu_compiler.compile(step, list(iterator.get_next()))
        return program, 1, [iterator.initializer]

    return build


def session_case(model: Callable, shape: tuple[int, ...], steps: int, goal: float) -> Case:
    """Many steps in one `session.run`."""
    return Case(
        steps,
        {
            "stock": in_session(model, shape, stock_session(steps)),
            "ipu_keras": in_session(model, shape, ipu_session(steps)),
        },
        {"ipu_keras": goal},
    )


def single_step_case() -> Case:
    """One step in each `session.run`."""
    return Case(
        1,
        {
            "stock": in_session(mlp, (784,), stock_session(1)),
            "ipu_keras": in_session(mlp, (784,), ipu_single_step()),
        },
        {"ipu_keras": 1 / 1.1},
    )


class Perceptron:
    """The perceptron and Adam, as variables of TensorFlow 2.

    Args:
        average: Of a gradient, over what trains together.
    """

    def __init__(self, average: Callable[[tf.Tensor], tf.Tensor] = tf.identity) -> None:
        self._average = average
        with v1.variable_scope(v1.VariableScope(reuse=False, name="", use_resource=True)):
            sizes = [(784, 256), (256, 128), (128, 10)]
            make = v1.glorot_uniform_initializer(seed=1)
            self.variables = [tf.Variable(v) for s in sizes for v in (make(s), tf.zeros(s[1]))]
        self._moments = [[tf.Variable(tf.zeros_like(v)) for v in self.variables] for _ in range(2)]
        self._count = tf.Variable(0.0)

    def step(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Trains with a batch."""
        with tf.GradientTape() as tape:
            for layer in range(3):
                x = x @ self.variables[2 * layer] + self.variables[2 * layer + 1]
                x = tf.nn.relu(x) if layer < 2 else x
            loss = loss_of(x, y)
        self._count.assign_add(1.0)
        rate = 1e-3 * tf.sqrt(1 - 0.999**self._count) / (1 - 0.9**self._count)
        gradients = map(self._average, tape.gradient(loss, self.variables))
        for weight, gradient, first, second in zip(
            self.variables, gradients, *self._moments, strict=True
        ):
            first.assign(0.9 * first + 0.1 * gradient)
            second.assign(0.999 * second + 0.001 * gradient * gradient)
            weight.assign_sub(rate * first / (tf.sqrt(second) + 1e-7))
        return loss


def function_case(steps: int) -> Case:
    """A loop in a function of TensorFlow 2."""
    strategy = ipu.ipu_strategy.IPUStrategy()

    def stock(jit_compile: bool) -> Contender:
        model, iterator = Perceptron(), iter(images(784))
        step = tf.function(model.step, jit_compile=jit_compile)

        @tf.function
        def loop() -> tf.Tensor:
            loss = 0.0
            for _ in tf.range(steps):
                loss = step(*next(iterator))
            return loss

        return lambda: loop().numpy()

    def repeated() -> Contender:
        with strategy.scope():
            model = Perceptron()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(images(784))
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        _ = infeed.initializer

        @tf.function(jit_compile=True)
        def loop() -> None:
            ipu.loops.repeat(steps, lambda x, y: outfeed.enqueue(model.step(x, y)), [], infeed)

        def run() -> None:
            strategy.run(loop)
            outfeed.dequeue()

        return run

    def looped() -> Contender:
        with strategy.scope():
            model = Perceptron()
        iterator = iter(strategy.experimental_distribute_dataset(images(784)))

        @tf.function(jit_compile=True)
        def loop(iterator: Any) -> tf.Tensor:
            loss = 0.0
            for _ in tf.range(steps):
                loss = model.step(*next(iterator))
            return loss

        return lambda: strategy.run(loop, args=(iterator,)).numpy()

    def fitted() -> Contender:
        with strategy.scope():
            sizes = [(256, "relu"), (128, "relu"), (10, None)]
            model = keras.Sequential([keras.layers.Dense(*size) for size in sizes])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(1e-3), loss, steps_per_execution=steps)
        dataset = images(784)
        return lambda: model.fit(dataset, steps_per_epoch=steps, verbose=0)

    return Case(
        steps,
        {
            "stock": stock(False),
            "stock, jitted step": stock(True),
            "loops.repeat": repeated(),
            "AutoGraph's loop": looped(),
            "Keras's fit": fitted(),
        },
        {"loops.repeat": 2.0, "AutoGraph's loop": 2.0},
        [("Keras's fit", "AutoGraph's loop", 0.95)],
    )


def replicas_case(count: int, steps: int) -> Case:
    """Replicas in a loop, beside stock TensorFlow with batches of as many images."""
    ordinal = (1, *REPLICAS).index(count)
    strategy = ipu.ipu_strategy.IPUStrategy(f"/device:IPU:{ordinal}")
    model, iterator = Perceptron(), iter(images(784).unbatch().batch(count * BATCH_SIZE, True))

    @tf.function
    def large_batches() -> tf.Tensor:
        loss = 0.0
        for _ in tf.range(steps):
            loss = model.step(*next(iterator))
        return loss

    with strategy.scope():
        replicated = Perceptron(average=ipu.cross_replica_ops.cross_replica_mean)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(images(784))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    _ = infeed.initializer

    @tf.function(jit_compile=True)
    def replicas() -> None:
        ipu.loops.repeat(steps, lambda x, y: outfeed.enqueue(replicated.step(x, y)), [], infeed)

    def run() -> None:
        strategy.run(replicas)
        outfeed.dequeue()

    return Case(
        steps,
        {"stock, large batches": lambda: large_batches().numpy(), "replicas": run},
        {"replicas": 1.0},
    )


def pipeline_case(count: int) -> Case:
    """A pipeline of two stages beside plain accumulation of gradients."""

    def accumulating(step: Callable, dataset: tf.data.Dataset) -> Any:
        return ipu_session(count)(step, dataset)

    def accumulated() -> Contender:
        with tf.Graph().as_default() as graph:
            infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(images(784))

            def step(x: tf.Tensor, y: tf.Tensor) -> tf.Operation:
                optimizer = ipu.gradient_accumulation_optimizer.GradientAccumulationOptimizerV2(
                    v1.train.AdamOptimizer(1e-3), count
                )
                return optimizer.minimize(loss_of(mlp(x), y))

            with ipu.scopes.ipu_scope(IPU):
                program = ipu.ipu_compiler.compile(
                    lambda: ipu.loops.repeat(count, step, [], infeed), []
                )
            return _session(graph, program, [infeed.initializer])

    def pipelined() -> Contender:
        with tf.Graph().as_default() as graph:
            infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(images(784))

            def first(x: tf.Tensor, y: tf.Tensor) -> Any:
                return tf.nn.relu(x @ variable("w0", 784, 256) + variable("b0", 256)), y

            def second(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
                x = tf.nn.relu(x @ variable("w1", 256, 128) + variable("b1", 128))
                return loss_of(x @ variable("w2", 128, 10) + variable("b2", 10), y)

            outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

            def optimizer(loss: tf.Tensor) -> Any:
                adam = v1.train.AdamOptimizer(1e-3)
                return ipu.pipelining_ops.OptimizerFunctionOutput(adam, loss)

            with ipu.scopes.ipu_scope(IPU):
                program = ipu.ipu_compiler.compile(
                    lambda: ipu.pipelining_ops.pipeline(
                        [first, second],
                        count,
                        infeed_queue=infeed,
                        outfeed_queue=outfeed,
                        optimizer_function=optimizer,
                        device_mapping=[0, 0],
                    ),
                    [],
                )
            return _session(graph, [program, outfeed.dequeue()], [infeed.initializer])

    return Case(
        count,
        {"accumulation": accumulated(), "pipeline": pipelined()},
        {"pipeline": 1 / 1.1},
    )


def _session(graph: tf.Graph, fetches: Any, initializers: list[Any]) -> Contender:
    session = v1.Session(graph=graph)
    with graph.as_default():
        session.run([v1.global_variables_initializer(), *initializers])
    return lambda: session.run(fetches)


CASES = {
    "session, MLP, 200 steps": lambda: session_case(mlp, (784,), 200, 1.9),
    "session, CNN28, 40 steps": lambda: session_case(cnn28, (28, 28, 1), 40, 1.2),
    "session, MLP, 1 step": single_step_case,
    "function, MLP, 200 steps": lambda: function_case(200),
    "pipeline, MLP, 16 batches": lambda: pipeline_case(16),
    **{
        f"function, MLP, 100 steps of {count} replicas": lambda count=count: replicas_case(
            count, 100
        )
        for count in REPLICAS
    },
}


def measured(case: Case, rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender's executions, without the first two."""
    names = list(case.contenders)
    found: dict[str, list[float]] = {name: [] for name in names}
    repeats = max(1, 50 // case.steps)
    for number in range(-2, rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            start = time.perf_counter()
            for _ in range(repeats):
                case.contenders[name]()
            if number >= 0:
                found[name].append((time.perf_counter() - start) / repeats)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="executions of each contender")
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="of which to measure")
    arguments = parser.parse_args()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = [1, *REPLICAS]
    config.configure_ipu_system()
    table = Table("case", "contender", "ms/step", "times as fast (by rounds)", "goal")
    for title in arguments.cases:
        case = CASES[title]()
        seconds = measured(case, arguments.rounds)
        first, *_ = seconds.values()
        for name, own in seconds.items():
            by_rounds = median(a / b for a, b in zip(first, own, strict=True))
            ratio = median(first) / median(own)
            goal = case.goals.get(name)
            table.add_row(
                title,
                name,
                f"{1e3 * median(own) / case.steps:.3f}",
                f"{ratio:.2f} ({by_rounds:.2f})",
                "" if goal is None else f"{goal:.2f}{'' if by_rounds >= goal else ' not met'}",
            )
        for other, name, goal in case.others:
            pairs = zip(seconds[other], seconds[name], strict=True)
            by_rounds = median(a / b for a, b in pairs)
            met = "" if by_rounds >= goal else " not met"
            row = f"{name} beside {other}", "", f"({by_rounds:.2f})", f"{goal:.2f}{met}"
            table.add_row(title, *row)
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
