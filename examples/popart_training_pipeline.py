"""PopART: training on two IPUs, as a pipeline of two stages with accumulated gradients.

The numbers are those of one IPU. The report says what each stage would cost.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(__name__, __doc__, epochs=(10, "passes over the training images"))

import digits_data
import numpy as np
import popart

MICRO_BATCH = 16
ACCUMULATION = 8
EPOCHS = ARGUMENTS.epochs


def build() -> tuple[bytes, dict[str, str]]:
    """A perceptron, each layer on an IPU of its own, and the names of its tensors."""
    random = np.random.default_rng(0)
    builder = popart.Builder()
    ops = builder.aiOnnx
    images = builder.addInputTensor("FLOAT", [MICRO_BATCH, 64], "images")
    labels = builder.addInputTensor("INT32", [MICRO_BATCH], "labels")

    def dense(x: str, given: int, made: int) -> str:
        matrix = (np.sqrt(2 / given) * random.standard_normal((given, made))).astype(np.float32)
        bias = np.zeros(made, np.float32)
        return ops.gemm([x, *map(builder.addInitializedInputTensor, (matrix, bias))])

    with builder.virtualGraph(0), builder.pipelineStage(0):
        x = ops.relu([dense(images, 64, 128)])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        probabilities = ops.softmax([dense(x, 128, 10)], axis=1)
        loss = builder.aiGraphcore.nllloss([probabilities, labels])
    names = {"images": images, "labels": labels, "probabilities": probabilities, "loss": loss}
    return builder.getModelProto(), names


def main() -> dict:
    """Trains; prints and returns the losses, and what the pipeline would cost."""
    (images, labels), _ = digits_data.load()
    proto, names = build()
    options = popart.SessionOptions()
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    options.enablePipelining = True
    options.enableGradientAccumulation = True
    options.accumulationFactor = ACCUMULATION
    batches = len(images) // (MICRO_BATCH * ACCUMULATION)
    session = popart.TrainingSession(
        fnModel=proto,
        dataFlow=popart.DataFlow(batches, [names["loss"], names["probabilities"]]),
        loss=names["loss"],
        optimizer=popart.Adam({"defaultLearningRate": (0.01, True)}),
        deviceInfo=popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    losses = []
    for _ in range(EPOCHS):
        session.run(popart.PyStepIO({names["images"]: images, names["labels"]: labels}, anchors))
        losses.append(float(anchors[names["loss"]].mean()))
    found = anchors[names["probabilities"]].reshape(-1, 10).argmax(axis=1)
    accuracy = float((found == labels).mean())
    print(f"losses {losses[0]:.3f} to {losses[-1]:.3f}, accuracy in training {accuracy:.3f}")
    print(session.getSummaryReport())
    return {"losses": losses, "accuracy": accuracy, "report": session.getReport()}


if __name__ == "__main__":
    main()
