import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import assert_same
from keras.src.backend.tensorflow.trainer import TFEpochIterator

from ipu_keras.feeds.dataset_feed import tensors_of
from ipu_keras.keras.extensions.dataset_feeds import DatasetFeeds, DatasetSource, PyDatasetSource
from ipu_keras.keras.extensions.epoch_data import EpochData
from ipu_keras.runtime import FeedMemory

ROWS = np.arange(64 * 3, dtype=np.float32).reshape(64, 3)
BATCHED = tf.data.Dataset.from_tensor_slices(ROWS).batch(8, drop_remainder=True)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return ROWS[8 * index : 8 * index + 8]


def iterator_over(x, **options):
    return TFEpochIterator(x=x, distribute_strategy=tf.distribute.get_strategy(), **options)


@pytest.mark.parametrize(
    ("x", "options", "num_batches", "endless", "source"),
    [
        (ROWS, {"batch_size": 8}, 8, False, DatasetSource),
        (BATCHED, {}, 8, False, DatasetSource),
        (BATCHED.repeat(), {"steps_per_epoch": 5}, None, True, DatasetSource),
        (BATCHED.filter(lambda rows: True), {}, None, False, DatasetSource),
        (Batches(), {}, 8, False, PyDatasetSource),
    ],
)
def test_what_it_says_of_data(x, options, num_batches, endless, source):
    data = EpochData(iterator_over(x, steps_per_execution=2, **options))
    assert data.num_batches == num_batches
    assert data.steps_per_epoch == options.get("steps_per_epoch")
    assert data.steps_per_execution == 2
    assert data.feeds is None
    assert source is PyDatasetSource or data.is_endless() is endless
    found = data.source()
    assert isinstance(found, source)
    assert [spec.shape for spec in found.element.specs] == [(8, 3)]


def test_a_partial_batch():
    with pytest.raises(
        ValueError, match=r"^The provided set of data has a partial batch(.|\n)* 4 samples"
    ):
        EpochData(iterator_over(ROWS, batch_size=10))


@pytest.mark.parametrize("batches_per_step", [1, 2])
def test_keras_iterates_the_feeds(batches_per_step):
    iterator = iterator_over(BATCHED)
    data = EpochData(iterator)
    feeds = DatasetFeeds(
        data.source(),
        num_batches=2 * batches_per_step,
        num_steps=4,
        prefetch_depth=1,
        check=None,
        name="infeed",
        memory=FeedMemory(),
    )
    data.replace(feeds, 2, steps_per_epoch=8, batches_per_step=batches_per_step)
    assert EpochData(iterator).feeds is data.feeds is feeds
    # As Keras counts: steps of an epoch, each of all replicas, and those of an execution.
    assert data.num_batches == iterator.num_batches == 8 // batches_per_step
    assert data.steps_per_execution == 2
    executions = []
    for begin, end, feed in iterator:
        [rows] = (tensor.numpy() for tensor in tensors_of(next(feed)))
        executions.append((begin, end, rows))
    feeds.close()
    assert [(begin, end) for begin, end, _ in executions] == [
        (begin, begin + 1) for begin in range(0, 8 // batches_per_step, 2)
    ]
    assert_same(np.concatenate([rows for *_, rows in executions]).reshape(64, 3), ROWS)
