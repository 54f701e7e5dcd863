import numpy as np
import pytest
import tensorflow as tf
from popart_nodes import Case, case, check, check_gradient, traced

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.evaluation import outputs_of

RANDOM = np.random.default_rng(0)
# Two images of two channels of two pixels.
IMAGES = np.float32([[[1, 3], [10, 20]], [[5, 7], [30, 40]]])
SCALE, OFFSET = np.float32([2, 1]), np.float32([0, 100])
MEAN, VARIANCE = np.float32([3, 20]), np.float32([3, 24])
NORMALIZED = np.float32([[[-2, 0], [98, 100]], [[2, 4], [102, 104]]])
# Means 4 and 25, variances 5 and 125.
OF_BATCH = [np.float32([4, 25]), np.float32([5, 125])]


def by_batch():
    mean, variance = (one[:, None] for one in OF_BATCH)
    standard = (IMAGES - mean) / np.sqrt(variance + 1)
    return standard * SCALE[:, None] + OFFSET[:, None]


def spread(channels):
    return np.repeat(channels[:, None], 2, 1)


CASES = [
    case("BatchNormalization", [IMAGES, SCALE, OFFSET, MEAN, VARIANCE], NORMALIZED, epsilon=1.0),
    case(
        "BatchNormalization",
        [IMAGES, SCALE, OFFSET, MEAN, VARIANCE],
        (by_batch(), np.float32([3.25, 21.25]), np.float32([3.5, 49.25]), *OF_BATCH),
        epsilon=1.0,
        momentum=0.75,
    ),
    # In tests there is one result.
    case(
        "BatchNormalization",
        [IMAGES, SCALE, OFFSET, MEAN, VARIANCE],
        NORMALIZED,
        epsilon=1.0,
        is_test=1,
        version=6,
    ),
    case(
        "BatchNormalization",
        [IMAGES, *map(spread, [SCALE, OFFSET, MEAN, VARIANCE])],
        NORMALIZED,
        epsilon=1.0,
        spatial=0,
        version=7,
    ),
    case(
        "BatchNormalization",
        [IMAGES[:, :, 0], SCALE, OFFSET, MEAN, VARIANCE],
        NORMALIZED[:, :, 0],
        epsilon=1.0,
    ),
    # TensorFlow's own function takes no smaller epsilon than 1.001e-5.
    case(
        "BatchNormalization",
        [np.float32([[[[1]]]]), *np.float32([[1], [0], [0], [0]])],
        np.float32([[[[1e4]]]]),
        epsilon=1e-8,
    ),
    case(
        "InstanceNormalization",
        [IMAGES, SCALE, OFFSET],
        # Variances 1 and 25.
        np.float32([[[-1, 1], [100 - 5 / 28**0.5, 100 + 5 / 28**0.5]]] * 2),
        epsilon=3.0,
    ),
    case(
        "LRN",
        [np.float32([[[[1]], [[2]], [[3]]]])],
        np.float32([[[[1 / 6]], [[2 / 15]], [[3 / 14]]]]),
        size=3,
        alpha=3.0,
        beta=1.0,
        bias=1.0,
    ),
    # Two channels: the one behind counts.
    case(
        "LRN",
        [np.float32([[[1], [2], [3]]])],
        np.float32([[[1 / 6], [2 / 14], [3 / 10]]]),
        size=2,
        alpha=2.0,
        beta=1.0,
        bias=1.0,
    ),
    case("LpNormalization", [np.float32([[3, 4], [0, 0]])], np.float32([[0.6, 0.8], [0, 0]])),
    case(
        "LpNormalization",
        [np.float32([[3, -1], [1, 1]])],
        np.float32([[0.75, -0.5], [0.25, 0.5]]),
        axis=0,
        p=1,
    ),
    case(
        "MeanVarianceNormalization",
        [np.float32([[1, 3], [5, 5]])],
        np.float32([[-1, 1], [0, 0]]),
        axes=[-1],
    ),
    case(
        "MeanVarianceNormalization",
        [np.float32([[[[1, 3]], [[7, 5]]]])],
        np.float32([[[[-1, 1]], [[1, -1]]]]),
        version=9,
    ),
]


@pytest.mark.parametrize("one", CASES)
def test_by_hand(one):
    check(one)


def test_statistics_of_each_element():
    x = RANDOM.normal(size=(4, 2, 3)).astype(np.float32)
    ones = np.ones((2, 3), np.float32)
    mean, variance = x.mean(0), x.var(0)
    check(
        Case(
            "BatchNormalization",
            [x, ones, 0 * ones, 0 * ones, ones],
            (
                (x - mean) / np.sqrt(variance + np.float32(0.5)),
                0.1 * mean,
                0.9 + 0.1 * variance,
                mean,
                variance,
            ),
            {"epsilon": 0.5, "spatial": 0},
            7,
        )
    )


def test_is_test_wins_over_further_results():
    inputs = [IMAGES, SCALE, OFFSET, MEAN, VARIANCE]
    attributes = {"epsilon": 1.0, "is_test": 1, "momentum": 0.5}
    one = Case("BatchNormalization", inputs, (None,) * 5, attributes, 6)
    result, mean, *_ = traced(one.model(), one.given)
    np.testing.assert_allclose(result, NORMALIZED, rtol=1e-5)
    np.testing.assert_array_equal(mean, MEAN)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("rank", [1, 2])
def test_local_responses_as_defined(size, rank):
    x = RANDOM.normal(size=(2, 6, *[3] * rank)).astype(np.float32)
    sums = np.zeros_like(x)
    for channel in range(6):
        near = slice(max(channel - (size - 1) // 2, 0), channel + size // 2 + 1)
        sums[:, channel] = (x[:, near] ** 2).sum(1)
    expected = x / (1 + 0.5 / size * sums) ** 0.75
    check(Case("LRN", [x], expected.astype(np.float32), {"size": size, "alpha": 0.5}))


@pytest.mark.parametrize("shape", [(4, 3, 2), (2, 3, 2, 2)])
@pytest.mark.parametrize("outputs", [1, 5])
def test_gradient_of_batch_normalization(shape, outputs):
    """TensorFlow's one operation for it has 32 bits, and the one of 64 bits defines it."""
    x = RANDOM.normal(size=shape)
    others = [np.abs(RANDOM.normal(size=3)) for _ in range(4)]
    gradients = []
    for dtype in (np.float32, np.float64):
        inputs = [one.astype(dtype) for one in (x, *others)]
        model = Case("BatchNormalization", inputs, (None,) * outputs, {"epsilon": 1e-3}).model()
        tensors = [tf.constant(one) for one in inputs]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = outputs_of(model, {f"x{i}": one for i, one in enumerate(tensors)})[0]
            loss = tf.reduce_sum(tf.sin(result))
        zero = tf.UnconnectedGradients.ZERO
        gradients.append(tape.gradient(loss, tensors, unconnected_gradients=zero))
    for ours, exact in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, exact, rtol=1e-3, atol=1e-3)
    # Running statistics are no parameters.
    assert not any(np.any(each) for each in gradients[0][3:])


def test_gradient_of_normalization_by_running_statistics():
    others = [np.abs(RANDOM.normal(size=3)) for _ in range(4)]
    model = Case("BatchNormalization", [others[0]] * 5, None).model()

    def normalized(x, scale, offset):
        tensors = [x, scale, offset, *others[2:]]
        return outputs_of(model, {f"x{i}": one for i, one in enumerate(tensors)})[0]

    values = [tf.constant(RANDOM.normal(size=(2, 3, 2))), *others[:2]]
    by_tape, by_differences = tf.test.compute_gradient(normalized, values)
    for ours, differences in zip(by_tape, by_differences, strict=True):
        np.testing.assert_allclose(ours, differences, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes"),
    [
        ("InstanceNormalization", [(2, 2, 3), (2,), (2,)], {"epsilon": 0.1}),
        ("LRN", [(1, 4, 2, 1)], {"size": 3, "alpha": 0.5}),
        ("LpNormalization", [(2, 3)], {"axis": 0}),
        ("LpNormalization", [(2, 3)], {"p": 1}),
        ("MeanVarianceNormalization", [(2, 2, 2, 2)], {}),
    ],
)
def test_gradients_and_half_precision(kind, inputs, attributes):
    arrays = [RANDOM.normal(size=shape).astype(np.float32) for shape in inputs]
    check_gradient(kind, arrays, **attributes)
    half = Case(kind, [one.astype(np.float16) for one in arrays], None, attributes)
    (result,) = outputs_of(half.model(), half.given)
    wide = Case(kind, arrays, None, attributes)
    (expected,) = outputs_of(wide.model(), wide.given)
    assert result.dtype == tf.float16
    np.testing.assert_allclose(result, expected, rtol=2e-2, atol=5e-3)


def test_half_precision_of_batch_normalization():
    inputs = [one.astype(np.float16) for one in (IMAGES, SCALE, OFFSET, MEAN, VARIANCE)]
    one = Case("BatchNormalization", inputs, (None,) * 5, {"epsilon": 1.0})
    results = traced(one.model(), one.given)
    assert {each.dtype for each in results} == {tf.float16}
    np.testing.assert_allclose(results[0], by_batch(), rtol=2e-3)
    np.testing.assert_allclose(results[4], OF_BATCH[1], rtol=2e-3)


def test_instances_of_halves_round_once():
    """With each step in halves, numbers around 300 would be off by 0.6."""
    x = np.float16(RANDOM.normal(300, 2, (2, 3, 8)))
    one = Case("InstanceNormalization", [x, *np.float16([[1] * 3, [0] * 3])], None, {})
    (result,) = traced(one.model(), one.given)
    mean, deviation = (f(np.float64(x), axis=2, keepdims=True) for f in (np.mean, np.std))
    np.testing.assert_allclose(result, (x - mean) / deviation, rtol=1e-3, atol=1e-4)


def test_other_norms_are_refused():
    one = Case("LpNormalization", [IMAGES], None, {"p": 3})
    with pytest.raises(popart_exception, match=r"In LpNormalization 'y0': `p` must be 1 or 2.*: 3"):
        outputs_of(one.model(), one.given)
