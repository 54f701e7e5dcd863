"""Batches of arrays have the rows that stock Keras's pipeline gives."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from ipu_keras.feeds.array_batches import ArrayBatches, Shuffle
from ipu_keras.internals.tensorflow.contexts import seeds_in_a_function


@pytest.fixture(autouse=True)
def unseeded():
    """Without the seed that another test may have left, and without leaving one."""
    tf.random.set_seed(None)
    yield
    tf.random.set_seed(None)


def rows_of(batches):
    return [np.asarray(rows).tolist() for (rows,) in batches]


def passes_of_keras(num_rows, batch_size, shuffle, count):
    adapter = ArrayDataAdapter(np.arange(num_rows), batch_size=batch_size, shuffle=shuffle)
    dataset = adapter.get_tf_dataset()
    return [[batch.numpy().tolist() for batch in dataset] for _ in range(count)]


@given(
    seed=st.integers(0, 2**32 - 1),
    batch_size=st.integers(1, 12),
    num_batches=st.integers(1, 5),
    rest=st.integers(0, 11),
    shuffle=st.sampled_from([True, "batch"]),
)
def test_seeded_orders_are_those_of_stock_keras(seed, batch_size, num_batches, rest, shuffle):
    num_rows = batch_size * num_batches + rest % batch_size
    keras.utils.set_random_seed(seed)
    expected = passes_of_keras(num_rows, batch_size, shuffle, 2)
    keras.utils.set_random_seed(seed)
    order = Shuffle(seeds_in_a_function(), of_batches=shuffle == "batch")
    batches = ArrayBatches([np.arange(num_rows)], batch_size, order)
    assert len(batches) == num_batches
    assert [rows_of(batches) for _ in range(2)] == [one[:num_batches] for one in expected]


def test_orders_without_a_seed():
    whole = ArrayBatches([np.arange(60)], 20, Shuffle(seeds_in_a_function()))
    in_batches = ArrayBatches([np.arange(60)], 20, Shuffle(None, of_batches=True))
    for batches in (whole, in_batches):
        first, second = rows_of(batches), rows_of(batches)
        assert first != second
        assert sorted(np.ravel(first)) == sorted(np.ravel(second)) == list(range(60))
    assert [sorted(rows) for rows in rows_of(in_batches)] == [
        list(range(start, start + 20)) for start in (0, 20, 40)
    ]
    assert sorted(rows_of(whole)[0]) != list(range(20))


def test_rows_in_their_order_are_not_copied():
    array = np.arange(12).reshape(6, 2)
    batches = [rows for (rows,) in ArrayBatches([array], 3)]
    assert [rows.tolist() for rows in batches] == [array[:3].tolist(), array[3:].tolist()]
    assert all(np.shares_memory(rows, array) for rows in batches)


def test_all_arrays_have_the_same_order():
    x = np.arange(24).reshape(12, 2)
    batches = ArrayBatches([x, x[:, 0]], 4, Shuffle((1, 2)))
    assert all((rows[:, 0] == firsts).all() for rows, firsts in batches)
