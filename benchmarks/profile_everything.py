"""What it takes to profile each layer of `keras.layers` and each model of `keras.applications`.

One after the other, in one process: layers in training and in prediction, models from random
weights at 96 x 96, or at the smallest size that they take. Nothing may end in an exception; those
that do are listed below, and the exit status is their number. Without arguments, all is profiled,
which takes a quarter of an hour.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
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
# How errors of applications say which size is the smallest, and refuse another than the standard.
_SMALLEST = re.compile(r"at least (\d+)x\d+")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of layers or models; all by default")
    parser.add_argument("--only", choices=("layers", "applications"))
    arguments = parser.parse_args()
    sources = {"layers": layer_models, "applications": applications}
    table = Table("of", "name", "mode", "seconds", "cycles", "operations", "guessed by name")
    errors, console = [], Console(width=160)
    for source, models in sources.items():
        if arguments.only not in (None, source):
            continue
        for name, make in models():
            if arguments.names and name not in arguments.names:
                continue
            for mode in MODES:
                start = time.perf_counter()
                try:
                    report = profile(*make(mode), mode=mode)
                except Exception as error:
                    errors.append(f"{name}, {mode}: {type(error).__name__}: {error}"[:500])
                    table.add_row(source, name, mode, "", type(error).__name__, "", "")
                    continue
                finally:
                    taken = time.perf_counter() - start
                print(f"{name} {mode} {taken:.1f} s", file=sys.stderr, flush=True)
                guesses = ", ".join((*report.not_lowered, *report.not_modelled))
                count = f"{len(report.rows):,}"
                row = (f"{taken:.1f}", f"{report.cycles_per_step:,}", count, guesses)
                table.add_row(source, name, mode, *row)
    console.print(table)
    for error in errors:
        console.print(error, markup=False)
    console.print(f"{len(errors)} of {table.row_count} ended in an exception")
    return len(errors)


# Of a mode, what `profile` takes.
Make = Callable[[str], Sequence[Any]]


def layer_models() -> Iterator[tuple[str, Make]]:
    """Each layer, by name."""
    for name, case in CASES.items():

        def make(mode: str, case=case) -> Sequence[Any]:
            labels = [tf.TensorSpec((4, 1))] if mode == "train" else []
            return case.model(), case.specs, *labels

        yield name, make


def applications() -> Iterator[tuple[str, Make]]:
    """Each model of `keras.applications`, by name."""
    for name in dir(keras.applications):
        build = getattr(keras.applications, name)
        if name.startswith("_") or not callable(build):
            continue

        def make(mode: str, build=build) -> Sequence[Any]:
            model, size = _built(build)
            model.compile("sgd", "sparse_categorical_crossentropy")
            labels = [tf.TensorSpec((1,), tf.int32)] if mode == "train" else []
            return model, tf.TensorSpec((1, size, size, 3)), *labels

        yield name, make


def _built(build: Callable[..., keras.Model]) -> tuple[keras.Model, int]:
    """A model, and the size of its images."""
    keras.backend.clear_session()  # of the model before
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
