"""Cost of eager TensorFlow on the IPU device, next to the same on the CPU.

Run `python benchmarks/eager.py`. Every op is forwarded to TensorFlow's CPU
kernel, so the ratio is the price of the device itself. The two sides take turns
in short bursts and medians are compared, because other work on the machine
disturbs both alike.
"""

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from rich.console import Console
from rich.table import Table

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.machine.system import SYSTEM

CPU, IPU = "/device:CPU:0", "/device:IPU:0"


def cases(device: str) -> dict[str, Callable[[], object]]:
    """What is measured, by name, with its tensors on `device`."""
    with tf.device(device):
        scalar = tf.constant(1.0)
        square = tf.random.stateless_normal([256, 256], seed=[1, 2])
        vector = tf.zeros([16])
        variable = tf.Variable(vector)
        variables = [tf.Variable(1.0) for _ in range(50)]
    function = tf.function(lambda x: x + 1.0)
    capturing = tf.function(lambda x: tf.add_n([x, *variables]))
    return {
        "AddV2, scalar": lambda: scalar + scalar,
        "matmul 256x256": lambda: tf.matmul(square, square),
        "tf.function, x + 1": lambda: function(scalar),
        "tf.function, 50 captured variables": lambda: capturing(scalar),
        "constant of 2 floats": lambda: tf.constant([1.0, 2.0]),
        "variable read": variable.read_value,
        "variable assign": lambda: variable.assign(vector),
    }


def burst(call: Callable[[], object], device: str, num_calls: int) -> float:
    """Microseconds per call."""
    with tf.device(device):
        call()
        start = time.perf_counter()
        for _ in range(num_calls):
            call()
        return (time.perf_counter() - start) / num_calls * 1e6


def calls_per_burst(call: Callable[[], object], device: str) -> int:
    """How many calls take about 5 ms: short, so that the sides see the same machine."""
    return max(1, int(5000 / burst(call, device, 20)))


def compare(first: Callable[[], float], second: Callable[[], float], rounds: int):
    """Medians of two measurements that take turns, each going first half of the time."""
    times = [(first(), second()) if k % 2 else (second(), first())[::-1] for k in range(rounds)]
    return tuple(statistics.median(side) for side in zip(*times, strict=True))


def enter_scope(*, checked: bool) -> float:
    """Microseconds to enter a CPU scope, with or without the check of IPU names."""
    (DRIVER.install if checked else DRIVER.uninstall)()

    def enter():
        with tf.device(CPU):
            pass

    # Python specialises code for the classes it has seen, and the line above
    # changes one: the first burst measures that and does not count.
    return min([burst(enter, CPU, 3000) for _ in range(4)][1:])


def measure(rounds: int) -> dict[str, tuple[float, ...]]:
    """Medians on the CPU and on the device, by name."""
    on_cpu, on_ipu = cases(CPU), cases(IPU)
    results = {}
    for name in on_cpu:
        num_calls = calls_per_burst(on_cpu[name], CPU)
        results[name] = compare(
            functools.partial(burst, on_cpu[name], CPU, num_calls),
            functools.partial(burst, on_ipu[name], IPU, num_calls),
            rounds,
        )
    return results


def report(results: dict[str, tuple[float, ...]], title: str, sides: tuple[str, str]) -> None:
    """Prints a table of medians and their ratio."""
    table = Table("", *(f"{side} [µs]" for side in sides), "ratio", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, (first, second) in results.items():
        table.add_row(name, f"{first:.2f}", f"{second:.2f}", f"{second / first:.3f}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=101, help="bursts per side and case")
    rounds = parser.parse_args().rounds
    SYSTEM.connect(DRIVER)
    IPUConfig().configure_ipu_system()
    report(measure(rounds), "Eager execution", ("CPU", "IPU"))
    scope = compare(
        lambda: enter_scope(checked=False), lambda: enter_scope(checked=True), rounds // 4
    )
    report({"tf.device('/device:CPU:0')": scope}, "Check of scopes", ("without", "with"))


if __name__ == "__main__":
    main()
