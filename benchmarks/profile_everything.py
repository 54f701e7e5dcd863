"""What it takes to profile each layer of `keras.layers` and each model of `keras.applications`.

One after the other: layers in training and in prediction, models from random weights at 96 x 96,
or at the smallest size that they take, each in a process of its own, as memory is not given back.
Nothing may end in an exception; those that do are listed below, and the exit status is their
number. Without arguments, all is profiled, which takes half an hour.
"""

import argparse
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from keras_layers import CASES
from rich.console import Console
from rich.table import Table

from ipu_keras import profile

MODES = ("train", "predict")
SIZE = 96
# How errors of applications say which size is the smallest.
_SMALLEST = re.compile(r"at least (\d+)x\d+")


@dataclass(frozen=True)
class Profiled:
    """What became of a model or layer.

    Args:
        name: Of it.
        mode: As of `profile`.
        seconds: That profiling took.
        peak_bytes: Memory of the process by then, at most.
        cycles: Of a step.
        num_rows: Of the report.
        guesses: Operations that the report names as guessed.
        error: That it ended in, if it did.
    """

    name: str
    mode: str
    seconds: float
    peak_bytes: int
    cycles: int = 0
    num_rows: int = 0
    guesses: tuple[str, ...] = ()
    error: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of layers or models; all by default")
    parser.add_argument("--only", choices=("layers", "applications"))
    arguments = parser.parse_args()
    sources = (arguments.only,) if arguments.only else ("layers", "applications")
    found = []
    for source in sources:
        table = Table("name", "mode", "s", "GB", "cycles", "rows", "guessed by name", title=source)
        for one in profiled(source, arguments.names):
            found.append(one)
            print(f"{one.name} {one.mode} {one.seconds:.1f} s {one.error}", file=sys.stderr)
            sizes = f"{one.seconds:.1f}", f"{one.peak_bytes / 1e9:.1f}", f"{one.cycles:,}"
            table.add_row(one.name, one.mode, *sizes, f"{one.num_rows:,}", ", ".join(one.guesses))
        Console(width=150).print(table)
    errors = [one for one in found if one.error]
    print(f"{len(errors)} of {len(found)} ended in an exception")
    return len(errors)


def profiled(source: str, names: Sequence[str]) -> Iterator[Profiled]:
    """Profiles all of one kind, or those of some names."""
    known = CASES if source == "layers" else applications()
    chosen = [(name, mode) for name in known if not names or name in names for mode in MODES]
    if source == "layers":
        for name, mode in chosen:
            yield _profiled(name, mode, layer)
        return
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for name, mode in chosen:
            yield pool.submit(_profiled, name, mode, application).result()


def _profiled(name: str, mode: str, make: Callable[[str, str], Sequence[Any]]) -> Profiled:
    start = time.perf_counter()
    found: dict[str, Any] = {}
    try:
        report = profile(*make(name, mode), mode=mode)
        guesses = (*report.not_lowered, *report.not_modelled)
        found = {"cycles": report.cycles_per_step, "num_rows": len(report.rows), "guesses": guesses}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"[:500]}
    seconds = time.perf_counter() - start
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Profiled(name, mode, seconds, peak, **found)


def layer(name: str, mode: str) -> Sequence[Any]:
    """What `profile` takes for a layer."""
    case = CASES[name]
    labels = [tf.TensorSpec((4, 1))] if mode == "train" else []
    return case.model(), case.specs, *labels


def applications() -> list[str]:
    """The names of all models of `keras.applications`."""
    public = [name for name in dir(keras.applications) if not name.startswith("_")]
    return [name for name in public if callable(getattr(keras.applications, name))]


def application(name: str, mode: str) -> Sequence[Any]:
    """What `profile` takes for a model of `keras.applications`."""
    model, size = _built(getattr(keras.applications, name))
    model.compile("sgd", "sparse_categorical_crossentropy")
    labels = [tf.TensorSpec((1,), tf.int32)] if mode == "train" else []
    return model, tf.TensorSpec((1, size, size, 3)), *labels


def _built(build: Callable[..., keras.Model]) -> tuple[keras.Model, int]:
    """A model, and the size of its images."""
    size = SIZE
    while True:
        try:
            return build(weights=None, input_shape=(size, size, 3)), size
        except ValueError as error:
            smallest = _SMALLEST.search(str(error))
            if smallest is None or int(smallest[1]) <= size:
                raise
            size = int(smallest[1])


if __name__ == "__main__":
    sys.exit(main())
