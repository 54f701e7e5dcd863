"""PopART: training that goes on, from a file, where another session stopped.

`modelToHost` writes weights and what Adam keeps of them, which a session of that model begins with:
six epochs in a row and three in each of two sessions give the same weights, bit for bit.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(
    __name__, __doc__, epochs=(3, "passes before and after the file is written")
)

import tempfile
from pathlib import Path

import digits_data
import numpy as np
import popart
import popart_training

EPOCHS = ARGUMENTS.epochs


def session_of(model: bytes | str, names: dict[str, str], batches: int) -> popart.TrainingSession:
    """A session that may run."""
    session = popart.TrainingSession(
        fnModel=model,
        dataFlow=popart.DataFlow(batches, {names["loss"]: popart.AnchorReturnType("Sum")}),
        loss=names["loss"],
        optimizer=popart.Adam({"defaultLearningRate": (0.01, True)}),
        deviceInfo=popart.DeviceManager().createIpuModelDevice({}),
    )
    session.prepareDevice()
    session.weightsFromHost()
    return session


def train(session: popart.TrainingSession, names: dict[str, str], batches: int) -> float:
    """Some epochs; returns the mean loss of the last one."""
    (images, labels), _ = digits_data.load()
    anchors = session.initAnchorArrays()
    for _ in range(EPOCHS):
        inputs = {names["images"]: images, names["labels"]: labels}
        session.run(popart.PyStepIO(inputs, anchors))
    return float(anchors[names["loss"]]) / batches


def weights_of(session: popart.TrainingSession) -> dict[str, np.ndarray]:
    """Two of the weights as the device has them."""
    shapes = {"kernel": (8, 1, 3, 3), "matrix": (10, 128)}
    weights = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(weights))
    return weights


def main() -> dict:
    """Trains in one session and in two; prints and returns how they differ."""
    proto, names = popart_training.build()
    batches = digits_data.NUM_TRAIN // popart_training.MICRO_BATCH
    first = session_of(proto, names, batches)
    losses = [train(first, names, batches)]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "checkpoint.onnx")
        first.modelToHost(path)
        second = session_of(path, names, batches)
    losses += [train(first, names, batches), train(second, names, batches)]
    pairs = zip(weights_of(first).values(), weights_of(second).values(), strict=True)
    difference = max(float(np.abs(one - other).max()) for one, other in pairs)
    print(f"loss {losses[0]:.4f}, later {losses[1]:.4f}, resumed {losses[2]:.4f}")
    print(f"largest difference of weights {difference}")
    return {"losses": losses, "difference": difference}


if __name__ == "__main__":
    main()
