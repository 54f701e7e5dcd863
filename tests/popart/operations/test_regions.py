import numpy as np
import pytest
import tensorflow as tf
from differences import jacobians
from popart_nodes import Case, case, check

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.evaluation import outputs_of

FLOAT, INDEX = np.float32, np.int64
# Each pixel says its row and its column.
PLANE = FLOAT([[[[10 * row + column for column in range(4)] for row in range(4)]]])
BOTH = np.concatenate([PLANE, 100 + PLANE])
BOXES = FLOAT([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [2, 2, 3, 3]]])
CENTERS = FLOAT([[[0.5, 0.5, 1, 1], [0.6, 0.5, 1, 1], [2.5, 2.5, 1, 1]]])
SCORES = FLOAT([[[0.7, 0.9, 0.8]]])
MOST = INDEX([3])


CASES = [
    # Samples in the middle of bins of 1 x 1 pixels, which interpolate four pixels.
    case("RoiAlign", [BOTH, FLOAT([[0, 0, 2, 2]]), INDEX([1])],
         FLOAT([[[[105.5, 106.5], [115.5, 116.5]]]]), output_height=2, output_width=2,
         sampling_ratio=1),
    # By itself, as many samples as a bin has pixels: the mean of 2 x 2.
    case("RoiAlign", [BOTH, FLOAT([[2, 0, 6, 4], [0, 0, 4, 4]]), INDEX([0, 0])],
         FLOAT([[[[12.0]]], [[[11.0]]]]), spatial_scale=0.5),
    # Of the four pixels, each by its share: 11 / 4 is the largest.
    case("RoiAlign", [BOTH, FLOAT([[0, 0, 1, 1]]), INDEX([0])], FLOAT([[[[2.75]]]]), mode="max"),
    # Nothing is far outside.
    case("RoiAlign", [BOTH, FLOAT([[9, 9, 11, 11]]), INDEX([0])], FLOAT([[[[0]]]])),
    case("MaxRoiPool", [BOTH, FLOAT([[1, 0, 0, 2, 1], [0, 3, 3, 9, 9]])],
         FLOAT([[[[101, 102], [111, 112]]], [[[33, 0], [0, 0]]]]), pooled_shape=[2, 2]),
    case("MaxRoiPool", [BOTH, FLOAT([[0, 1, 1, 5, 5]])], FLOAT([[[[33]]]]), pooled_shape=[1, 1],
         spatial_scale=0.5, version=6),
    case("NonMaxSuppression", [BOXES, SCORES, MOST, FLOAT([0.5])], INDEX([[0, 0, 1], [0, 0, 2]])),
    case("NonMaxSuppression", [BOXES, SCORES, MOST, FLOAT([0.9])],
         INDEX([[0, 0, 1], [0, 0, 2], [0, 0, 0]]), version=10),
    case("NonMaxSuppression", [CENTERS, SCORES, INDEX([1]), FLOAT([0.5])], INDEX([[0, 0, 1]]),
         center_point_box=1),
    case("NonMaxSuppression", [BOXES, SCORES, MOST, FLOAT([0.9]), FLOAT([0.75])],
         INDEX([[0, 0, 1], [0, 0, 2]])),
    case("NonMaxSuppression", [BOXES, SCORES], np.zeros((0, 3), INDEX)),
    # Each batch, and each class, for itself.
    case("NonMaxSuppression",
         [BOXES.repeat(2, 0), SCORES.repeat(2, 0).repeat(2, 1), INDEX([1]), FLOAT([0.5])],
         INDEX([[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]])),
]  # fmt: skip


@pytest.mark.parametrize("one", CASES)
def test_by_hand(one):
    if one.kind != "NonMaxSuppression":
        check(one)
        return
    # The number of boxes is known only when it runs.
    run = tf.function(lambda **tensors: outputs_of(one.model(), tensors))
    for (result,) in (outputs_of(one.model(), one.given), run(**one.given)):
        assert result.dtype == np.int64
        np.testing.assert_array_equal(result, one.expected)


@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_gradients_and_half_precision(sampling_ratio):
    regions = FLOAT([[0.3, 0.2, 3.1, 2.2], [1.1, 0.7, 1.9, 2.6]])
    indices, shape = INDEX([1, 0]), {"output_height": 2, "sampling_ratio": sampling_ratio}
    x = np.random.default_rng(0).normal(size=(2, 2, 4, 4)).astype(FLOAT)
    model = Case("RoiAlign", [x, regions, indices], None, shape).model(
        {"x1": regions, "x2": indices}
    )
    by_tape, by_differences = jacobians(
        lambda x: outputs_of(model, {"x0": x})[0], [tf.constant(x)], 0.125
    )
    np.testing.assert_allclose(by_tape[0], by_differences[0], rtol=1e-3, atol=1e-4)
    halves = [x.astype(np.float16), regions.astype(np.float16), indices]
    half = Case("RoiAlign", halves, None, shape)
    (result,) = outputs_of(half.model(), half.given)
    assert result.dtype == tf.float16
    np.testing.assert_allclose(result, outputs_of(model, {"x0": x})[0], atol=2e-2)


def test_gradient_of_the_largest():
    pooled = {"pooled_shape": [2, 2]}
    numbers = FLOAT([[0, 0, 0, 2, 3], [1, 1, 1, 3, 3]])
    distinct = np.random.default_rng(0).permutation(32).reshape(2, 1, 4, 4).astype(FLOAT)
    roi = Case("MaxRoiPool", [distinct, numbers], None, pooled).model({"x1": numbers})
    by_tape, by_differences = jacobians(
        lambda x: outputs_of(roi, {"x0": x})[0], [tf.constant(distinct)], 0.125
    )
    np.testing.assert_allclose(by_tape[0], by_differences[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "text"),
    [
        (
            "RoiAlign",
            [PLANE, FLOAT([[0, 0, 1, 1]]), INDEX([0])],
            {"mode": "sum"},
            r"`mode` must be 'avg' or 'max'. Received: 'sum'",
        ),
        (
            "MaxRoiPool",
            [PLANE, FLOAT([[0, 0, 1, 1]])],
            {"pooled_shape": [1, 1]},
            r"regions of the shape \(number, 5\). Received: 4 axes, .* \[1, 4\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused(kind, inputs, attributes, text):
    one = Case(kind, inputs, None, attributes)
    with pytest.raises(popart_exception, match=f"In {kind} 'y0': .*{text}"):
        outputs_of(one.model(), one.given)


def test_an_unknown_number_of_classes_is_refused():
    model = Case("NonMaxSuppression", [BOXES, SCORES, MOST], None).model({"x0": BOXES, "x2": MOST})
    run = tf.function(lambda x1: outputs_of(model, {"x1": x1}))
    with pytest.raises(popart_exception, match=r"numbers of batches and classes must be known"):
        run.get_concrete_function(tf.TensorSpec([1, None, 3]))
