import numpy as np
import pytest
import tensorflow as tf
from popart_nodes import Case, case, check_gradient, traced

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.evaluation import outputs_of

ROW = np.float32([[1, 2, 4, 8]])
NOTHING = np.float32([])


def row(*numbers):
    return np.float32([numbers])


def scaled(expected, scale=2.0, x=ROW, **attributes):
    return case("Resize", [x, NOTHING, np.float32([1, scale])], expected, **attributes)


def sized(expected, size, x=ROW, roi=NOTHING, **attributes):
    return case("Resize", [x, roi, NOTHING, np.int64([1, size])], expected, **attributes)


CASES = [
    # Elements 0 to 7 are at -0.25, 0.25, 0.75 ... of the four.
    scaled(row(1, 1, 2, 2, 4, 4, 8, 8)),
    scaled(row(1, 1.25, 1.75, 2.5, 3.5, 5, 7, 8), mode="linear"),
    scaled(row(1, 2, 2, 4, 4, 8, 8, 8), nearest_mode="ceil"),
    # At 0.5 and 2.5.
    scaled(row(1, 4), 0.5),
    scaled(row(2, 8), 0.5, nearest_mode="round_prefer_ceil"),
    scaled(row(1.5, 6), 0.5, mode="linear"),
    # At 0.5 and 2.5 too, each of four elements: -3, 19, 19, -3 of 32.
    scaled(row((-3 * 1 + 19 * 1 + 19 * 2 - 3 * 4) / 32, (-3 * 2 + 19 * 4 + 19 * 8 - 3 * 8) / 32),
           0.5, mode="cubic"),
    # Without what is outside, the others' weights are made to sum to one.
    scaled(row((19 * 1 + 19 * 2 - 3 * 4) / 35, (-3 * 2 + 19 * 4 + 19 * 8) / 35), 0.5, mode="cubic",
           exclude_outside=1),
    scaled(row(1, 1.5, 2, 3, 4, 6, 8, 8), mode="linear",
           coordinate_transformation_mode="asymmetric"),
    sized(row(1, 2, 8), 3, coordinate_transformation_mode="align_corners"),
    sized(row(1, 3, 8), 3, mode="linear", coordinate_transformation_mode="align_corners"),
    # One element is the first, or the one in the middle.
    sized(row(1), 1, coordinate_transformation_mode="pytorch_half_pixel"),
    sized(row(3), 1, mode="linear"),
    sized(row(1, 2, 4, 4), 4, x=ROW[:, :3], coordinate_transformation_mode="tf_half_pixel_for_nn"),
    # From the second element to one behind the last.
    sized(row(2, 4, 8, 9), 4, roi=np.float32([0, 1 / 3, 1, 4 / 3]), extrapolation_value=9.0,
          coordinate_transformation_mode="tf_crop_and_resize"),
    sized(row(5), 1, roi=np.float32([0, 1 / 2, 1, 1]), mode="linear",
          coordinate_transformation_mode="tf_crop_and_resize"),
    case("Resize", [ROW, np.float32([1, 1.5])], row(1, 1, 2, 4, 4, 8), version=10),
    case("Resize", [ROW, np.float32([1, 0.6])], row(1, 4), version=10),
    case("Resize", [ROW, np.float32([1, 2])], row(1, 1.5, 2, 3, 4, 6, 8, 8), mode="linear",
         version=10),
    case("Resize", [np.uint8([[1, 3]]), np.float32([1, 2])], np.uint8([[1, 2, 3, 3]]),
         mode="linear", version=10),
    case("Upsample", [ROW, np.float32([1, 2])], row(1, 1, 2, 2, 4, 4, 8, 8), version=9),
    case("Upsample", [ROW], row(1, 1, 2, 2, 4, 4, 8, 8), scales=[1.0, 2.0], version=7),
    case("Upsample", [ROW[None, None, :, :2]], np.float32([[[[1, 1.5, 2, 2]] * 2]]),
         height_scale=2.0, width_scale=2.0, mode="bilinear", version=6),
]  # fmt: skip


@pytest.mark.parametrize("one", CASES)
def test_by_hand(one):
    static = {name: x for name, x in one.given.items() if name in one.static}
    given = {name: x for name, x in one.given.items() if name not in static}
    for result in (
        traced(one.model(static), given)[0],
        outputs_of(one.model(one.given), {})[0],
    ):
        assert result.dtype == one.expected.dtype
        np.testing.assert_allclose(result, one.expected, rtol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scale", [2.0, 0.6])
def test_gradients_and_half_precision(mode, scale):
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    inputs = [x, NOTHING, np.float32([1, scale, 1.5])]
    check_gradient("Resize", inputs, mode=mode)
    model = Case("Resize", inputs, None, {"mode": mode}).model({"x1": inputs[1], "x2": inputs[2]})
    (wide,) = outputs_of(model, {"x0": x})
    (half,) = outputs_of(model, {"x0": x.astype(np.float16)})
    assert half.dtype == tf.float16
    np.testing.assert_allclose(half, wide, rtol=2e-3, atol=2e-3)


def test_axes_are_independent():
    x = np.float32([[1, 2], [3, 4]])
    inputs = [x, NOTHING, NOTHING, np.int64([4, 1])]
    one = Case("Resize", inputs, None, {"mode": "linear"})
    known = {name: x for name, x in one.given.items() if name in one.static}
    (result,) = outputs_of(one.model(known), {"x0": x})
    np.testing.assert_allclose(result, [[1.5], [2], [3], [3.5]])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_batches_of_unknown_size(mode):
    inputs = [np.zeros((1, 2, 3), np.float32), NOTHING, np.float32([1, 2, 1])]
    one = Case("Resize", inputs, None, {"mode": mode})
    model = one.model({"x1": inputs[1], "x2": inputs[2]})
    run = tf.function(lambda x0: outputs_of(model, {"x0": x0})[0])
    concrete = run.get_concrete_function(tf.TensorSpec([None, 2, 3]))
    assert concrete(tf.ones([5, 2, 3])).shape == (5, 4, 3)


REFUSED = [
    ([1.0], {}, r"`scales` must be 2 positive numbers, one for each.*Received: \[1.0\]"),
    ([1.0, 0.0], {}, r"`scales` must be 2 positive numbers"),
    ([], {}, r"One of `scales` and `sizes` must be given. Received: neither"),
    ([1.0, 0.1], {}, r"`scales` must leave something of each axis. Received: 0.1.* size 4"),
    ([1.0, 2.0], {"mode": "area"}, r"`mode` must be one of cubic, linear, nearest.*: 'area'"),
    ([1.0, 2.0], {"nearest_mode": "up"}, r"`nearest_mode` must be one of ceil, floor, .*: 'up'"),
    (
        [1.0, 2.0],
        {"coordinate_transformation_mode": "corners"},
        r"`coordinate_transformation_mode` must be one of align_corners.*Received: 'corners'",
    ),
    (
        [1.0, 2.0],
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        r"`roi` must be 4 numbers.*Received: \[\]",
    ),
]


@pytest.mark.parametrize(("scales", "attributes", "text"), REFUSED)
def test_what_does_not_fit_is_refused(scales, attributes, text):
    one = Case("Resize", [ROW, NOTHING, np.float32(scales)], None, attributes)
    known = {name: x for name, x in one.given.items() if name != "x0"}
    with pytest.raises(popart_exception, match=f"In Resize 'y0': {text}"):
        outputs_of(one.model(known), {"x0": ROW})


def test_upsampling_does_not_shrink():
    one = Case("Upsample", [ROW], None, {"scales": [1.0, 0.5]}, 7)
    with pytest.raises(popart_exception, match=r"`scales` must be at least 1. Received: \[1.0, 0"):
        outputs_of(one.model(), one.given)


def test_an_unknown_axis_is_refused():
    one = Case("Upsample", [ROW], None, {"scales": [2.0, 1.0]}, 7)
    run = tf.function(lambda x0: outputs_of(one.model(), {"x0": x0}))
    with pytest.raises(popart_exception, match=r"axis 0 has no size that is known"):
        run.get_concrete_function(tf.TensorSpec([None, 4]))
