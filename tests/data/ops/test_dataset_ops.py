"""Datasets whose number of elements is a multiple."""

import doctest

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.data.ops import dataset_ops
from ipu_keras.data.ops.dataset_ops import BufferDataset


def test_examples():
    assert doctest.testmod(dataset_ops).failed == 0


@settings(max_examples=20)
@given(st.integers(0, 12), st.integers(1, 5), st.booleans())
def test_the_last_elements_are_left_out_if_they_are_too_few(count, size, is_known):
    dataset = tf.data.Dataset.range(count)
    if not is_known:
        dataset = dataset.filter(lambda _: True)
    found = BufferDataset(dataset, np.int64(size))
    expected = list(range(count // size * size))
    assert list(found.as_numpy_iterator()) == list(found.as_numpy_iterator()) == expected
    assert int(found.cardinality()) == (len(expected) if is_known else -2)


def test_it_reads_before_it_hands_out():
    taken = []

    def elements():
        for k in range(5):
            taken.append(k)
            yield k

    source = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec([], tf.int32))
    iterator = iter(BufferDataset(source, 3))
    assert int(next(iterator)) == 0
    assert taken[:3] == [0, 1, 2]
    assert [int(k) for k in iterator] == [1, 2]


@pytest.mark.parametrize(
    "structure",
    [
        lambda k: (k,),
        lambda k: {"b": k, "a": (tf.ones([2]), tf.strings.as_string(k))},
        lambda k: tf.sparse.from_dense(tf.one_hot(k, 6)),
        lambda k: tf.RaggedTensor.from_row_lengths(tf.range(k), [k]),
    ],
)
def test_elements_of_every_structure(structure):
    dataset = tf.data.Dataset.range(5).map(structure)
    found = BufferDataset(dataset, 2)
    assert isinstance(found, tf.data.Dataset)
    assert found.element_spec == dataset.element_spec
    pairs = list(zip(found, dataset, strict=False))
    assert len(pairs) == 4
    for one, other in pairs:
        tf.nest.assert_same_structure(one, other)
        for a, b in zip(
            tf.nest.flatten(one, expand_composites=True),
            tf.nest.flatten(other, expand_composites=True),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)


def test_without_end_and_in_sessions():
    endless = BufferDataset(tf.data.Dataset.range(3).repeat(), 2)
    assert int(endless.cardinality()) == tf.data.INFINITE_CARDINALITY
    assert list(endless.take(4).as_numpy_iterator()) == [0, 1, 2, 0]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dataset = BufferDataset(tf.data.Dataset.range(5).map(lambda k: k * k), 2).batch(4)
        batch = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        assert session.run(batch).tolist() == [0, 1, 4, 9]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(batch)


def test_what_is_refused():
    with pytest.raises(TypeError, match=r"`input_dataset` must be a tf\.data\.Dataset\. .*=\[1\]"):
        BufferDataset([1], 2)
    with pytest.raises(ValueError, match=r"`buffer_size` must be a positive integer. .*=0$"):
        BufferDataset(tf.data.Dataset.range(3), 0)
    with pytest.raises(TypeError, match="and nothing that is None: leave it out with `map`"):
        BufferDataset(tf.data.Dataset.range(3).map(lambda k: (k, None)), 2)


def test_its_documented_home():
    from tensorflow.python.ipu.data.ops.dataset_ops import BufferDataset as documented

    assert documented is BufferDataset
