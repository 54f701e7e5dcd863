"""Graphcore's operations that move elements, against NumPy's indexing."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from popart_graphs import WAYS, check_gradient, one

from ipu_keras.popart.exceptions import popart_exception

every_way = pytest.mark.parametrize("way", WAYS)
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@every_way
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode, dtype, way):
    """(batch, channels, height, width), as ONNX describes it."""
    x = np.arange(2 * 8 * 2 * 3, dtype=dtype).reshape(2, 8, 2, 3)
    if mode == "DCR":
        expected = x.reshape(2, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2)
    else:
        expected = x.reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3)
    result = one("DepthToSpace", x, blocksize=2, mode=mode, way=way)
    np.testing.assert_array_equal(result, expected.reshape(2, 2, 4, 6))
    np.testing.assert_array_equal(one("DepthToSpace", x, blocksize=1, way=way), x)


# At the offset (1, 2) of the last two axes, (2, 2) elements.
PART = (slice(None), slice(1, 3), slice(2, 4))
DYNAMIC = {"axes": [1, 2], "sizes": [2, 2]}
OFFSET = np.array([1, 2], np.int32)
VALUES = -np.ones((2, 2, 2), np.float32)


def written(x, values, add=False):
    result = x.copy()
    result[PART] = result[PART] + values if add else values
    return result


@every_way
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("offset", [OFFSET, OFFSET.astype(np.uint32)])
def test_parts_at_an_offset(offset, dtype, way):
    x, values = X.astype(dtype), VALUES.astype(dtype)
    for kind, inputs, expected in (
        ("DynamicSlice", [x, offset], x[PART]),
        ("DynamicUpdate", [x, offset, values], written(x, values)),
        ("DynamicZero", [x, offset], written(x, 0)),
        ("DynamicAdd", [x, offset, values], written(x, values, add=True)),
    ):
        result = one(kind, *inputs, **DYNAMIC, way=way)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected)


@every_way
def test_a_part_is_never_beyond_the_end(way):
    """Axes in any order; what would be beyond is the last part that there is."""
    options = {"axes": [2, 0], "sizes": [3, 1], "way": way}
    result = one("DynamicSlice", X, np.array([3, -1], np.int32), **options, noOverlap=1)
    np.testing.assert_array_equal(result, X[0:1, :, 1:4])


def test_gradients_of_parts():
    x, values = X.astype(np.float64), np.random.default_rng(0).normal(size=(2, 2, 2))
    check_gradient("DynamicSlice", x, OFFSET, **DYNAMIC)
    check_gradient("DynamicZero", x, OFFSET, **DYNAMIC)
    check_gradient("DynamicUpdate", x, OFFSET, values, **DYNAMIC)
    check_gradient("DynamicAdd", x, OFFSET, values, **DYNAMIC)


@pytest.mark.parametrize(
    ("attributes", "offset", "text"),
    [
        ({"axes": [1, 1], "sizes": [1, 1]}, OFFSET, r"each once. Received: axes=\[1, 1\]"),
        ({"axes": [3], "sizes": [1]}, OFFSET[:1], r"of rank 3, .*Received: axes=\[3\]"),
        ({"axes": [1], "sizes": [4]}, OFFSET[:1], r"sizes=\[4\], axes=\[1\] for shape \[2, 3, 4\]"),
        ({"axes": [1], "sizes": [1, 1]}, OFFSET[:1], r"Received: sizes=\[1, 1\]"),
        ({"axes": [1], "sizes": [1]}, OFFSET, "for each of 1 axes. Received: 2 numbers"),
    ],
)
def test_errors_of_parts(attributes, offset, text):
    with pytest.raises(popart_exception, match=f"^In DynamicSlice 'y0': .*{text}"):
        one("DynamicSlice", X, offset, **attributes)


def test_a_part_of_another_shape():
    with pytest.raises(popart_exception, match=r"the shape \[2, 2, 2\], by.*Received: .*\[2, 2\]"):
        one("DynamicUpdate", X, OFFSET, VALUES[0], **DYNAMIC)


@pytest.mark.parametrize(("number", "dtype"), [(1, np.float32), (10, np.float16), (6, np.int32)])
def test_tensors_without_inputs(number, dtype):
    """Types are numbered as ONNX does."""
    for init_type in (0, 1):
        zeros = one("Init", shape=[2, 3], data_type=number, init_type=init_type, batch_axis=1)
        assert (zeros.dtype, zeros.shape, zeros.any()) == (dtype, (2, 3), False)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"init_type": 2}, "`init_type` has to be 0 for any values, or 1.*Received: init_type=2"),
        ({"init_type": 1, "batch_axis": 2}, r"of the shape \[2, 3\].*Received: batch_axis=2"),
    ],
)
def test_errors_of_tensors_without_inputs(attributes, text):
    with pytest.raises(popart_exception, match=f"^In Init 'y0': .*{text}"):
        one("Init", shape=[2, 3], data_type=1, **attributes)


def median_of(x, axes, keepdims):
    """The lower of two, and which of the reduced elements it is."""
    axes = [axis % x.ndim for axis in (range(x.ndim) if axes is None else axes)]
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    flat = x.transpose([*kept, *sorted(axes)]).reshape([*(x.shape[a] for a in kept), -1])
    index = np.argsort(flat, -1, kind="stable")[..., (flat.shape[-1] - 1) // 2]
    value = np.take_along_axis(flat, index[..., None], -1)[..., 0]
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    return (value.reshape(shape), index.reshape(shape)) if keepdims else (value, index)


@every_way
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [None, [1], [-1], [0, 2], [2, 0]])
def test_medians(axes, keepdims, way):
    x = np.random.default_rng(1).permutation(24).reshape(2, 3, 4).astype(np.float32)
    attributes = {"keepdims": keepdims} | ({} if axes is None else {"axes": axes})
    median, index = one("ReduceMedian", x, outputs=2, way=way, **attributes)
    expected, expected_index = median_of(x, axes, keepdims)
    assert (median.dtype, index.dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(median, expected)
    np.testing.assert_array_equal(index, expected_index)


def test_a_median_by_hand():
    values = np.array([[3, 1, 4, 1], [5, 9, 2, 6]], np.float16)
    median, index = one("ReduceMedian", values, outputs=2, axes=[1], keepdims=0)
    assert (median.dtype, median.tolist(), index.tolist()) == (np.float16, [1, 5], [3, 0])


def test_gradients_of_medians():
    x = np.random.default_rng(1).permutation(24).reshape(2, 3, 4).astype(np.float64)
    check_gradient("ReduceMedian", x, axes=[0, 2], outputs=2)


@every_way
def test_shapes_by_an_attribute(way):
    assert one("Reshape", X, shape=[4, 6], way=way).shape == (4, 6)
    assert one("Reshape", X, shape=[0, -1], way=way).shape == (2, 12)
    with pytest.raises(popart_exception, match=r"A 0 in `shape`.*Received: shape=\[24, 1, 1, 0\]"):
        one("Reshape", X, shape=[24, 1, 1, 0], way=way)
    with pytest.raises(popart_exception, match=r"^In Reshape 'y0': "):
        one("Reshape", X, shape=[5], way=way)


@every_way
def test_reversed_axes(way):
    np.testing.assert_array_equal(one("Reverse", X, dimensions=[0, 2], way=way), X[::-1, :, ::-1])
    np.testing.assert_array_equal(one("Reverse", X, dimensions=[], way=way), X)
    for wrong in ([3], [1, 1]):
        with pytest.raises(popart_exception, match="`dimensions` has to name axes of a tensor"):
            one("Reverse", X, dimensions=wrong, way=way)


def scattered(data, indices, axis, axis_size):
    shape = list(data.shape)
    shape[axis] = axis_size
    result = np.zeros(shape, data.dtype)
    for place in itertools.product(*map(range, data.shape)):
        target = list(place)
        target[axis] = indices[place]
        if 0 <= indices[place] < axis_size:
            result[tuple(target)] += data[place]
    return result


@settings(max_examples=20)
@given(st.data())
def test_scattered_sums(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = random.integers(-3, 4, shape).astype(data.draw(st.sampled_from(["f2", "f4", "i4"])))
    # Beyond the end there is no place.
    indices = random.integers(-1, 4, shape).astype(np.int32)
    reduction = data.draw(st.sampled_from(["Sum", 0]))
    options = {"axis": axis, "axis_size": 3, "reduction": reduction}
    result = one("ScatterReduce", values, indices, way="eager", **options)
    assert result.dtype == values.dtype
    np.testing.assert_array_equal(result, scattered(values, indices, axis, 3))


@pytest.mark.parametrize("way", ["traced", "xla"])
def test_scattered_sums_of_programs(way):
    indices = np.array([2, 0, 2, 1], np.int32)
    expected = scattered(X, np.broadcast_to(indices, X.shape), -1, 3)
    result = one("ScatterReduce", X, indices, axis_size=3, way=way)
    np.testing.assert_array_equal(result, expected)


def test_gradients_of_scattered_sums():
    indices = np.random.default_rng(0).integers(0, 2, X.shape).astype(np.int32)
    check_gradient("ScatterReduce", X, indices, axis_size=2, axis=1)


def test_what_cannot_be_scattered():
    with pytest.raises(popart_exception, match=r"has to be 'Sum'\. Received: reduction='Max'"):
        one("ScatterReduce", X, X.astype(np.int32), axis_size=3, reduction="Max")
    with pytest.raises(popart_exception, match=r"Positions are integers\. Received: float32"):
        one("ScatterReduce", X, X, axis_size=3)


SEQUENCES = [np.array(each, np.int32) for each in ([2, 1], [1, 4], [3, 0])]


@every_way
@pytest.mark.parametrize("zero_unused", [0, 1])
def test_slices_of_sequences(zero_unused, way):
    """Two rows from row 1 on go to rows 3 and 4, and row 4 to row 0."""
    source = np.arange(20, dtype=np.float32).reshape(5, 2, 2)
    destination = -np.ones((6, 4), np.float32)
    expected = np.zeros_like(destination) if zero_unused else destination.copy()
    rows = source.reshape(5, 4)
    expected[[3, 4, 0]] = rows[[1, 2, 4]]
    inputs = (source, destination, *SEQUENCES)
    result = one("SequenceSlice", *inputs, zeroUnused=zero_unused, way=way)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("shape", "sizes"), [((5,), SEQUENCES[0]), ((5, 4), SEQUENCES[0][:1]), ((5, 4), np.int32(2))]
)
def test_errors_of_slices_of_sequences(shape, sizes):
    with pytest.raises(popart_exception, match="source and a destination of rank 2 or more, and"):
        one("SequenceSlice", np.ones(shape), np.ones((6, 4)), sizes, *SEQUENCES[1:])


def test_gradients_of_slices_of_sequences():
    random = np.random.default_rng(0)
    check_gradient(
        "SequenceSlice", random.normal(size=(5, 2)), random.normal(size=(6, 2)), *SEQUENCES
    )


@every_way
def test_subsampling(way):
    result = one("Subsample", X, strides=[1, 2, 3], way=way)
    np.testing.assert_array_equal(result, X[:, ::2, ::3])
    for wrong in ([1, 1], [1, 0, 1]):
        with pytest.raises(popart_exception, match=r"a positive number for each of 3 axes\."):
            one("Subsample", X, strides=wrong, way=way)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("Reshape", {"shape": [4, 6]}),
        ("Reverse", {"dimensions": [1]}),
        ("Subsample", {"strides": [1, 2, 3]}),
    ],
)
def test_gradients_of_what_only_moves_elements(kind, attributes):
    check_gradient(kind, X, **attributes)


def test_gradients_of_depth_to_space():
    x = np.random.default_rng(0).normal(size=(1, 8, 2, 3))
    for mode in ("DCR", "CRD"):
        check_gradient("DepthToSpace", x, blocksize=2, mode=mode)


@pytest.mark.parametrize(
    ("x", "attributes", "text"),
    [
        (
            X[:, :, :, None],
            {"blocksize": 2},
            "Received: blocksize=2, 3 channels",
        ),
        (
            X[:, :, :, None],
            {"blocksize": 1, "mode": "RGB"},
            "'DCR' or 'CRD'. Received: 'RGB'",
        ),
    ],
)
def test_errors_of_depth_to_space(x, attributes, text):
    with pytest.raises(popart_exception, match=text):
        one("DepthToSpace", x, **attributes)
