"""PopART: callbacks hand over one micro-batch at a time, so that no array holds all data.

They give each of two replicas its images, and count what is right of what comes back.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
script_arguments(__name__, __doc__)

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import digits_data
import numpy as np
import popart

FILE = Path(__file__).with_name("digits_cnn.onnx")
BATCH_SIZE = 16
REPLICAS = 2


class Callbacks:
    """What a session calls.

    Args:
        images: Test images, read batch by batch.
        labels: Theirs.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        self._images: Iterator[np.ndarray] = iter(images.reshape(-1, BATCH_SIZE, 1, 8, 8))
        self._labels: Iterator[np.ndarray] = iter(labels.reshape(-1, BATCH_SIZE))
        self._logits = np.empty((BATCH_SIZE, 10), np.float32)
        self.calls: Counter[str] = Counter()
        self.correct = 0

    def give(self, name: str, is_prefetch: bool) -> np.ndarray:
        """The next images."""
        self.calls["given"] += 1
        return next(self._images)

    def given(self, name: str) -> None:
        """The images were read."""
        self.calls["read"] += 1

    def take(self, name: str) -> np.ndarray:
        """Where the next results are to be written."""
        self.calls["taken"] += 1
        return self._logits

    def taken(self, name: str) -> None:
        """The results were written."""
        self.calls["written"] += 1
        self.correct += int((self._logits.argmax(axis=1) == next(self._labels)).sum())

    def step_io(self) -> popart.PyStepIOCallback:
        """What a session runs with."""
        return popart.PyStepIOCallback(self.give, self.given, self.take, self.taken)


def main() -> dict:
    """Classifies the test images; prints and returns how many are right."""
    _, (x_test, y_test) = digits_data.load()
    shapes = popart.InputShapeInfo()
    shapes.add("input", popart.TensorInfo("FLOAT", [BATCH_SIZE, 1, 8, 8]))
    options = popart.SessionOptions()
    options.enableReplicatedGraphs = True
    options.replicatedGraphCount = REPLICAS
    steps = len(x_test) // BATCH_SIZE // REPLICAS
    session = popart.InferenceSession(
        str(FILE),
        popart.DataFlow(1, {"output": popart.AnchorReturnType("All")}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": REPLICAS}),
        inputShapeInfo=shapes,
        userOptions=options,
    )
    session.prepareDevice()
    callbacks = Callbacks(x_test, y_test)
    step_io = callbacks.step_io()
    for _ in range(steps):
        session.run(step_io)
    print(f"{steps} steps, {callbacks.calls['given']} micro-batches given and taken")
    print(f"{callbacks.correct} of {len(y_test)} images are right")
    return {"correct": callbacks.correct, "calls": dict(callbacks.calls), "steps": steps}


if __name__ == "__main__":
    main()
