"""PopART: imports `digits_cnn.onnx`, a model as PyTorch exports it, and runs it.

The file leaves the size of a batch open. Programs of IPUs are static: `InputShapeInfo` says it.
`popart_make_model.py` has made the file.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
script_arguments(__name__, __doc__)

from pathlib import Path

import digits_data
import popart

FILE = Path(__file__).with_name("digits_cnn.onnx")
BATCH_SIZE = 32


def main() -> dict:
    """Classifies the test images; prints and returns what was found."""
    _, (x_test, y_test) = digits_data.load()
    shapes = popart.InputShapeInfo()
    shapes.add("input", popart.TensorInfo("FLOAT", [BATCH_SIZE, 1, 8, 8]))
    session = popart.InferenceSession(
        str(FILE),
        popart.DataFlow(len(x_test) // BATCH_SIZE, {"output": popart.AnchorReturnType("All")}),
        popart.DeviceManager().createIpuModelDevice({}),
        inputShapeInfo=shapes,
    )
    session.prepareDevice()
    for name in ("/conv/Conv_output_0", "/Flatten_output_0", "output"):
        print(f"{name}: {session.getInfo(name).shape()}")

    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"input": x_test}, anchors))
    predicted = anchors["output"].reshape(-1, 10).argmax(axis=1)
    accuracy = float((predicted == y_test).mean())
    report = session.getReport()
    print(f"accuracy {accuracy:.3f}, {report.model.cycles_per_step:,} cycles for a batch")
    return {"accuracy": accuracy, "logits": anchors["output"], "report": report}


if __name__ == "__main__":
    main()
