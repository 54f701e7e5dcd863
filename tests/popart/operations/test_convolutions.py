import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from popart_nodes import Case, case, check, check_gradient

from ipu_keras.popart.exceptions import popart_exception
from ipu_keras.popart.operations.evaluation import outputs_of

RANDOM = np.random.default_rng(0)
ROW = np.float32([[[1, 2, 3, 4]]])


def normal(*shape, dtype=np.float32):
    return RANDOM.normal(size=shape).astype(dtype)


def images(*rows):
    return np.float32(rows)[None, None]


CASES = [
    case("Conv", [ROW, np.float32([[[1, 10]]])], np.float32([[[21, 32, 43]]])),
    # One zero before: 10 * 1, then steps of two.
    case(
        "Conv",
        [ROW, np.float32([[[1, 10]]]), np.float32([100])],
        np.float32([[[110, 132]]]),
        pads=[1, 0],
        strides=[2],
    ),
    case("Conv", [ROW, np.float32([[[1, 10]]])], np.float32([[[31, 42]]]), dilations=[2]),
    case(
        "Conv",
        [images([1, 2], [3, 4]), np.float32([[[[1, 10], [100, 1000]]]])],
        images([4321, 402], [43, 4]),
        auto_pad="SAME_UPPER",
    ),
    # Each channel has a kernel of its own.
    case(
        "Conv",
        [np.float32([[[1, 2], [3, 4]]]), np.float32([[[10]], [[100]]])],
        np.float32([[[10, 20], [300, 400]]]),
        group=2,
    ),
    case("ConvTranspose", [ROW, np.float32([[[1, 10]]])], np.float32([[[1, 12, 23, 34, 40]]])),
    case(
        "ConvTranspose",
        [ROW[..., :2], np.float32([[[1, 10]]]), np.float32([100])],
        np.float32([[[110, 102, 120, 100]]]),
        strides=[2],
        pads=[1, 0],
        output_padding=[1],
    ),
    case(
        "ConvTranspose",
        [ROW[..., :2], np.float32([[[1, 10]]])],
        np.float32([[[1, 2, 10, 20]]]),
        dilations=[2],
    ),
    # Of [1, 12, 20] one is too much: behind by version 11's words, before that in front.
    case(
        "ConvTranspose",
        [ROW[..., :2], np.float32([[[1, 10]]])],
        np.float32([[[12, 20]]]),
        output_shape=[2],
    ),
    case(
        "ConvTranspose",
        [ROW[..., :2], np.float32([[[1, 10]]])],
        np.float32([[[1, 12]]]),
        output_shape=[2],
        version=10,
    ),
    case(
        "ConvTranspose",
        [ROW[..., :2], np.float32([[[1, 10]]])],
        np.float32([[[1, 12]]]),
        auto_pad="SAME_UPPER",
    ),
    # And where more is wanted than there is, zeros make it up.
    case(
        "ConvTranspose",
        [ROW[..., :2], np.float32([[[1, 10]]])],
        np.float32([[[1, 12, 20, 0]]]),
        output_shape=[4],
    ),
]


@pytest.mark.parametrize("one", CASES)
def test_by_hand(one):
    check(one)


def by_loops(x, w, pads, strides, dilations, group):
    """A convolution as its definition says it."""
    rank = x.ndim - 2
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    x = np.pad(x.astype(np.float64), around)
    extents = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    counts = [(n - e) // s + 1 for n, e, s in zip(x.shape[2:], extents, strides, strict=True)]
    result = np.zeros((len(x), len(w), *counts))
    for out in range(len(w)):
        first = out // (len(w) // group) * w.shape[1]
        for at in itertools.product(*map(range, counts)):
            window = tuple(
                slice(a * s, a * s + e, d)
                for a, s, e, d in zip(at, strides, extents, dilations, strict=True)
            )
            seen = x[(slice(None), slice(first, first + w.shape[1]), *window)]
            result[(slice(None), out, *at)] = (seen * w[out]).reshape(len(x), -1).sum(1)
    return result


@st.composite
def convolutions(draw):
    rank = draw(st.integers(1, 3))

    def integers(least, most):
        return draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank))

    group = draw(st.sampled_from([1, 1, 2, 3]))
    taken, made = draw(st.integers(1, 2)), group * draw(st.integers(1, 2))
    kernel = integers(1, 3)
    pads = [min(pad, size - 1) for pad, size in zip(integers(0, 2), kernel, strict=True)]
    return {
        "x": normal(2, group * taken, *integers(5, 6)),
        "w": normal(made, taken, *kernel),
        "pads": [*pads, *integers(0, 1)],
        "strides": integers(1, 2),
        "dilations": integers(1, 2),
        "group": group,
    }


@settings(max_examples=20, deadline=None)
@given(convolutions())
def test_as_defined(drawn):
    x, w = drawn.pop("x"), drawn.pop("w")
    one = Case("Conv", [x, w], by_loops(x, w, **drawn).astype(np.float32), drawn)
    (result,) = outputs_of(one.model(), one.given)
    np.testing.assert_allclose(result, one.expected, rtol=1e-4, atol=1e-4)


GRADIENTS = [
    ("Conv", (1, 4, 4, 5), (2, 4, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    # These TensorFlow's kernels on CPU lack.
    ("Conv", (1, 4, 4, 5), (2, 2, 3, 2), {"group": 2, "pads": [1, 1, 0, 0]}),
    ("Conv", (1, 4, 4, 5), (4, 1, 3, 2), {"group": 4, "pads": [1, 1, 0, 0]}),
    ("Conv", (1, 4, 4, 5), (8, 1, 2, 1), {"group": 4, "strides": [2, 1]}),
    ("Conv", (1, 2, 4, 6), (3, 2, 2, 3), {"dilations": [2, 2], "strides": [1, 2]}),
    ("Conv", (1, 4, 4, 5), (4, 2, 2, 3), {"dilations": [2, 1], "group": 2}),
    ("Conv", (1, 2, 6), (3, 2, 2), {"dilations": [3]}),
    ("Conv", (1, 2, 3, 3, 2), (2, 1, 2, 2, 2), {"dilations": [2, 1, 1], "group": 2}),
    ("ConvTranspose", (1, 2, 3, 3), (2, 3, 2, 3), {"strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ("ConvTranspose", (1, 2, 3, 3), (2, 1, 2, 2), {"dilations": [2, 2], "group": 2}),
    ("ConvTranspose", (1, 2, 2, 3, 2), (2, 1, 2, 2, 2), {"strides": [2, 1, 1]}),
]


@pytest.mark.parametrize(("kind", "shape", "kernel", "attributes"), GRADIENTS)
def test_gradients(kind, shape, kernel, attributes):
    made = kernel[0] if kind == "Conv" else kernel[1] * attributes.get("group", 1)
    check_gradient(kind, [normal(*shape), normal(*kernel), normal(made)], **attributes)


@pytest.mark.parametrize(("kind", "shape", "kernel", "attributes"), GRADIENTS)
def test_half_precision(kind, shape, kernel, attributes):
    x, w = normal(*shape, dtype=np.float16), normal(*kernel, dtype=np.float16)
    one = Case(kind, [x, w], None, attributes)
    (result,) = outputs_of(one.model(), one.given)
    wide = Case(kind, [x.astype(np.float32), w.astype(np.float32)], None, attributes)
    (expected,) = outputs_of(wide.model(), wide.given)
    assert result.dtype == tf.float16
    np.testing.assert_allclose(result, expected, rtol=1e-2, atol=2e-2)


def test_a_bias_is_computed_with_the_convolution():
    model = Case("Conv", [normal(1, 2, 4, 4), normal(3, 2, 3, 3), normal(3)], None).model()
    traced = tf.function(lambda x0, x1, x2: outputs_of(model, {"x0": x0, "x1": x1, "x2": x2}))
    shapes = [(None, 2, 4, 4), (3, 2, 3, 3), (3,)]
    graph = traced.get_concrete_function(*map(tf.TensorSpec, shapes)).graph
    kinds = [each.type for each in graph.get_operations()]
    assert kinds.index("BiasAdd") == kinds.index("Conv2D") + 1
    assert "Pad" not in kinds
    assert traced(*(normal(*(n or 5 for n in shape)) for shape in shapes))[0].shape[0] == 5


def test_pads_do_not_copy_images():
    one = Case("Conv", [normal(1, 2, 4, 4), normal(3, 2, 3, 3)], None, {"pads": [1, 1, 1, 1]})
    traced = tf.function(lambda x0: outputs_of(one.model({"x1": one.given["x1"]}), {"x0": x0}))
    graph = traced.get_concrete_function(tf.TensorSpec([1, 2, 4, 4])).graph
    assert not any(each.type.startswith("Pad") for each in graph.get_operations())


@pytest.mark.parametrize("group", [1, 2, 4])
def test_depthwise_convolutions_with_pads_and_bias(group):
    """TensorFlow fuses a bias with its depthwise kernel, and ends the process over the pads."""
    x, w, b = normal(1, 4, 5, 5), normal(4, 4 // group, 3, 3), normal(4)
    attributes = {"pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1], "group": group}
    expected = by_loops(x, w, **attributes) + b[:, None, None]
    one = Case("Conv", [x, w, b], expected.astype(np.float32), attributes)
    known = {name: one.given[name] for name in ("x1", "x2")}
    run = tf.function(lambda x0: outputs_of(one.model(known), {"x0": x0}))
    np.testing.assert_allclose(run(x)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("width", "pads"), [(1, [0, 1]), (2, [0, 1]), (2, [0, 2])])
def test_windows_that_see_pads_alone(width, pads):
    """TensorFlow's kernel with a bias, by oneDNN, ends the process over these images."""
    x, b = np.float32([[[1, 2][:width]]]), np.float32([100])
    one = Case("Conv", [x, np.float32([[[10]]]), b], None, {"pads": pads})
    known = {name: one.given[name] for name in ("x1", "x2")}
    run = tf.function(lambda x0: outputs_of(one.model(known), {"x0": x0}))
    expected = [[[110, 120][:width] + [100] * pads[1]]]
    np.testing.assert_array_equal(run(x)[0], expected)


def refused(kind, inputs, text, **attributes):
    one = Case(kind, inputs, None, attributes)
    with pytest.raises(popart_exception, match=text):
        outputs_of(one.model(), one.given)


def test_what_does_not_fit_is_refused():
    x, w = normal(1, 3, 4, 4), normal(2, 3, 2, 2)
    refused("Conv", [x, normal(2, 2, 2, 2)], r"In Conv 'y0': The weights take 2.*Received: 3 chan")
    refused("Conv", [x, w], r"group=0", group=0)
    refused("Conv", [x, normal(2, 1, 2, 2)], r"groups must divide their results.*group=3", group=3)
    refused(
        "Conv", [x, w], r"`kernel_shape` must be that of the weights.*\[3, 3\]", kernel_shape=[3, 3]
    )
    refused("Conv", [x, normal(2, 3, 2)], r"Its kernel has 1 axes.*an input of 4 axes")
    refused("ConvTranspose", [x, w], r"as many channels as its weights.*Received: 3 channels")
    refused(
        "ConvTranspose",
        [normal(1, 2, 3, 3), normal(2, 1, 2, 2)],
        r"`output_padding` must be 2 integers of at least 0, and .*\. Received: \[-1, 0\]",
        output_padding=[-1, 0],
    )


def test_no_bias_of_other_sizes():
    refused("Conv", [normal(1, 3, 4, 4), normal(2, 3, 2, 2), normal(3)], r"In Conv 'y0': ")
