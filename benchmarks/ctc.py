"""Time of the CTC beam search, next to TensorFlow's own kernel.

Run `python benchmarks/ctc.py`. 200 steps of 32 classes, a batch of 16 and a beam of 32, as
XLA compiles it, as TensorFlow's executor runs it, and eagerly. The sides take turns and
medians are compared, because other work on the machine disturbs all alike.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from rich.console import Console
from rich.table import Table

from ipu_keras.ops.nn_ops import ctc_beam_search_decoder

MAX_TIME, BATCH_SIZE, NUM_CLASSES = 200, 16, 32
BEAM_WIDTH, TOP_PATHS = 32, 4
KERNEL = "tf.nn.ctc_beam_search_decoder"


def sides() -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    logits = 2 * tf.random.stateless_normal([MAX_TIME, BATCH_SIZE, NUM_CLASSES], seed=[1, 2])
    lengths = tf.fill([BATCH_SIZE], MAX_TIME)

    def ours():
        return ctc_beam_search_decoder(logits, lengths, BEAM_WIDTH, TOP_PATHS)

    def kernel():
        return tf.nn.ctc_beam_search_decoder(logits, lengths, BEAM_WIDTH, TOP_PATHS)

    return {
        KERNEL: tf.function(kernel),
        "ours, by XLA": tf.function(ours, jit_compile=True),
        "ours, in a graph": tf.function(ours),
        "ours, eager": ours,
    }


def measure(rounds: int) -> dict[str, float]:
    """Median milliseconds of each side, of calls that take turns."""
    calls = sides()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="calls of each side")
    medians = measure(parser.parse_args().rounds)
    table = Table("", "ms", "ratio", title="CTC beam search")
    for name, median in medians.items():
        table.add_row(name, f"{median:.0f}", f"{median / medians[KERNEL]:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
