"""Models as exporters write them, in the opsets that they write, against ONNX's reference."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ipu_keras import popart

FLOAT = TensorProto.FLOAT
RANDOM = np.random.default_rng(1)


class Exported:
    """A graph that is written node by node; names of results are those of their nodes."""

    def __init__(self, opset, **inputs):
        self.opset, self.nodes, self.weights = opset, [], []
        self.inputs = [
            helper.make_tensor_value_info(name, kind, shape)
            for name, (kind, shape) in inputs.items()
        ]

    def weight(self, *shape, positive=False):
        array = RANDOM.normal(scale=0.3, size=shape).astype(np.float32)
        return self.of(np.abs(array) + 0.5 if positive else array)

    def of(self, value):
        name = f"onnx::{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def constant(self, value):
        """As torch writes numbers of shapes: a node of its own."""
        return self.add("Constant", value=numpy_helper.from_array(np.asarray(value)))

    def add(self, kind, *inputs, outputs=1, **attributes):
        names = [f"/{kind}_{len(self.nodes)}_output_{i}" for i in range(outputs)]
        node = helper.make_node(kind, inputs, names, f"/{kind}_{len(self.nodes)}", **attributes)
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    def model(self, *outputs):
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "main_graph", self.inputs, results, self.weights)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def check(model, feeds, *, open_shapes=False):
    """Runs a model, and compares what it returns.

    Args:
        model: It.
        feeds: Arrays by name.
        open_shapes: Whether shapes have to be given besides.
    """
    names = [each.name for each in model.graph.output]
    infos = popart.InputShapeInfo()
    for name, array in feeds.items():
        if open_shapes:
            kind = {"float32": "FLOAT", "int64": "INT64"}[array.dtype.name]
            infos.add(name, popart.TensorInfo(kind, list(array.shape)))
    session = popart.InferenceSession(
        model.SerializeToString(),
        popart.DataFlow(1, names),
        popart.DeviceManager().createIpuModelDevice({}),
        inputShapeInfo=infos,
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    narrow = {n: a.astype(np.int32) if a.dtype == np.int64 else a for n, a in feeds.items()}
    session.run(popart.PyStepIO(narrow, anchors))
    for name, expected in zip(names, ReferenceEvaluator(model).run(None, feeds), strict=True):
        assert anchors[name].shape == expected.shape
        np.testing.assert_allclose(anchors[name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [14, 17, 18])
def test_a_block_of_a_resnet_of_torch(opset):
    made = Exported(opset, input=(FLOAT, ["batch", 4, 8, 8]))
    square = {"dilations": [1, 1], "group": 1, "kernel_shape": [3, 3], "pads": [1] * 4}
    first = made.add(
        "Conv", "input", made.weight(6, 4, 3, 3), made.weight(6), strides=[2, 2], **square
    )
    relu = made.add("Relu", first)
    second = made.add("Conv", relu, made.weight(6, 6, 3, 3), strides=[1, 1], **square)
    statistics = [made.weight(6), made.weight(6), made.weight(6), made.weight(6, positive=True)]
    normalized = made.add(
        "BatchNormalization", second, *statistics, epsilon=1e-5, momentum=0.9, training_mode=0
    )
    shortcut = made.add(
        "Conv", "input", made.weight(6, 4, 1, 1), kernel_shape=[1, 1], strides=[2, 2]
    )
    block = made.add("Relu", made.add("Add", normalized, shortcut))
    pooled = made.add("MaxPool", block, ceil_mode=0, kernel_shape=[2, 2], strides=[2, 2])
    if opset < 18:
        mean = made.add("ReduceMean", pooled, axes=[2, 3], keepdims=1)
    else:
        mean = made.add("ReduceMean", pooled, made.of(np.array([2, 3])), keepdims=1)
    # As torch.flatten(x, 1) becomes with a batch of any size.
    size = made.add("Gather", made.add("Shape", mean), made.constant(np.array(0)), axis=0)
    axes = made.constant(np.array([0]))
    shape = made.add(
        "Concat", made.add("Unsqueeze", size, axes), made.constant(np.array([-1])), axis=0
    )
    flat = made.add("Reshape", mean, shape, allowzero=0)
    logits = made.add("Gemm", flat, made.weight(5, 6), made.weight(5), transB=1)
    probabilities = made.add("Softmax", logits, axis=-1)
    images = RANDOM.normal(size=(2, 4, 8, 8)).astype(np.float32)
    check(made.model(probabilities, block), {"input": images}, open_shapes=True)


@pytest.mark.parametrize("opset", [14, 17])
def test_a_layer_of_bert_with_a_batch_of_any_size(opset):
    width, heads, length = 8, 2, 5
    made = Exported(
        opset,
        input_ids=(TensorProto.INT64, ["batch", "sequence"]),
        attention_mask=(TensorProto.INT64, ["batch", "sequence"]),
    )

    def normalized(x):
        if opset >= 17:
            return made.add(
                "LayerNormalization", x, made.weight(width), made.weight(width), epsilon=1e-12
            )
        mean = made.add("ReduceMean", x, axes=[-1])
        less = made.add("Sub", x, mean)
        square = made.add("Pow", less, made.constant(np.float32(2)))
        variance = made.add("ReduceMean", square, axes=[-1])
        root = made.add("Sqrt", made.add("Add", variance, made.constant(np.float32(1e-12))))
        scaled = made.add("Mul", made.add("Div", less, root), made.weight(width))
        return made.add("Add", scaled, made.weight(width))

    def size(axis):
        found = made.add(
            "Gather", made.add("Shape", "input_ids"), made.constant(np.array(axis)), axis=0
        )
        return made.add("Unsqueeze", found, made.constant(np.array([0])))

    def by_head(x, perm):
        whole = [size(0), size(1)] + [made.constant(np.array([n])) for n in (heads, width // heads)]
        apart = made.add("Reshape", x, made.add("Concat", *whole, axis=0))
        return made.add("Transpose", apart, perm=perm)

    def dense(x, inner, outer):
        return made.add("Add", made.weight(outer), made.add("MatMul", x, made.weight(inner, outer)))

    # Positions are the first of a buffer, and the mask is added to scores.
    positions = made.add(
        "Slice",
        made.of(np.arange(16)[None]),
        made.constant(np.array([0])),
        size(1),
        made.constant(np.array([1])),
    )
    embedded = made.add(
        "Add",
        made.add("Gather", made.weight(20, width), "input_ids"),
        made.add("Gather", made.weight(16, width), positions),
    )
    hidden = normalized(embedded)
    mask = made.add("Unsqueeze", "attention_mask", made.constant(np.array([1, 2])))
    missing = made.add(
        "Sub", made.constant(np.float32(1)), made.add("Cast", mask, to=TensorProto.FLOAT)
    )
    added = made.add("Mul", missing, made.constant(np.finfo(np.float32).min))
    query, key, value = (
        by_head(dense(hidden, width, width), perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = made.add(
        "Div", made.add("MatMul", query, key), made.constant(np.float32(np.sqrt(width // heads)))
    )
    weights = made.add("Softmax", made.add("Add", scores, added), axis=-1)
    context = made.add("Transpose", made.add("MatMul", weights, value), perm=[0, 2, 1, 3])
    joined = made.add("Concat", size(0), size(1), made.constant(np.array([width])), axis=0)
    attended = made.add("Reshape", context, joined, allowzero=0)
    hidden = normalized(made.add("Add", dense(attended, width, width), hidden))
    inner = dense(hidden, width, 16)
    erf = made.add("Erf", made.add("Div", inner, made.constant(np.float32(np.sqrt(2)))))
    gelu = made.add(
        "Mul",
        made.add("Mul", inner, made.add("Add", erf, made.constant(np.float32(1)))),
        made.constant(np.float32(0.5)),
    )
    last = normalized(made.add("Add", dense(gelu, 16, width), hidden))
    first = made.add("Gather", last, made.constant(np.array(0)), axis=1)
    pooled = made.add("Tanh", made.add("Gemm", first, made.weight(width, width), transB=1))
    feeds = {
        "input_ids": RANDOM.integers(0, 20, (3, length)),
        "attention_mask": np.array([[1] * 5, [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]),
    }
    check(made.model(last, pooled), feeds, open_shapes=True)


def test_images_with_channels_last_of_tf2onnx():
    made = Exported(15, **{"serving_default_input:0": (FLOAT, [-1, 6, 6, 3])})
    images = made.add("Transpose", "serving_default_input:0", perm=[0, 3, 1, 2])
    padded = made.add("Pad", images, made.of(np.array([0, 0, 0, 0, 0, 0, 1, 1])))
    convolved = made.add("Conv", padded, made.weight(4, 3, 3, 3), strides=[2, 2])
    bounded = made.add("Clip", convolved, made.of(np.float32(0)), made.of(np.float32(6)))
    resized = made.add(
        "Resize",
        bounded,
        "",
        made.of(np.float32([1, 1, 2, 2])),
        coordinate_transformation_mode="asymmetric",
        mode="nearest",
        nearest_mode="floor",
    )
    one, two = made.add("Split", resized, made.of(np.array([3, 3])), outputs=2, axis=2)
    both = made.add("Concat", one, two, axis=1)
    last = made.add("Transpose", both, perm=[0, 2, 3, 1])
    mean = made.add("ReduceSum", last, made.of(np.array([1, 2])), keepdims=0)
    best = made.add("ArgMax", made.add("Squeeze", mean), axis=-1, keepdims=0)
    feeds = {"serving_default_input:0": RANDOM.normal(size=(2, 6, 6, 3)).astype(np.float32)}
    check(made.model(last, mean, best), feeds, open_shapes=True)


def test_a_classifier_of_skl2onnx():
    made = Exported(17, X=(FLOAT, [None, 4]))
    scaled = made.add("Div", made.add("Sub", "X", made.weight(4)), made.weight(4, positive=True))
    hidden = made.add(
        "Relu", made.add("Add", made.add("MatMul", scaled, made.weight(4, 6)), made.weight(6))
    )
    scores = made.add("Add", made.add("MatMul", hidden, made.weight(6, 3)), made.weight(3))
    probabilities = made.add("Softmax", scores)
    chosen = made.add("ArgMax", probabilities, axis=1, keepdims=0)
    labels = made.add("Gather", made.of(np.array([10, 20, 30])), chosen)
    model = made.model(labels, probabilities)
    # It imports the domain, though all is said by others.
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    check(model, {"X": RANDOM.normal(size=(5, 4)).astype(np.float32)}, open_shapes=True)


def test_a_language_model_of_opset_23():
    made = Exported(23, hidden=(FLOAT, [1, 4, 8]))
    normed = made.add("RMSNormalization", "hidden", made.weight(8), epsilon=1e-6)
    query, key, value = (made.add("MatMul", normed, made.weight(8, size)) for size in (8, 4, 4))
    angles = np.arange(4)[None, :, None] * np.float32([1, 0.1])
    cos, sin = (made.of(each(angles).astype(np.float32)) for each in (np.cos, np.sin))
    turned = [
        made.add("RotaryEmbedding", each, cos, sin, num_heads=heads)
        for each, heads in ((query, 2), (key, 1))
    ]
    attended = made.add("Attention", *turned, value, is_causal=1, q_num_heads=2, kv_num_heads=1)
    check(
        made.model(made.add("Add", "hidden", attended)),
        {"hidden": RANDOM.normal(size=(1, 4, 8)).astype(np.float32)},
    )


def trained(opset):
    """The weights after two steps of a classifier with a batch normalisation."""
    made = Exported(opset, x=(FLOAT, [4, 3, 2]), labels=(TensorProto.INT32, [4]))
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    statistics = [made.of(each) for each in (ones, zeros, zeros, ones)]
    newer = {"training_mode": 1} if opset > 11 else {}
    normalized, mean, *_ = made.add(
        "BatchNormalization", "x", *statistics, outputs=3 if newer else 5, momentum=0.5, **newer
    )
    if opset > 11:
        summed = made.add("ReduceSum", normalized, made.of(np.array([2])), keepdims=0)
    else:
        summed = made.add("ReduceSum", normalized, axes=[2], keepdims=0)
    weight = made.of(np.eye(3, dtype=np.float32))
    probabilities = made.add("Softmax", made.add("MatMul", summed, weight), axis=1)
    loss = made.add("Nll", probabilities, "labels", domain="ai.graphcore")
    model = made.model(loss)
    model.opset_import.append(helper.make_opsetid("ai.graphcore", 1))
    session = popart.TrainingSession(
        model.SerializeToString(),
        popart.DataFlow(2, [mean]),
        loss,
        popart.ConstSGD(0.5),
        popart.DeviceManager().createIpuModelDevice({}),
    )
    session.prepareDevice()
    session.weightsFromHost()
    x = np.random.default_rng(3).normal(size=(2, 4, 3, 2)).astype(np.float32)
    labels = np.int32([[0, 1, 2, 1], [2, 2, 0, 1]])
    session.run(popart.PyStepIO({"x": x, "labels": labels}, session.initAnchorArrays()))
    session.weightsToHost()
    weights = {name: np.zeros(3, np.float32) for name in statistics}
    weights[weight] = np.zeros((3, 3), np.float32)
    session.readWeights(popart.PyWeightsIO(weights))
    return [weights[name] for name in (*statistics, weight)]


def test_training_is_that_of_opset_11():
    for newer, older in zip(trained(17), trained(11), strict=True):
        np.testing.assert_allclose(newer, older, rtol=1e-6)
    assert not np.allclose(trained(17)[2], 0)


@pytest.mark.parametrize("constant_weights", [True, False])
def test_scales_of_a_decoder_are_no_weights(constant_weights):
    """Exporters that fold constants make initialisers of them, which do not change in training."""
    exported = Exported(13, x=(FLOAT, [1, 1, 1, 2]))
    product = exported.add("Mul", "x", exported.of(np.float32(3)))
    scales = exported.of(np.float32([1, 1, 1, 2]))
    wide = exported.add("Resize", product, "", scales, mode="nearest")
    off = exported.of(np.float32(0)), exported.of(np.array(False))
    kept = exported.add("Dropout", wide, *off)
    loss = exported.add("ReduceSum", kept, keepdims=0)
    weight, x = exported.weights[0].name, np.float32([[[[1, 2]]]])
    device = popart.DeviceManager().createIpuModelDevice({})

    options = popart.SessionOptions()
    options.constantWeights = constant_weights
    flow = popart.DataFlow(1, [kept])
    proto = exported.model(kept).SerializeToString()
    session = popart.InferenceSession(proto, flow, device, userOptions=options)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x}, anchors))
    np.testing.assert_array_equal(anchors[kept], [[[[3, 3, 6, 6]]]])

    proto, flow = exported.model(loss).SerializeToString(), popart.DataFlow(1, [loss])
    device = popart.DeviceManager().createIpuModelDevice({})
    session = popart.TrainingSession(proto, flow, loss, popart.ConstSGD(0.125), device)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x}, anchors))
    session.weightsToHost()
    found = {weight: np.empty((), np.float32)}
    session.readWeights(popart.PyWeightsIO(found))
    assert anchors[loss] == 18
    # 3 - 0.125 * (1 + 1 + 2 + 2)
    assert found[weight] == 2.25
