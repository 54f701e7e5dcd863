import numpy as np

from ipu_keras import popart
from ipu_keras.popart.files.loading import load
from ipu_keras.popart.sessions.reached import (
    factors_of_products,
    kept_statistics,
    trained_weights,
)


def test_trained_weights():
    builder = popart.Builder()
    onnx = builder.aiOnnx
    names = {
        name: builder.addInitializedInputTensor(np.ones(3, dtype), name)
        for name, dtype in {
            "in_branch": np.float32,
            "scale": np.float32,
            "shift": np.float32,
            "mean": np.float32,
            "variance": np.float32,
            "behind": np.float32,
            "unused": np.float32,
            "integers": np.int32,
        }.items()
    }
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3]))
    taken = builder.addInputTensor(popart.TensorInfo("BOOL", []))
    branches = []
    for sign in range(2):
        branch = builder.createSubgraphBuilder()
        product = branch.aiOnnx.mul([x, names["in_branch"]])
        branch.addOutputTensor(branch.aiOnnx.neg([product]) if sign else product)
        branches.append(branch)
    (y,) = onnx.logical_if([taken], 1, *branches)
    statistics = ("scale", "shift", "mean", "variance")
    normalized = onnx.batchnormalization([y, *(names[n] for n in statistics)], 5)
    whole = onnx.add([normalized[0], onnx.cast([names["integers"]], "FLOAT")])
    loss = builder.aiGraphcore.l1loss([whole], 0.1)
    builder.addOutputTensor(onnx.mul([loss, names["behind"]]))
    graph = load(builder.getModelProto()).model.graph
    weights = [name for name in names.values() if name != "integers"]
    assert trained_weights(graph, loss, weights) == ("in_branch", "scale", "shift")
    kept = [(before, after) for _, before, after in kept_statistics(graph)]
    assert kept == [("mean", normalized[1]), ("variance", normalized[2])]


def test_factors_of_products():
    builder = popart.Builder()
    onnx = builder.aiOnnx
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1, 1, 4, 4]), "x")
    shapes = {"k": [1, 1, 1, 1], "bias": [1], "l": [1, 1, 1, 1], "w": [4, 4], "c": [4]}
    w = {
        name: builder.addInitializedInputTensor(np.ones(shape, np.float32), name)
        for name, shape in shapes.items()
    }
    y = onnx.conv([x, w["k"], w["bias"]])
    (z,) = builder.aiGraphcore.multiconv([[y, w["l"], w["bias"]]])
    flat = onnx.reshape([z, onnx.constant(np.int64([4, 4]))])
    product = onnx.gemm([flat, w["w"], w["c"]])
    loss = builder.aiGraphcore.l1loss([product], 0.1)
    behind = onnx.matmul([product, w["w"]])
    builder.addOutputTensor(behind)
    graph = load(builder.getModelProto()).model.graph
    # Neither what is added, nor the input, nor what the loss does not depend on.
    assert factors_of_products(graph, loss, w.values()) == ("k", y, "l", flat, "w")
