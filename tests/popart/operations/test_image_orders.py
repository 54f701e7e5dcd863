"""Convolutional networks in which images stay as convolutions make them, traced and counted."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.popart.model.graph import AI_ONNX, GraphInput, Node, OnnxGraph, OnnxModel
from ipu_keras.popart.operations.evaluation import outputs_of
from ipu_keras.popart.operations.values import LaidOutTensor, Order

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(2, 3, 8, 8)).astype(np.float32)
WEIGHTS = {
    "w": RANDOM.normal(size=(4, 3, 3, 3)).astype(np.float32),
    "v": RANDOM.normal(size=(4, 4, 3, 3)).astype(np.float32),
    "b": RANDOM.normal(size=4).astype(np.float32),
    "one": np.ones(4, np.float32),
    "zero": np.zeros(4, np.float32),
    "dense": RANDOM.normal(size=(4, 5)).astype(np.float32),
    "roi": np.float32([]),
    "scales": np.float32([1, 1, 2, 2]),
}
PADDED = {"pads": [1, 1, 1, 1]}


def node(kind, inputs, output, **attributes):
    return Node(kind, AI_ONNX, tuple(inputs), (output,), attributes=attributes)


BEGINNING = [node("Conv", ["x", "w", "b"], "conv", **PADDED)]
NETWORK = [
    *BEGINNING,
    node("BatchNormalization", ["conv", "one", "zero", "zero", "one"], "norm"),
    node("Relu", ["norm"], "relu"),
    node("MaxPool", ["relu"], "pooled", kernel_shape=[2, 2], strides=[2, 2]),
    node("Conv", ["pooled", "v"], "second", **PADDED),
    node("Add", ["second", "pooled"], "sum"),
    node("GlobalAveragePool", ["sum"], "mean"),
    node("Flatten", ["mean"], "flat"),
    node("Gemm", ["flat", "dense"], "y"),
]


def kinds_of(nodes, shape=IMAGES.shape, version=11):
    """What is computed, and the kinds of operations of its trace, without the constants'."""
    model = OnnxModel(
        OnnxGraph("one", tuple(nodes), (GraphInput("x"),), ("y",), WEIGHTS), {AI_ONNX: version}
    )
    run = tf.function(lambda x: outputs_of(model, {"x": x})[0], autograph=False)
    graph = run.get_concrete_function(tf.TensorSpec(shape)).graph
    return run(IMAGES), [each.type for each in graph.get_operations()]


@pytest.mark.parametrize("batch", [2, None])
def test_only_the_input_of_a_network_is_transposed(batch):
    result, kinds = kinds_of(NETWORK, (batch, 3, 8, 8))
    assert result.shape == (2, 5)
    assert kinds.count("Transpose") == 1
    assert kinds.index("Transpose") < kinds.index("Conv2D")


def test_networks_as_their_operations_say():
    """The same, each operation with its results as ONNX has them."""
    environment = {"x": IMAGES}
    for each in NETWORK:
        inputs = tuple(GraphInput(name) for name in each.inputs if name not in WEIGHTS)
        graph = OnnxGraph("one", (each,), inputs, each.outputs, WEIGHTS)
        given = {one.name: environment[one.name] for one in inputs}
        (environment[each.outputs[0]],) = outputs_of(OnnxModel(graph, {AI_ONNX: 11}), given)
    result, _ = kinds_of(NETWORK)
    np.testing.assert_allclose(result, environment["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "between",
    [
        node("Resize", ["conv", "roi", "scales"], "z"),
        node("Resize", ["conv", "roi", "scales"], "z", mode="linear"),
        node("MeanVarianceNormalization", ["conv"], "z"),
        node("MeanVarianceNormalization", ["conv"], "z", axes=[1]),
        node("InstanceNormalization", ["conv", "one", "zero"], "z"),
        node("LpNormalization", ["conv"], "z", axis=1),
        node("LRN", ["conv"], "z", size=3),
        node("Dropout", ["conv"], "z"),
        node("AveragePool", ["conv"], "z", kernel_shape=[3, 3], **PADDED),
        node("LpPool", ["conv"], "z", kernel_shape=[2, 2]),
        node("ConvTranspose", ["conv", "v"], "z"),
    ],
    ids=lambda each: each.kind,
)
def test_images_stay_as_they_are_between_convolutions(between):
    result, kinds = kinds_of([*BEGINNING, between, node("Conv", ["z", "v"], "y")])
    assert result.shape[:2] == (2, 4)
    # Of the input, and of the output.
    assert kinds.count("Transpose") == 2


@pytest.mark.parametrize(
    ("kind", "attributes", "num_transpositions"),
    [
        ("ReduceMean", {"axes": [2, 3]}, 1),
        ("ReduceMean", {"axes": [-1, 2], "keepdims": 0}, 1),
        ("ReduceMax", {"axes": [1], "keepdims": 0}, 1),
        # Channels and height are left, which are the other way round.
        ("ReduceSum", {"axes": [0, 3], "keepdims": 0}, 2),
        ("ReduceSum", {"keepdims": 0}, 1),
        ("ReduceL2", {}, 1),
        ("ArgMax", {"axis": 1}, 1),
        ("Pad", {"pads": [0, 1, 0, 2, 0, -1, 3, 0]}, 2),
        ("Pad", {"pads": [0, 0, 0, 2, 0, 0, 3, 0], "mode": "reflect"}, 2),
        ("ArgMin", {"axis": 1, "keepdims": 0}, 1),
    ],
)
def test_images_are_reduced_and_padded_as_they_are(kind, attributes, num_transpositions):
    version = 10 if kind == "Pad" else 11
    result, kinds = kinds_of([*BEGINNING, node(kind, ["conv"], "y", **attributes)], version=version)
    assert kinds.count("Transpose") == num_transpositions
    # Of images that are given, which have the order of the model.
    conv, _ = kinds_of([*BEGINNING, node("Identity", ["conv"], "y")])
    model = OnnxModel(
        OnnxGraph("one", (node(kind, ["x"], "y", **attributes),), (GraphInput("x"),), ("y",)),
        {AI_ONNX: version},
    )
    np.testing.assert_allclose(result, outputs_of(model, {"x": conv})[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attributes", [{}, {"axes": []}, {"axes": [0, 1, 2, 3]}], ids=str)
@pytest.mark.parametrize(("keepdims", "shape"), [(0, (4,)), (1, (1, 1, 1, 4))])
def test_what_all_of_an_image_comes_to_meets_vectors(attributes, keepdims, shape):
    reduced = node("ReduceMax", ["conv"], "all", keepdims=keepdims, **attributes)
    result, _ = kinds_of([*BEGINNING, reduced, node("Add", ["all", "b"], "y")])
    conv, _ = kinds_of([*BEGINNING, node("Identity", ["conv"], "y")])
    assert result.shape == shape
    np.testing.assert_allclose(result, (np.max(conv) + WEIGHTS["b"]).reshape(shape), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "spec", "num_transpositions"),
    [
        ((2, 1, 1, 3), (2, 1, 1, 3), 0),
        ((2, 4, 3, 1), (None, 4, 3, 1), 0),
        ((2, 1, 4, 1), (None, 1, None, 1), 1),
        ((2, 4, 3, 2), (2, 4, 3, 2), 1),
        ((0, 1, 1, 3), (0, 1, 1, 3), 1),
    ],
)
def test_axes_of_one_element_move_without_a_copy(shape, spec, num_transpositions):
    x = RANDOM.normal(size=shape).astype(np.float32)
    run = tf.function(lambda x: LaidOutTensor(x, order=Order.IMAGES).tensor)
    concrete = run.get_concrete_function(tf.TensorSpec(spec))
    kinds = [each.type for each in concrete.graph.get_operations()]
    assert kinds.count("Transpose") == num_transpositions
    np.testing.assert_array_equal(concrete(x), np.moveaxis(x, -1, 1))
