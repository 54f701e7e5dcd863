"""What a model needs in a process that has run nothing before. Any of Keras's backends will do."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras


class _FirstStep(keras.callbacks.Callback):
    """Notes when the first execution of `fit` is over."""

    ended: float | None = None

    def on_train_batch_end(self, batch, logs=None):
        if self.ended is None:
            self.ended = time.perf_counter()


def probe(build: Callable[[], keras.Model], *data: Any, **options: Any) -> dict[str, float]:
    """Returns the seconds to the first step, and the peak of memory after an epoch in MB.

    The time ends with the first call of `on_train_batch_end`: after one step, or after as many as
    an execution has.

    Args:
        build: Returns the compiled model; the time starts with it.
        data: What `fit` is given.
        options: Further arguments of `fit`.
    """
    first_step = _FirstStep()
    start = time.perf_counter()
    build().fit(*data, verbose=0, callbacks=[first_step], **options)
    return {"first_step": first_step.ended - start, "memory": peak_memory()}


def peak_memory() -> float:
    """Returns the largest resident size of this process so far, in MB."""
    # Not ru_maxrss: in a child it starts at the size of the process that forked it.
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
