"""Runs of rows, against loops in NumPy; gradients against differences."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.ops import slicing_ops
from ipu_keras.ops.slicing_ops import sequence_slice, sequence_slice_pack, sequence_slice_unpack

SIXES = np.repeat(np.arange(6, dtype=np.float32)[:, np.newaxis], 6, axis=1)


def slice_by_numpy(dst, src, num_elems, src_offsets, dst_offsets, zero_unused):
    """Element by element, one slice after the other."""
    result = np.zeros_like(dst) if zero_unused else dst.copy()
    for count, source, target in zip(num_elems, src_offsets, dst_offsets, strict=True):
        for k in range(count):
            if 0 <= source + k < len(src) and 0 <= target + k < len(dst):
                result[target + k] = src[source + k]
    return result


def starts(num_elems):
    return np.cumsum(num_elems) - num_elems


@st.composite
def slices(draw):
    """Tensors and slices, which may be empty, overlap, and reach over the ends."""
    num_rows, num_sources = draw(st.integers(1, 7)), draw(st.integers(0, 7))
    row = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    random = np.random.default_rng(draw(st.integers(0, 9)))
    dst, src = (
        random.integers(1, 100, (rows, *row)).astype(draw(st.sampled_from(["int32", "float16"])))
        for rows in (num_rows, num_sources)
    )
    number = st.integers(-2, 9)
    triples = draw(st.lists(st.tuples(st.integers(0, 9), number, number), min_size=1, max_size=4))
    return dst, src.astype(dst.dtype), *map(list, zip(*triples, strict=True)), draw(st.booleans())


def test_examples_in_the_docstrings():
    assert doctest.testmod(slicing_ops).failed == 0


def test_goldens():
    zeros = tf.zeros((6, 6))
    found = sequence_slice(zeros, SIXES, [2, 2], [2, 1], [0, 4], False)
    np.testing.assert_array_equal(found[:, 0], [2, 3, 0, 0, 1, 2])
    unpacked = sequence_slice_unpack(SIXES, [2, 2], [2, 1], 4)
    np.testing.assert_array_equal(unpacked[:, 0], [2, 3, 1, 2])
    # The second slice covers the first row that the first one wrote.
    packed = sequence_slice_pack(zeros, unpacked, [2, 2], [2, 1], False)
    np.testing.assert_array_equal(packed[:, 0], [0, 1, 2, 3, 0, 0])


@settings(deadline=None, derandomize=True, max_examples=50)
@given(slices())
def test_slices(case):
    found = sequence_slice(*case)
    assert found.dtype == case[0].dtype
    np.testing.assert_array_equal(found, slice_by_numpy(*case))


@settings(deadline=None, derandomize=True, max_examples=30)
@given(slices())
def test_packed_and_unpacked_slices(case):
    dst, src, num_elems, src_offsets, dst_offsets, zero_unused = case
    packed = sequence_slice_pack(dst, src, num_elems, dst_offsets, zero_unused)
    expected = slice_by_numpy(dst, src, num_elems, starts(num_elems), dst_offsets, zero_unused)
    np.testing.assert_array_equal(packed, expected)
    unpacked = sequence_slice_unpack(src, num_elems, src_offsets, len(dst))
    expected = slice_by_numpy(dst, src, num_elems, src_offsets, starts(num_elems), True)
    np.testing.assert_array_equal(unpacked, expected)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("zero_unused", [False, True])
def test_slices_that_are_known_when_the_program_runs(zero_unused, jit_compile):
    dst, src = np.full((4, 6), 9, np.float32), SIXES
    run = tf.function(sequence_slice, jit_compile=jit_compile)
    for offsets in ([2, 0], [1, 5]):
        given = [2, 1], offsets, [0, 1]
        found = run(tf.constant(dst), tf.constant(src), *map(tf.constant, given), zero_unused)
        np.testing.assert_array_equal(found, slice_by_numpy(dst, src, *given, zero_unused))
    assert run.experimental_get_tracing_count() == 1


def test_what_was_unpacked_is_packed_again():
    """A batch of padded sequences of 2, 0 and 3 elements becomes one of 5, and back."""
    batch = np.zeros((3, 3, 2), np.float32)
    batch[0, :2], batch[2] = 1, [[2, 3], [4, 5], [6, 7]]
    lengths, offsets = [2, 0, 3], [0, 3, 6]
    tokens = sequence_slice_unpack(batch.reshape(9, 2), lengths, offsets, 5)
    np.testing.assert_array_equal(tokens, [[1, 1], [1, 1], [2, 3], [4, 5], [6, 7]])
    padded = sequence_slice_pack(tf.ones((9, 2)), tokens, lengths, offsets, True)
    np.testing.assert_array_equal(padded, batch.reshape(9, 2))


@pytest.mark.parametrize("zero_unused", [False, True])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients(zero_unused, jit_compile):
    """Row 2 of the source is copied twice, once to a place where it is overwritten."""
    slices = [3, 2], [1, 2], [0, 1]
    dst, src = (np.random.default_rng(k).standard_normal((5, 2)) for k in range(2))

    @tf.function(jit_compile=jit_compile)
    def run(dst, src):
        return sequence_slice(dst, src, *slices, zero_unused) ** 2

    for position in range(1 if zero_unused else 0, 2):
        given = [tf.constant(dst), tf.constant(src)]

        def of_one(x, given=given, position=position):
            return run(*given[:position], x, *given[position + 1 :])

        analytic, numeric = tf.test.compute_gradient(of_one, [given[position]])
        np.testing.assert_allclose(analytic, numeric, rtol=1e-6, atol=1e-8)


def test_gradient_of_rows_copied_twice_is_a_sum():
    src = tf.ones((3, 1))
    with tf.GradientTape() as tape:
        tape.watch(src)
        copied = sequence_slice_unpack(src, [2, 2], [0, 1], 4)
        loss = tf.reduce_sum(copied * [[1.0], [2.0], [4.0], [8.0]])
    np.testing.assert_array_equal(tape.gradient(loss, src), [[1], [6], [8]])


def test_in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        offsets = tf.compat.v1.placeholder(tf.int32, [1])
        src = tf.constant(SIXES)
        found = sequence_slice_unpack(src, [2], offsets, 2)
        gradient = tf.gradients(found, src)[0]
        values = session.run([found, gradient], {offsets: [3]})
    np.testing.assert_array_equal(values[0][:, 0], [3, 4])
    np.testing.assert_array_equal(values[1][:, 0], [0, 0, 0, 1, 1, 0])


def test_is_one_operation():
    run = tf.function(lambda src: tf.gradients(sequence_slice_unpack(src, [2], [1], 2), src))
    graph = run.get_concrete_function(tf.TensorSpec((4, 2))).graph
    names = {op.name for op in graph.get_operations() if op.type in ("GatherV2", "SelectV2")}
    names |= {op.name for op in graph.get_operations() if op.type == "UnsortedSegmentSum"}
    assert names
    assert {name.removeprefix("gradient_tape/").split("/")[0] for name in names} == {
        "poplar.SequenceSlice"
    }


MATCHING = "must have matching, nonzero shapes of rank 1"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"num_elems": [1]},
            ValueError,
            rf"num_elems, src_offsets and dst_offsets {MATCHING}\.\n.*1,",
        ),
        ({"src_offsets": [[0, 1]]}, ValueError, MATCHING),
        ({"num_elems": [], "src_offsets": [], "dst_offsets": []}, ValueError, MATCHING),
        ({"num_elems": 2}, ValueError, MATCHING),
        (
            {"dst_offsets": [0.0, 1.0]},
            TypeError,
            "`dst_offsets` must be a tensor of integers",
        ),
        ({"src": tf.zeros((6, 5))}, ValueError, "src and dst inner shapes must match"),
        ({"src": tf.zeros(6)}, ValueError, "`src` must be of at least rank 2"),
        ({"dst": tf.zeros(6)}, ValueError, "`dst` must be of at least rank 2"),
        ({"src": tf.zeros((6, 6), tf.int32)}, ValueError, "one type.*float32, src of int32"),
        ({"zero_unused": 2}, TypeError, "`zero_unused` must be True or False.*zero_unused=2"),
    ],
)
def test_refused_slices(change, error, message):
    given = {"dst": tf.zeros((6, 6)), "src": tf.constant(SIXES), "zero_unused": False}
    given |= {"num_elems": [1, 1], "src_offsets": [0, 1], "dst_offsets": [0, 1]}
    with pytest.raises(error, match=message):
        sequence_slice(**{**given, **change})


def test_refused_packed_and_unpacked_slices():
    with pytest.raises(ValueError, match=f"num_elems and dst_offsets {MATCHING}"):
        sequence_slice_pack(tf.zeros((6, 6)), SIXES, [1], [0, 1], False)
    with pytest.raises(TypeError, match="`zero_unused`"):
        sequence_slice_pack(tf.zeros((6, 6)), SIXES, [1], [0], None)
    with pytest.raises(ValueError, match=f"num_elems and src_offsets {MATCHING}"):
        sequence_slice_unpack(SIXES, [1], [0, 1], 2)
    with pytest.raises(TypeError, match=r"`total_elements` must be an integer.*False"):
        sequence_slice_unpack(SIXES, [1], [0], False)
    with pytest.raises(ValueError, match="`src` must be of at least rank 2"):
        sequence_slice_unpack(tf.zeros(6), [1], [0], 1)
