import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from popart_nodes import Case, case, check, check_gradient

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.evaluation import outputs_of
from ipu_keras.popart.operations.pooling import root

RANDOM = np.random.default_rng(0)
ROW = np.float32([[[1, 2, 4, 8, 16]]])
GRID = np.float32([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]])
INDEX = np.int64


def of(*numbers):
    return np.float32([[numbers]])


CASES = [
    case("AveragePool", [ROW], of(1.5, 3, 6, 12), kernel_shape=[2]),
    case("AveragePool", [ROW], of(1.5, 6), kernel_shape=[2], strides=[2], version=6),
    # What is padded counts or does not.
    case("AveragePool", [ROW], of(1, 3, 12), kernel_shape=[2], strides=[2], pads=[1, 0]),
    case(
        "AveragePool",
        [ROW],
        of(0.5, 3, 12),
        kernel_shape=[2],
        strides=[2],
        pads=[1, 0],
        count_include_pad=1,
        version=7,
    ),
    # What a last window lacks behind the pads never does.
    case(
        "AveragePool",
        [ROW],
        of(1.5, 6, 16),
        kernel_shape=[2],
        strides=[2],
        ceil_mode=1,
        count_include_pad=1,
    ),
    case("AveragePool", [GRID], np.float32([[[[3, 4.5], [7.5, 9]]]]), auto_pad="SAME_UPPER",
         kernel_shape=[2, 2], strides=[2, 2]),
    case("MaxPool", [ROW], of(2, 4, 8, 16), kernel_shape=[2], version=6),
    case("MaxPool", [-ROW], of(-1, -2, -8), kernel_shape=[2], strides=[2], pads=[1, 0]),
    case("MaxPool", [ROW], of(2, 8, 16), kernel_shape=[2], strides=[2], ceil_mode=1),
    case("MaxPool", [-ROW], of(-1, -2, -4), kernel_shape=[2], dilations=[2]),
    case(
        "MaxPool",
        [np.concatenate([GRID, -GRID], 1)],
        (
            np.float32([[[[5, 6], [8, 9]], [[-1, -2], [-4, -5]]]]),
            INDEX([[[[4, 5], [7, 8]], [[9, 10], [12, 13]]]]),
        ),
        kernel_shape=[2, 2],
        version=8,
    ),
    case(
        "MaxPool",
        [np.concatenate([GRID, -GRID])],
        (
            np.float32([[[[1, 3], [7, 9]]], [[[-1, -2], [-4, -5]]]]),
            INDEX([[[[0, 6], [2, 8]]], [[[9, 12], [10, 13]]]]),
        ),
        kernel_shape=[2, 2],
        strides=[2, 2],
        pads=[1, 1, 0, 0],
        storage_order=1,
    ),
    case("LpPool", [np.float32([[[3, -4, 0, 0]]])], of(5, 4, 0), kernel_shape=[2]),
    case("LpPool", [np.float32([[[3, -4, 0]]])], of(3, 7, 4), kernel_shape=[2], pads=[1, 0], p=1),
    case("LpPool", [np.float32([[[1, 2]]])], of(9 ** (1 / 3)), kernel_shape=[2], p=3, version=6),
    case("GlobalAveragePool", [GRID], np.float32([[[[5]]]])),
    case("GlobalMaxPool", [ROW], of(16)),
    case("GlobalLpPool", [np.float32([[[[3, 0], [0, -4]]]])], np.float32([[[[5]]]])),
    case("GlobalLpPool", [np.float32([[[[3, 0], [0, -4]]]])], np.float32([[[[7]]]]), p=1),
    case(
        "MaxUnpool",
        [np.float32([[[3, 7]]]), INDEX([[[1, 2]]])],
        np.float32([[[0, 3, 7, 0]]]),
        kernel_shape=[2],
        strides=[2],
    ),
    case(
        "MaxUnpool",
        [np.float32([[[3, 7]]]), INDEX([[[1, 2]]]), INDEX([1, 1, 5])],
        np.float32([[[0, 3, 7, 0, 0]]]),
        kernel_shape=[2],
        strides=[2],
        version=9,
    ),
]  # fmt: skip


@pytest.mark.parametrize("one", CASES)
def test_by_hand(one):
    check(one)


def by_loops(x, combine, kernel, pads, strides):
    """A pooling of what of each window lies within the images."""
    counts = [
        (n + b + e - k) // s + 1
        for n, k, b, e, s in zip(
            x.shape[2:], kernel, pads[: len(kernel)], pads[len(kernel) :], strides, strict=True
        )
    ]
    result = np.zeros((*x.shape[:2], *counts))
    for at in itertools.product(*map(range, counts)):
        window = tuple(
            slice(max(a * s - b, 0), max(a * s - b + k, 0))
            for a, s, b, k in zip(at, strides, pads, kernel, strict=False)
        )
        seen = x[(slice(None), slice(None), *window)]
        result[(slice(None), slice(None), *at)] = combine(seen.reshape(*x.shape[:2], -1))
    return result


COMBINED = {
    "AveragePool": lambda seen: seen.mean(-1),
    "MaxPool": lambda seen: seen.max(-1),
    "LpPool": lambda seen: np.sqrt((seen**2).sum(-1)),
}


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(COMBINED)), st.data())
def test_as_defined(kind, data):
    rank = data.draw(st.integers(1, 4 if kind == "MaxPool" else 3))

    def integers(least, most):
        return data.draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank))

    kernel = integers(1, 3)
    pads = [min(a, k - 1) for a, k in zip(integers(0, 2) + integers(0, 2), kernel * 2, strict=True)]
    attributes = {"kernel_shape": kernel, "pads": pads, "strides": integers(1, 3)}
    x = RANDOM.normal(size=(2, 3, *integers(3, 5))).astype(np.float32)
    expected = by_loops(x, COMBINED[kind], kernel, pads, attributes["strides"])
    one = Case(kind, [x], None, attributes)
    (result,) = outputs_of(one.model(), one.given)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_indices_say_where_what_is_pooled_was(rank):
    x = RANDOM.normal(size=(2, 3, *[5] * rank)).astype(np.float32)
    attributes = {"kernel_shape": [3] * rank, "pads": [1] * 2 * rank, "strides": [2] * rank}
    pooled = Case("MaxPool", [x], (None, None), attributes)
    values, indices = outputs_of(pooled.model(), pooled.given)
    np.testing.assert_array_equal(x.reshape(-1)[np.asarray(indices)], values)


def distinct(*shape):
    """Numbers so far from each other, and from zero, that the largest stays so."""
    count = int(np.prod(shape))
    numbers = np.arange(1, count + 1) * RANDOM.choice([-1, 1], count) / 10
    return RANDOM.permutation(numbers).reshape(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "shape", "attributes"),
    [
        ("AveragePool", (1, 2, 5), {"kernel_shape": [3], "pads": [1, 0], "ceil_mode": 1}),
        ("AveragePool", (1, 2, 4, 4), {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"}),
        ("AveragePool", (1, 1, 3, 4, 3), {"kernel_shape": [2, 2, 2]}),
        ("MaxPool", (1, 2, 4, 5), {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1]}),
        ("MaxPool", (1, 2, 6), {"kernel_shape": [2], "dilations": [2]}),
        ("MaxPool", (1, 1, 3, 4, 3), {"kernel_shape": [2, 2, 2], "strides": [1, 2, 1]}),
        ("LpPool", (1, 2, 4, 4), {"kernel_shape": [2, 2]}),
        ("LpPool", (1, 2, 5), {"kernel_shape": [2], "p": 3}),
        ("GlobalAveragePool", (2, 2, 3, 2), {}),
        ("GlobalMaxPool", (2, 2, 3, 2), {}),
        ("GlobalLpPool", (2, 2, 3), {}),
    ],
)
def test_gradients_and_half_precision(kind, shape, attributes):
    x = distinct(*shape)
    check_gradient(kind, [x], **attributes)
    half = Case(kind, [x.astype(np.float16)], None, attributes)
    wide = Case(kind, [x], None, attributes)
    (result,) = outputs_of(half.model(), half.given)
    assert result.dtype == tf.float16
    np.testing.assert_allclose(result, *outputs_of(wide.model(), wide.given), rtol=5e-3, atol=2e-3)


def test_gradient_of_max_unpool():
    inputs = [np.float32([[[3, 7]]]), INDEX([[[1, 2]]])]
    check_gradient("MaxUnpool", inputs, kernel_shape=[2], strides=[2])


def test_a_root_of_zero_has_no_gradient():
    x = tf.constant([0.0, 4.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        rooted = root(x, 2)
    np.testing.assert_allclose(tape.gradient(rooted, x), [0, 0.25])


def test_batches_of_unknown_size():
    attributes = {"kernel_shape": [2, 2, 2], "pads": [1] * 6}
    model = Case("AveragePool", [distinct(1, 2, 3, 3, 3)], None, attributes).model()
    traced = tf.function(lambda x0: outputs_of(model, {"x0": x0})[0])
    concrete = traced.get_concrete_function(tf.TensorSpec([None, 2, 3, 3, 3]))
    assert concrete.output_shapes.as_list() == [None, 2, 4, 4, 4]
    assert concrete(tf.ones([5, 2, 3, 3, 3])).shape[0] == 5


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "text"),
    [
        ("MaxPool", [ROW], {"kernel_shape": [2, 2]}, r"kernel has 2 axes.*input of 3 axes"),
        ("AveragePool", [ROW], {"kernel_shape": [7]}, r"larger than the padded images"),
        ("LpPool", [ROW], {"kernel_shape": [2], "p": 0}, r"`p` must be at least 1. Received: 0"),
        (
            "MaxUnpool",
            [ROW, INDEX(ROW), INDEX([1, 1, 4])],
            {"kernel_shape": [2]},
            r"`output_shape` must have 3 sizes, at least \[6\].*Received: \[1, 1, 4\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused(kind, inputs, attributes, text):
    one = Case(kind, inputs, None, attributes)
    known = {name: one.given[name] for name in one.static if name in one.given}
    given = {name: x for name, x in one.given.items() if name not in known}
    with pytest.raises(popart_exception, match=f"In {kind} 'y0': .*{text}"):
        outputs_of(one.model(known), given)
