"""Packing sequences, and functions over chunks of them, against NumPy."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.ops import packed_sequences
from ipu_keras.ops.packed_sequences import ChunkSizes, map_chunks, pack, unpack


def test_examples_in_the_docstrings():
    assert doctest.testmod(packed_sequences).failed == 0


@settings(deadline=None, derandomize=True, max_examples=30)
@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    num_tokens=st.integers(1, 40),
    features=st.sampled_from([(), (2,), (2, 3)]),
)
def test_pack_and_unpack(lengths, num_tokens, features):
    random = np.random.default_rng(0)
    sequences = random.integers(1, 9, (len(lengths), 5, *features)).astype(np.int32)
    rows = [row[:length] for row, length in zip(sequences, lengths, strict=True)]
    tokens = np.concatenate([*rows, np.zeros((num_tokens, *features), np.int32)])[:num_tokens]
    packed = pack(tf.constant(sequences), tf.constant(lengths), num_tokens)
    np.testing.assert_array_equal(packed, tokens)
    expected = np.zeros_like(sequences)
    position = 0
    for row, length in enumerate(lengths):
        kept = tokens[position : position + length]
        expected[row, : len(kept)] = kept
        position += length
    np.testing.assert_array_equal(unpack(packed, tf.constant(lengths), 5), expected)


@pytest.mark.parametrize("num_tokens", [4, 9])
def test_gradients(num_tokens):
    lengths = tf.constant([2, 0, 3])
    sequences = tf.random.stateless_normal((3, 4, 2), [1, 2], dtype=tf.float64)
    tokens = tf.random.stateless_normal((num_tokens, 2), [1, 2], dtype=tf.float64)
    for function, x in (
        (lambda x: pack(x, lengths, num_tokens) ** 2, sequences),
        (lambda x: unpack(x, lengths, 4) ** 2, tokens),
    ):
        (theoretical,), (numerical,) = tf.test.compute_gradient(function, [x])
        np.testing.assert_allclose(theoretical, numerical, atol=1e-6)


def scaled_sums(chunk):
    """Of each row the sum of its tokens times a parameter, from the packed tokens."""
    num_tokens = 4  # as MAX_TOKENS has it
    tokens = pack(chunk.rows[0], chunk.lengths[0], num_tokens) * chunk.parameters[0]
    return tf.reduce_sum(unpack(tokens, chunk.lengths[0], 3), axis=1) + chunk.parameters[1]


def run_in_chunks(sequences, factor, offset, lengths, max_rows):
    return map_chunks(
        scaled_sums,
        [sequences],
        [lengths],
        [factor, offset],
        ChunkSizes(max_rows=max_rows, max_tokens=(4,)),
        tf.TensorSpec([], sequences.dtype),
    )


LENGTHS = [3, 1, 2, 0, 3, 3, 1]
SEQUENCES = np.random.default_rng(0).standard_normal((7, 3))
TWO, TEN = np.float64(2), np.float64(10)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("max_rows", [2, 7, 10])
def test_chunks(max_rows, jit_compile):
    run = tf.function(run_in_chunks, jit_compile=jit_compile)
    found = run(tf.constant(SEQUENCES), TWO, TEN, tf.constant(LENGTHS), max_rows)
    expected = [2 * row[:n].sum() + 10 for row, n in zip(SEQUENCES, LENGTHS, strict=True)]
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("max_rows", [2, 7])
def test_gradients_of_chunks(max_rows):
    def run(*tensors):
        return run_in_chunks(*tensors, tf.constant(LENGTHS), max_rows) ** 2

    tensors = list(map(tf.constant, (SEQUENCES, TWO, TEN)))
    for ours, expected in zip(*tf.test.compute_gradient(tf.function(run), tensors), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-4)


def test_a_batch_of_unknown_size():
    signature = [tf.TensorSpec([None, 3], tf.float64), tf.TensorSpec([None], tf.int32)]
    run = tf.function(lambda x, n: run_in_chunks(x, TWO, TEN, n, 2), input_signature=signature)
    expected = [2 * row[:n].sum() + 10 for row, n in zip(SEQUENCES, LENGTHS, strict=True)]
    np.testing.assert_allclose(run(SEQUENCES, LENGTHS), expected)


def test_chunks_are_as_few_as_fit():
    """Of 4 tokens: 3 and 1, then 2 and 0, then 3 alone (as 3 more do not fit), then 3 and 1."""
    starts = []

    def note(chunk):
        starts.append((int(chunk.first_row), chunk.lengths[0].numpy().tolist()))
        return tf.zeros(7)

    map_chunks(
        note,
        [tf.constant(SEQUENCES)],
        [tf.constant(LENGTHS)],
        [],
        ChunkSizes(max_rows=7, max_tokens=(4,)),
        tf.TensorSpec([], tf.float32),
    )
    assert starts == [
        (0, [3, 1, 0, 0, 0, 0, 0]),
        (2, [0, 0, 2, 0, 0, 0, 0]),
        (4, [0, 0, 0, 0, 3, 0, 0]),
        (5, [0, 0, 0, 0, 0, 3, 1]),
    ]
