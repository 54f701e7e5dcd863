"""Iterators that functions read: many elements at once, and whose error an error is."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.feeds.dataset_iterators import DatasetIterator


@pytest.fixture
def pairs():
    """Elements of two tensors, of which there are seven."""
    dataset = tf.data.Dataset.range(7).map(
        lambda k: {"a": k, "b": tf.fill([2], tf.cast(k, "int8"))}
    )
    return DatasetIterator(dataset, "pairs")


@pytest.mark.parametrize("counts", [[1, 1, 1], [3, 4], [7], [2, 1, 4]])
def test_many_elements_at_once(pairs, counts):
    pairs.begin()
    start = 0
    for count in counts:
        a, b = tf.function(lambda count=count: pairs.read_many(count))()
        expected = np.arange(start, start + count)
        np.testing.assert_array_equal(a, expected)
        np.testing.assert_array_equal(b, np.stack([expected, expected], axis=1))
        assert (a.dtype, b.dtype) == (tf.int64, tf.int8)
        start += count


def test_one_element_has_its_structure(pairs):
    pairs.begin()
    found = tf.function(pairs.read)()
    assert set(found) == {"a", "b"}
    assert int(found["a"]) == 0


@pytest.mark.parametrize("count", [1, 8])
def test_whose_errors_they_are(pairs, count):
    other = DatasetIterator(tf.data.Dataset.range(7), "pairs")
    read = tf.function(lambda: pairs.read_many(count))
    for prepare in (lambda: None, lambda: (pairs.begin(), pairs.delete())):
        prepare()
        with pytest.raises(tf.errors.OpError) as error:
            read()
        assert pairs.is_missing(error.value)
        assert pairs.is_behind(error.value)
        assert not other.is_behind(error.value)
    pairs.begin()
    if count == 1:
        tf.function(lambda: pairs.read_many(7))()
    with pytest.raises(tf.errors.OutOfRangeError) as error:
        read()
    assert pairs.is_behind(error.value)
    assert not pairs.is_missing(error.value)
    assert not other.is_behind(error.value)


def test_in_a_session_it_exists_from_its_beginning_until_it_is_deleted():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        iterator = DatasetIterator(tf.data.Dataset.range(7), "numbers")
        begin, delete, element = iterator.begin(), iterator.delete(), iterator.read()
        for _ in range(2):
            with pytest.raises(tf.errors.NotFoundError):
                session.run(delete)
            session.run(begin)
            assert [session.run(element), session.run(element)] == [0, 1]
            session.run(delete)
            with pytest.raises(tf.errors.InvalidArgumentError) as error:
                session.run(element)
            assert iterator.is_missing(error.value)
