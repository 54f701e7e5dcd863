"""Batches copied from the arrays of a dataset are those that TensorFlow reads."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ipu_keras.feeds.dataset_feed import DatasetFeed, element_format, tensors_of
from ipu_keras.feeds.sliced_datasets import BatchedRows, sliced_dataset

NUM_ROWS = 50
X = np.arange(2 * NUM_ROWS, dtype=np.float32).reshape(NUM_ROWS, 2)
Y = np.arange(NUM_ROWS, dtype=np.int32)


@pytest.fixture(autouse=True)
def unseeded() -> Iterator[None]:
    """Without the seed that another test may have left, and without leaving one."""
    tf.random.set_seed(None)
    yield
    tf.random.set_seed(None)


def slices() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def shuffled(seed: int | None = 5, **options) -> tf.data.Dataset:
    return slices().shuffle(20, seed=seed, **options).batch(4, drop_remainder=True)


def fed(dataset: tf.data.Dataset, num_batches: int | None = None) -> list[list[list]]:
    """The batches of one pass of a feed, each as the values of its tensors."""
    with DatasetFeed(dataset, element_format(dataset.element_spec), num_steps=1) as feed:
        return [
            [tensor.numpy()[0].tolist() for tensor in tensors_of(super_batch)]
            for super_batch in itertools.islice(feed, num_batches)
        ]


def read(dataset: tf.data.Dataset) -> list[list[list]]:
    """The same from TensorFlow."""
    return [[tensor.numpy().tolist() for tensor in tf.nest.flatten(batch)] for batch in dataset]


# -- the order of a shuffle ------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(-(2**40), 2**40),
    buffer_size=st.integers(1, 60),
    batch_size=st.integers(1, 20),
    reshuffles=st.booleans(),
    passes=st.lists(st.booleans(), min_size=1, max_size=4),
)
@example(seed=0, buffer_size=2, batch_size=1, reshuffles=True, passes=[False, False, True])
@example(seed=3, buffer_size=2, batch_size=1, reshuffles=True, passes=[False, True, True])
def test_passes_have_the_orders_of_tensorflow(seed, buffer_size, batch_size, reshuffles, passes):
    """Also if others make passes in between, which some of the feed's are here."""

    def dataset():
        rows = slices().shuffle(buffer_size, seed=seed, reshuffle_each_iteration=reshuffles)
        return rows.batch(batch_size, drop_remainder=True)

    one, other = dataset(), dataset()
    for by_feed in passes:
        assert (fed if by_feed else read)(one) == read(other)


@pytest.mark.parametrize("batch_size", [13, 40])
def test_only_the_first_batch_is_read_by_tensorflow(batch_size):
    x = np.arange(200)

    def dataset():
        rows = tf.data.Dataset.from_tensor_slices(x).shuffle(20, seed=5)
        return rows.batch(batch_size, drop_remainder=True)

    one = dataset()

    def first() -> Iterator:
        yield [next(iter(one)).numpy()]
        pytest.fail("TensorFlow was asked for more")

    batches = [batch.tolist() for (batch,) in sliced_dataset(one).batches(first())]
    assert batches == [batch.tolist() for batch in dataset().as_numpy_iterator()]


def test_more_is_read_where_rows_are_equal():
    """Two kinds of rows begin many passes: which one it is, later batches decide."""
    x = np.arange(400, dtype=np.int32) % 2

    def dataset():
        rows = tf.data.Dataset.from_tensor_slices(x).shuffle(400, seed=2)
        return rows.batch(4, drop_remainder=True)

    for count in range(6):
        one, other = dataset(), dataset()
        for each in (one, other):
            for _ in range(count):
                next(iter(each))
        assert fed(one) == read(other)


def test_rows_may_have_nan():
    x = np.full((52, 2), np.nan, np.float32)
    x[:, 0] = range(52)
    rows = tf.data.Dataset.from_tensor_slices(x).shuffle(20, seed=1)
    dataset = rows.batch(13, drop_remainder=True)
    first, *others = dataset.as_numpy_iterator()
    batches = [batch for (batch,) in sliced_dataset(dataset).batches(iter([[first]]))]
    np.testing.assert_array_equal(batches, [first, *others])


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize(("buffer_size", "batch_size"), [(20, 4), (2, 1)])
def test_an_order_that_is_not_found_is_tensorflows(buffer_size, batch_size, seed):
    """Nobody tells how many passes others made; 64 are looked for, of which few begin alike."""

    def dataset():
        return slices().shuffle(buffer_size, seed=seed).batch(batch_size, drop_remainder=True)

    one, other = dataset(), dataset()
    for _ in range(64):
        for each in (one, other):
            next(iter(each))
    reading = (list(batch) for batch in one.as_numpy_iterator())
    batches = [
        [array.tolist() for array in batch] for batch in sliced_dataset(one).batches(reading)
    ]
    assert batches == read(other)
    assert next(reading, None) is None


def test_rows_that_tell_nothing_are_read_by_tensorflow():
    """Of equal rows any pass may be the next one, however many of them were compared."""
    rows = tf.data.Dataset.from_tensor_slices(np.zeros(5000)).shuffle(1000, seed=1)
    sliced = sliced_dataset(rows.batch(4, drop_remainder=True))
    read_ones = [[np.zeros(4)] for _ in range(1250)]
    batches = list(sliced.batches(iter(read_ones)))
    assert [id(batch) for batch in batches] == [id(batch) for batch in read_ones]


def test_without_a_seed_any_order_will_do():
    sliced = sliced_dataset(shuffled(seed=None))
    assert not sliced.is_read
    orders = [np.concatenate([y for _, y in sliced.batches(None)]) for _ in range(2)]
    for order in orders:
        assert len(set(order)) == 48
        assert set(order) <= set(Y)
        # What is drawn from a buffer of 20 has entered it.
        assert all(row < position + 20 for position, row in enumerate(order))
    assert orders[0].tolist() != orders[1].tolist()


def test_rows_in_their_order_are_not_copied():
    dataset = slices().batch(4, drop_remainder=True)
    sliced = sliced_dataset(dataset)
    assert not sliced.is_read
    batches = list(sliced.batches(None))
    assert [y.tolist() for _, y in batches] == [list(range(i, i + 4)) for i in range(0, 48, 4)]
    assert all(np.shares_memory(x, sliced.arrays[0]) for x, _ in batches)


# -- which datasets --------------------------------------------------------------


@pytest.mark.parametrize(
    "dataset",
    [
        shuffled,
        lambda: shuffled().prefetch(2),
        lambda: slices().prefetch(1).shuffle(20).batch(4, drop_remainder=True),
        lambda: shuffled().with_options(tf.data.Options()),
        lambda: shuffled().repeat(),
        lambda: slices().batch(4, drop_remainder=True).repeat(3),
    ],
)
def test_batched_rows(dataset: Callable[[], tf.data.Dataset]):
    sliced = sliced_dataset(dataset())
    assert isinstance(sliced, BatchedRows)
    assert [array.tolist() for array in sliced.arrays] == [X.tolist(), Y.tolist()]
    assert sliced.batch_size == 4


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: slices().batch(4),
        lambda: slices(),
        lambda: slices().batch(4, drop_remainder=True).shuffle(3),
        lambda: slices().map(lambda x, y: (x + 1, y)).batch(4, drop_remainder=True),
        lambda: slices().repeat(2).batch(4, drop_remainder=True),
        lambda: slices().batch(4, drop_remainder=True, num_parallel_calls=2),
        lambda: slices().shuffle(9).shuffle(9).batch(4, drop_remainder=True),
        # Only TensorFlow knows a seed that it has chosen, and every pass needs it.
        lambda: shuffled(seed=None, reshuffle_each_iteration=False),
        lambda: tf.data.Dataset.range(9).batch(4, drop_remainder=True),
    ],
)
def test_others(dataset: Callable[[], tf.data.Dataset]):
    assert sliced_dataset(dataset()) is None


def test_datasets_of_functions():
    found = []

    @tf.function
    def function():
        found.append(sliced_dataset(slices().batch(4, drop_remainder=True)))

    function()
    assert found == [None]


# -- repetition ------------------------------------------------------------------


def test_every_repetition_is_a_pass():
    ours, others = shuffled().repeat(3), shuffled().repeat(3)
    for _ in range(2):
        assert fed(ours) == read(others)
    assert fed(shuffled().repeat(), num_batches=40) == read(shuffled().repeat().take(40))


@pytest.mark.parametrize("count", [0, None])
def test_repetitions_of_nothing(count):
    assert fed(slices().take(3).batch(4, drop_remainder=True).repeat(count)) == []
    few = tf.data.Dataset.from_tensor_slices(Y[:3]).batch(4, drop_remainder=True)
    assert isinstance(sliced_dataset(few.repeat(count)), BatchedRows)
    assert fed(few.repeat(count)) == []
