"""PopART: trains a network with accumulated gradients on two replicas, and infers with its model.

A batch is 4 micro-batches on each of two IPUs; the learning rate falls from epoch to epoch, for
which nothing is compiled anew. The model that is written has the trained weights.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(12, "passes over the training images"))

import tempfile
from pathlib import Path

import digits_data
import numpy as np
import popart

MICRO_BATCH = 8
ACCUMULATION = 4
REPLICAS = 2
EPOCHS = ARGUMENTS.epochs


def build() -> tuple[bytes, dict[str, str]]:
    """The network with its loss, and the names of its tensors."""
    random = np.random.default_rng(0)
    builder = popart.Builder()
    ops = builder.aiOnnx

    def weight(name: str, *shape: int) -> str:
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.0
        values = (scale * random.standard_normal(shape)).astype(np.float32)
        return builder.addInitializedInputTensor(values, name)

    images = builder.addInputTensor("FLOAT", [MICRO_BATCH, 1, 8, 8], "images")
    labels = builder.addInputTensor("INT32", [MICRO_BATCH], "labels")
    x = ops.conv([images, weight("kernel", 8, 1, 3, 3), weight("bias", 8)], pads=[1, 1, 1, 1])
    (x,) = ops.maxpool([ops.relu([x])], num_outputs=1, kernel_shape=[2, 2], strides=[2, 2])
    x = ops.gemm([ops.flatten([x]), weight("matrix", 10, 128), weight("offset", 10)], transB=1)
    probabilities = ops.softmax([x], axis=1)
    loss = builder.aiGraphcore.nllloss([probabilities, labels])
    builder.addOutputTensor(loss)
    names = {"images": images, "labels": labels, "probabilities": probabilities, "loss": loss}
    return builder.getModelProto(), names


def options() -> popart.SessionOptions:
    """How batches are divided."""
    chosen = popart.SessionOptions()
    chosen.enableGradientAccumulation = True
    chosen.accumulationFactor = ACCUMULATION
    chosen.enableReplicatedGraphs = True
    chosen.replicatedGraphCount = REPLICAS
    chosen.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    return chosen


def optimizer(rate: float) -> popart.SGD:
    """Momentum, and a learning rate that may change."""
    values = {"defaultLearningRate": (rate, False), "defaultMomentum": (0.9, True)}
    return popart.SGD(values)


def accuracy_of(model: str, names: dict[str, str]) -> float:
    """How many test images a model that was written recognises."""
    _, (images, labels) = digits_data.load()
    returned = {names["probabilities"]: popart.AnchorReturnType("All")}
    session = popart.InferenceSession(
        model,
        popart.DataFlow(len(images) // MICRO_BATCH, returned),
        popart.DeviceManager().createIpuModelDevice({}),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    inputs = {names["images"]: images, names["labels"]: labels}
    session.run(popart.PyStepIO(inputs, anchors))
    found = anchors[names["probabilities"]].reshape(-1, 10).argmax(axis=1)
    return float((found == labels).mean())


def main() -> dict:
    """Trains, writes the model and tests it; prints and returns what was found."""
    (images, labels), _ = digits_data.load()
    proto, names = build()
    batches = len(images) // (MICRO_BATCH * ACCUMULATION * REPLICAS)
    session = popart.TrainingSession(
        fnModel=proto,
        dataFlow=popart.DataFlow(batches, {names["loss"]: popart.AnchorReturnType("All")}),
        loss=names["loss"],
        optimizer=optimizer(0.2),
        deviceInfo=popart.DeviceManager().createIpuModelDevice({"numIPUs": REPLICAS}),
        userOptions=options(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    losses, random = [], np.random.default_rng(1)
    for epoch in range(EPOCHS):
        session.updateOptimizerFromHost(optimizer(0.2 * 0.8**epoch))
        order = random.permutation(len(images))
        inputs = {names["images"]: images[order], names["labels"]: labels[order]}
        session.run(popart.PyStepIO(inputs, anchors))
        losses.append(float(anchors[names["loss"]].mean()))
        print(f"epoch {epoch + 1}: loss {losses[-1]:.4f}")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "trained.onnx")
        session.modelToHost(path)
        accuracy = accuracy_of(path, names)
    print(f"accuracy {accuracy:.3f}, losses of {anchors[names['loss']].shape} micro-batches")
    return {"losses": losses, "shape": anchors[names["loss"]].shape, "accuracy": accuracy}


if __name__ == "__main__":
    main()
