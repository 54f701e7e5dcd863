"""PopART: makes `digits_cnn.onnx`, the small model that other examples import.

It is trained by Keras on the host, and written with the onnx package as PyTorch's exporter writes
models: weights are called after their modules, images have channels first, the batch axis is open.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(
    __name__,
    __doc__,
    epochs=(60, "passes over the training images"),
    file=("digits_cnn.onnx", "where to, from the folder of this script"),
)

from pathlib import Path

import digits_data
import keras
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FILE = Path(__file__).parent / ARGUMENTS.file


def trained_weights(num_epochs: int = ARGUMENTS.epochs) -> dict[str, np.ndarray]:
    """Weights in PyTorch's layout: `(out, in, height, width)` and `(out, in)`."""
    (x_train, y_train), _ = digits_data.load()
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((1, 8, 8)),
            keras.layers.Permute((2, 3, 1)),
            keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Permute((3, 1, 2)),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.005), loss)
    images = x_train.reshape(-1, 1, 8, 8)
    model.fit(images, y_train, batch_size=32, epochs=num_epochs, verbose=0)
    kernel, bias, matrix, offsets = model.get_weights()
    return {
        "conv.weight": kernel.transpose(3, 2, 0, 1),
        "conv.bias": bias,
        "fc.weight": matrix.T,
        "fc.bias": offsets,
    }


def model_of(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """The model with these weights."""
    node = helper.make_node
    nodes = [
        node(
            "Conv",
            ["input", "conv.weight", "conv.bias"],
            ["/conv/Conv_output_0"],
            "/conv/Conv",
            dilations=[1, 1],
            group=1,
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
            strides=[1, 1],
        ),
        node("Relu", ["/conv/Conv_output_0"], ["/relu/Relu_output_0"], "/relu/Relu"),
        node(
            "MaxPool",
            ["/relu/Relu_output_0"],
            ["/pool/MaxPool_output_0"],
            "/pool/MaxPool",
            ceil_mode=0,
            kernel_shape=[2, 2],
            pads=[0, 0, 0, 0],
            strides=[2, 2],
        ),
        node("Flatten", ["/pool/MaxPool_output_0"], ["/Flatten_output_0"], "/Flatten", axis=1),
        node(
            "Gemm",
            ["/Flatten_output_0", "fc.weight", "fc.bias"],
            ["output"],
            "/fc/Gemm",
            alpha=1.0,
            beta=1.0,
            transB=1,
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "main_graph",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 10])],
        [
            numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name)
            for name, array in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Makes the file anew."""
    onnx.save(model_of(trained_weights()), FILE)
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
