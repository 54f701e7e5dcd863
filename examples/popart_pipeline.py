"""PopART: a convolutional network on two IPUs, as a pipeline of two stages.

Weights are those of `digits_cnn.onnx`. The report says what each stage would cost.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
script_arguments(__name__, __doc__)

from pathlib import Path

import digits_data
import onnx
import popart
from onnx import numpy_helper

FILE = Path(__file__).with_name("digits_cnn.onnx")
BATCH_SIZE = 16


def build() -> tuple[bytes, str, str]:
    """The network, each layer on an IPU of its own, with the names of its input and output."""
    stored = {w.name: numpy_helper.to_array(w) for w in onnx.load(FILE).graph.initializer}
    builder = popart.Builder()
    weights = {name: builder.addInitializedInputTensor(w, name) for name, w in stored.items()}
    images = builder.addInputTensor("FLOAT", [BATCH_SIZE, 1, 8, 8], "images")
    ops = builder.aiOnnx
    with builder.virtualGraph(0), builder.pipelineStage(0):
        x = ops.conv(
            [images, weights["conv.weight"], weights["conv.bias"]],
            pads=[1, 1, 1, 1],
            strides=[1, 1],
        )
        x = ops.relu([x])
        (x,) = ops.maxpool([x], num_outputs=1, kernel_shape=[2, 2], strides=[2, 2])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        x = ops.flatten([x])
        x = ops.gemm([x, weights["fc.weight"], weights["fc.bias"]], transB=1)
        labels = ops.argmax([x], axis=1, keepdims=0)
    builder.addOutputTensor(labels)
    return builder.getModelProto(), images, labels


def main() -> dict:
    """Classifies the test images; prints and returns what was found, and what it would cost."""
    _, (x_test, y_test) = digits_data.load()
    proto, images, labels = build()
    options = popart.SessionOptions()
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    options.enablePipelining = True
    session = popart.InferenceSession(
        proto,
        popart.DataFlow(len(x_test) // BATCH_SIZE, {labels: popart.AnchorReturnType("All")}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
        userOptions=options,
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({images: x_test}, anchors))
    accuracy = float((anchors[labels].ravel() == y_test).mean())
    print(f"accuracy {accuracy:.3f}")
    print(session.getSummaryReport())
    return {"accuracy": accuracy, "report": session.getReport()}


if __name__ == "__main__":
    main()
