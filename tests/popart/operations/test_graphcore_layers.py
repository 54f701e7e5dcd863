"""Graphcore's operations with weights against NumPy, and dropout."""

import numpy as np
import pytest
import tensorflow as tf
from popart_graphs import (
    WAYS,
    check_gradient,
    check_gradient_of,
    graph,
    ipu_node,
    one,
    onnx_node,
    results_of,
    run,
)

from ipu_keras.popart.exceptions import popart_exception

every_way = pytest.mark.parametrize("way", WAYS)
random = np.random.default_rng(5)

X = random.normal(size=(2, 4, 3, 5)) * 2 + 1
SCALE, BIAS = random.normal(size=4), random.normal(size=4)


def normalized(x, groups, epsilon, *, strided=False):
    """The normalised tensor, and mean and inverse deviation of each group of each sample."""
    channels = x.shape[1]
    chosen = [
        [c for c in range(channels) if (c % groups if strided else c * groups // channels) == g]
        for g in range(groups)
    ]
    result, statistics = np.zeros_like(x), []
    for sample in range(len(x)):
        for group in chosen:
            part = x[sample, group]
            inverse = 1 / np.sqrt(part.var() + epsilon)
            result[sample, group] = (part - part.mean()) * inverse
            statistics.append((part.mean(), inverse))
    shape = [1, channels] + [1] * (x.ndim - 2)
    return (result * SCALE.reshape(shape) + BIAS.reshape(shape), *np.transpose(statistics))


@every_way
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("strided", [False, True])
def test_group_normalization(strided, dtype, way):
    results = one(
        "GroupNormalization",
        *(each.astype(dtype) for each in (X, SCALE, BIAS)),
        outputs=3,
        num_groups=2,
        epsilon=0.01,
        way=way,
        options={"strides_groups": strided},
    )
    tolerance = 1e-5 if dtype == np.float32 else 5e-3
    for ours, expected in zip(results, normalized(X, 2, 0.01, strided=strided), strict=True):
        assert (ours.dtype, ours.shape) == (dtype, expected.shape)
        np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance)


def test_group_normalization_of_vectors():
    x = X[:, :, 0, 0].astype(np.float32)
    inputs = (x, SCALE.astype(np.float32), BIAS.astype(np.float32))
    result, *_ = one("GroupNormalization", *inputs, outputs=3, num_groups=1)
    np.testing.assert_allclose(result, normalized(x, 1, 1e-5)[0], rtol=1e-4, atol=1e-5)


def test_gradients_of_group_normalization():
    inputs = (X[:, :, :2, :2], SCALE, BIAS)
    for strided in (False, True):
        options = {"strides_groups": strided, "is_training": True}
        attributes = {"num_groups": 2, "epsilon": 0.01, "outputs": 3, "options": options}
        check_gradient("GroupNormalization", *inputs, **attributes)


@pytest.mark.parametrize("groups", [0, 3, 8])
def test_groups_divide_channels(groups):
    with pytest.raises(popart_exception, match=f"Received: num_groups={groups} for 4 channels"):
        one("GroupNormalization", X, SCALE, BIAS, outputs=3, num_groups=groups)


STEPS, BATCH, FEATURES, UNITS = 3, 2, 4, 5
SEQUENCE = random.normal(size=(STEPS, BATCH, FEATURES))
WEIGHTS = random.normal(size=(4, FEATURES + UNITS, UNITS)) * 0.5
GATE_BIAS = random.normal(size=(4, UNITS)) * 0.5
INITIAL = random.normal(size=(2, BATCH, UNITS)) * 0.5


def lstm(x, weights, bias, initial):
    """Gates are forget, input, cell and output; the state is the output and the cell."""
    h, c = initial
    outputs = []
    for step in x:
        gates = np.concatenate([step, h], 1) @ weights + bias[:, None]
        g = gates[2]
        f, i, _, o = 1 / (1 + np.exp(-gates))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        outputs.append(h)
    return np.array(outputs), c


@every_way
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("full", [0, 1])
def test_lstm(full, is_training, dtype, way):
    given = (SEQUENCE, WEIGHTS, GATE_BIAS, INITIAL)
    outputs, cell = one(
        "LSTM",
        *(each.astype(dtype) for each in given),
        outputs=2,
        outputFullSequence=full,
        way=way,
        options={"is_training": is_training},
    )
    expected, expected_cell = lstm(*given)
    tolerance = 1e-5 if dtype == np.float32 else 1e-2
    assert outputs.dtype == cell.dtype == dtype
    np.testing.assert_allclose(
        outputs, expected if full else expected[-1], rtol=tolerance, atol=tolerance
    )
    np.testing.assert_allclose(cell, expected_cell, rtol=tolerance, atol=tolerance)


def test_lstm_without_bias_and_state():
    given = SEQUENCE.astype(np.float32), WEIGHTS.astype(np.float32)
    outputs, cell = one("LSTM", *given, outputs=2)
    expected, expected_cell = lstm(*given, np.zeros((4, UNITS)), np.zeros((2, BATCH, UNITS)))
    np.testing.assert_allclose(outputs, expected, rtol=1e-5)
    np.testing.assert_allclose(cell, expected_cell, rtol=1e-5)
    with pytest.raises(popart_exception, match=r"weights \(4, features \+ units, units\). Rec"):
        one("LSTM", given[0], given[1][:, 1:], outputs=2)


@pytest.mark.parametrize("is_training", [False, True])
def test_gradients_of_lstm(is_training):
    options = {"is_training": is_training}
    check_gradient("LSTM", SEQUENCE, WEIGHTS, GATE_BIAS, INITIAL, outputs=2, options=options)


def convolved(x, w, bias=0, *, pads=(0, 0), stride=1, dilation=1, in_dilation=1, out_pads=(0, 0)):
    """A convolution along one axis, in groups as the channels of its weights say."""
    spread = np.zeros((*x.shape[:2], (x.shape[2] - 1) * in_dilation + 1))
    spread[:, :, ::in_dilation] = x
    spread = np.pad(spread, [(0, 0), (0, 0), pads])
    groups = x.shape[1] // w.shape[1]
    reach = (w.shape[2] - 1) * dilation
    size = (spread.shape[2] - reach - 1) // stride + 1
    result = np.zeros((x.shape[0], w.shape[0], size))
    for out in range(w.shape[0]):
        group = out * groups // w.shape[0]
        inputs = spread[:, group * w.shape[1] : (group + 1) * w.shape[1]]
        for position in range(size):
            start = position * stride
            window = inputs[:, :, start : start + reach + 1 : dilation]
            result[:, out, position] = (window * w[out]).sum((1, 2))
    result = np.pad(result, [(0, 0), (0, 0), out_pads])
    return result + np.reshape(bias, (1, -1, 1))


LEFT = random.normal(size=(2, 2, 6)), random.normal(size=(3, 2, 2)), random.normal(size=3)
RIGHT = random.normal(size=(1, 3, 7)), random.normal(size=(4, 3, 3))


@every_way
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_several_convolutions(dtype, way):
    """The attributes of both are one after the other; the second one has no bias."""
    inputs = [each.astype(dtype) for each in (*LEFT, *RIGHT)]
    left, right = one(
        "MultiConv",
        *inputs,
        *([None] if way == "eager" else []),
        outputs=2,
        way=way,
        strides=[1, 2],
        dilations=[2, 1],
        inDilations=[1, 2],
        pads=[1, 0, 0, 2],
        outPads=[0, 0, 1, 2],
    )
    expected = (
        convolved(*LEFT, pads=(1, 0), dilation=2),
        convolved(*RIGHT, pads=(0, 2), stride=2, in_dilation=2, out_pads=(1, 2)),
    )
    tolerance = 1e-5 if dtype == np.float32 else 2e-2
    for ours, theirs in zip((left, right), expected, strict=True):
        assert (ours.dtype, ours.shape) == (dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_gradients_of_several_convolutions():
    inputs = (*LEFT, *RIGHT)
    main = graph(
        [
            ipu_node("MultiConv", "a b c d e", "y z", strides=[1, 2], inDilations=[2, 1]),
            ipu_node("L1", "y", "first", **{"lambda": 1.0}, reduction="Sum"),
            ipu_node("L1", "z", "second", **{"lambda": 1.0}, reduction="Sum"),
            onnx_node("Add", "first second", "loss"),
        ],
        "",
        "loss",
    )
    check_gradient_of(main, dict(zip("abcde", inputs, strict=True)))


def test_images_between_convolutions_keep_their_channels_last():
    nodes = [
        onnx_node("Conv", "x w", "y", kernel_shape=[1]),
        ipu_node("MultiConv", "y w - y w", "a b"),
        onnx_node("Add", "a b", "sum"),
    ]
    w = random.normal(size=(2, 2, 1)).astype(np.float32)
    main = graph(nodes, "", "sum", w=w)
    x = LEFT[0].astype(np.float32)
    function = tf.function(lambda x: results_of(main, {"x": x}))
    kinds = [op.type for op in function.get_concrete_function(x).graph.get_operations()]
    assert kinds.count("Transpose") == 2
    (ours,) = run(main, {"x": x})
    np.testing.assert_allclose(ours, 2 * convolved(convolved(x, w), w), rtol=1e-5, atol=1e-6)


def test_groups_of_channels():
    """As many as the channels of weights say."""
    x, w = random.normal(size=(1, 4, 5)), random.normal(size=(6, 2, 2))
    ours = one("MultiConv", x.astype(np.float32), w.astype(np.float32))
    np.testing.assert_allclose(ours, convolved(x, w), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("plan", ["parallel", "serial"])
def test_the_type_of_a_plan(plan):
    """Reports show convolutions that run one after the other as what they are."""
    inputs = [each.astype(np.float32) for each in (*LEFT, *RIGHT)]
    node = ipu_node("MultiConv", "a b c d e", "y z", __plan_type=plan)
    given = dict(zip("abcde", inputs, strict=True))
    function = tf.function(lambda tensors: results_of(graph([node], "", "y z"), tensors))
    traced = function.get_concrete_function({k: tf.constant(v) for k, v in given.items()}).graph
    names = [op.name for op in traced.get_operations() if op.type == "Conv2D"]
    assert len(names) == 2
    assert all(("poplar.MultiConv" in name) == (plan == "parallel") for name in names)


def test_attributes_of_several_convolutions():
    text = r"`strides` has to have 2 numbers, \[1, 1\] for the.*Received: strides=\[1, 1, 1\]"
    with pytest.raises(popart_exception, match=text):
        one("MultiConv", *LEFT, *RIGHT, outputs=2, strides=[1, 1, 1])


def dropped(x, shape, ratio=0.25, way="traced", seed=(1, 2), **options):
    options = {"is_training": True, "seed": lambda: tf.constant(seed)} | options
    return one("ShapedDropout", x, shape=shape, ratio=ratio, way=way, options=options)


@every_way
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_dropout_of_whole_rows(dtype, way):
    x = np.ones((1000, 3), dtype)
    result = dropped(x, [1000, 1], way=way)
    assert result.dtype == dtype
    assert set(np.unique(result)) == {0, dtype(1 / 0.75)}
    assert (result == result[:, :1]).all()
    assert 0.2 < (result == 0).mean() < 0.3
    np.testing.assert_array_equal(dropped(x, [1000, 1], way=way), result)
    assert (dropped(x, [1000, 1], way=way, seed=(1, 3)) != result).any()


def test_dropout_of_what_broadcasts():
    """A scalar mask drops all or nothing."""
    values = {dropped(np.ones(2, np.float32), [], 0.5, seed=(0, n)).tolist()[0] for n in range(20)}
    assert values == {0.0, 2.0}


@every_way
def test_without_training_nothing_is_dropped(way):
    x = np.float32([1, 2])
    np.testing.assert_array_equal(dropped(x, [2], way=way, is_training=False), x)
    np.testing.assert_array_equal(dropped(x, [2], 0.0, way=way), x)


def test_gradients_of_dropout():
    options = {"is_training": True, "seed": lambda: tf.constant([1, 2])}
    check_gradient("ShapedDropout", X, shape=[4, 1, 5], ratio=0.5, options=options)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"shape": [2], "ratio": 1.0}, "less than 1. Received: ratio=1.0"),
        ({"shape": [3]}, r"Received: shape=\[3\] for a tensor of shape \[4, 2\]"),
        ({"shape": [1, 1, 1]}, r"Received: shape=\[1, 1, 1\] for"),
    ],
)
def test_errors_of_dropout(attributes, text):
    with pytest.raises(popart_exception, match=f"^In ShapedDropout 'y0': .*{text}"):
        one("ShapedDropout", np.ones((4, 2), np.float32), **attributes)


def test_layers_of_what_is_known():
    """They are computed while tracing, and their images are as the model has them."""
    inputs = [each.astype(np.float32) for each in (X, SCALE, BIAS)]
    result, *_ = one("GroupNormalization", *inputs, outputs=3, num_groups=2, known=range(3))
    np.testing.assert_allclose(result, normalized(X, 2, 1e-5)[0], rtol=1e-4, atol=1e-5)
    inputs = [each.astype(np.float32) for each in (*LEFT, *RIGHT)]
    for ours, given in zip(
        one("MultiConv", *inputs, outputs=2, known=range(5)), (LEFT, RIGHT), strict=True
    ):
        np.testing.assert_allclose(ours, convolved(*given), rtol=1e-4, atol=1e-5)
