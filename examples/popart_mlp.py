"""PopART: builds a perceptron with the builder, and runs it for all test images in one step.

Its weights are those of a classifier of scikit-learn, which the results are compared with.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
script_arguments(__name__, __doc__)

import digits_data
import numpy as np
import popart
from sklearn.neural_network import MLPClassifier

BATCH_SIZE = 16


def build(classifier: MLPClassifier) -> tuple[bytes, str, str]:
    """The classifier as an ONNX model, with the names of its input and its output."""
    builder = popart.Builder()
    images = builder.addInputTensor(popart.TensorInfo("FLOAT", [BATCH_SIZE, 64]), "images")
    x = images
    last = len(classifier.coefs_) - 1
    for layer, (kernel, bias) in enumerate(
        zip(classifier.coefs_, classifier.intercepts_, strict=True)
    ):
        with builder.nameScope(f"layer{layer}"):
            weights = builder.addInitializedInputTensor(kernel.astype("float32"), "weights")
            biases = builder.addInitializedInputTensor(bias.astype("float32"), "biases")
            x = builder.aiOnnx.gemm([x, weights, biases])
            x = builder.aiOnnx.softmax([x]) if layer == last else builder.aiOnnx.relu([x])
    builder.addOutputTensor(x)
    return builder.getModelProto(), images, x


def main() -> dict:
    """Classifies the test images; prints and returns what was found."""
    (x_train, y_train), (x_test, y_test) = digits_data.load()
    classifier = MLPClassifier((32,), random_state=0)
    for _ in range(40):
        classifier.partial_fit(x_train.reshape(-1, 64), y_train, classes=range(10))
    proto, images, probabilities = build(classifier)

    session = popart.InferenceSession(
        proto,
        popart.DataFlow(len(x_test) // BATCH_SIZE, {probabilities: popart.AnchorReturnType("All")}),
        popart.DeviceManager().acquireAvailableDevice(1),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({images: x_test}, anchors))

    found = anchors[probabilities].reshape(-1, 10)
    expected = classifier.predict_proba(x_test.reshape(-1, 64))
    accuracy = float((found.argmax(axis=1) == y_test).mean())
    difference = float(np.abs(found - expected).max())
    print(f"{len(found)} images in a step of {len(anchors[probabilities])} batches")
    print(f"accuracy {accuracy:.3f}; differs from scikit-learn by {difference:.1e}")
    return {"accuracy": accuracy, "difference": difference, "shape": anchors[probabilities].shape}


if __name__ == "__main__":
    main()
