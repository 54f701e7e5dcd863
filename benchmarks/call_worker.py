"""One side of `calls.py`, in a process of its own: runs a call as often as it is told to.

It needs Keras and NumPy only, as the environment of Keras on JAX has neither TensorFlow nor
`ipu_keras`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import fresh_process
import keras
import numpy as np
from models import BATCH_SIZE, WORKLOADS, Workload

SEED = 7
# A call of a few steps has so many, and one of many executes so many at once.
NUM_STEPS = 2
STEPS_PER_EXECUTION = 32
EPOCH = "epoch"


def scope(*, on_ipu: bool) -> AbstractContextManager:
    """Where a model is made."""
    if not on_ipu:
        return nullcontext()
    from fit import ipu_strategy  # which imports TensorFlow

    return ipu_strategy().scope()


def make_model(workload: Workload, *, steps_per_execution: int, on_ipu: bool) -> keras.Model:
    """Returns a model that is compiled with Adam, and has no metric but its loss."""
    keras.utils.set_random_seed(SEED)
    with scope(on_ipu=on_ipu):
        model = workload.build()
        model.compile(
            optimizer="adam",
            loss="sparse_categorical_crossentropy",
            steps_per_execution=steps_per_execution,
        )
    return model


def make_calls(workload: Workload, *, on_ipu: bool) -> dict[str, Callable[[], object]]:
    """Returns what is measured, by name."""
    x, y = workload.make_data()
    few_x, few_y = x[: NUM_STEPS * BATCH_SIZE], y[: NUM_STEPS * BATCH_SIZE]
    batch_x, batch_y = x[:BATCH_SIZE], y[:BATCH_SIZE]
    model = make_model(workload, steps_per_execution=1, on_ipu=on_ipu)
    many = make_model(workload, steps_per_execution=STEPS_PER_EXECUTION, on_ipu=on_ipu)
    options = {"batch_size": BATCH_SIZE, "verbose": 0}
    return {
        "fit": lambda: model.fit(few_x, few_y, **options),
        "evaluate": lambda: model.evaluate(few_x, few_y, **options),
        "predict": lambda: model.predict(few_x, **options),
        "train_on_batch": lambda: model.train_on_batch(batch_x, batch_y),
        "predict_on_batch": lambda: model.predict_on_batch(batch_x),
        # JAX returns before it has computed: the array is what one waits for.
        "model(x)": lambda: np.asarray(model(batch_x)),
        EPOCH: lambda: many.fit(x, y, **options),
    }


def answer(calls: dict[str, Callable[[], object]]) -> None:
    """Reads the name of a call and a number from each line, and prints the seconds of each."""
    for line in sys.stdin:
        name, count = json.loads(line)
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            calls[name]()
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=WORKLOADS)
    parser.add_argument("--on-ipu", action="store_true", help="make models in an IPUStrategy")
    parser.add_argument(
        "--probe", type=int, metavar="STEPS", help="print the time to the first step of `fit`"
    )
    args = parser.parse_args()
    workload = WORKLOADS[args.model]
    if args.probe is None:
        answer(make_calls(workload, on_ipu=args.on_ipu))
        return

    def build() -> keras.Model:
        return make_model(workload, steps_per_execution=args.probe, on_ipu=args.on_ipu)

    data = workload.make_data()
    print(json.dumps(fresh_process.probe(build, *data, batch_size=BATCH_SIZE)))


if __name__ == "__main__":
    main()
