import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from comparison import assert_same, classifier, fit_same

from ipu_keras.keras.extensions.dataset_feeds import DatasetFeeds
from ipu_keras.runtime import FeedMemory


class Batches(keras.utils.PyDataset):
    """Batches of 8; raises `error` for the batch `bad`."""

    def __init__(self, data, *, bad=None, error=ZeroDivisionError, convert=None, **options):
        super().__init__(**options)
        self.data, self.bad, self.error, self.convert = data, bad, error, convert
        self.ended_epochs = 0

    def __len__(self):
        return -(-len(self.data[0]) // 8)

    def __getitem__(self, index):
        if index == self.bad:
            raise self.error(f"bad batch {index}")
        batch = tuple(array[8 * index : 8 * index + 8] for array in self.data)
        return batch if self.convert is None else self.convert(batch)

    def on_epoch_end(self):
        self.ended_epochs += 1


class Endless(Batches):
    @property
    def num_batches(self):
        return None

    def __getitem__(self, index):
        return super().__getitem__(index % 8)


def batched(data):
    return tf.data.Dataset.from_tensor_slices(data).batch(8, drop_remainder=True)


def threads(name):
    return [thread for thread in threading.enumerate() if name in thread.name]


# Kinds of data


@pytest.mark.parametrize(
    "convert",
    [
        lambda x, y: {"x": tf.constant(x), "y": tf.constant(y), "batch_size": 8},
        lambda x, y: {"x": x.astype("float64"), "y": y, "batch_size": 8},
        lambda x, y: {"x": batched((x.astype("float64"), y))},
        lambda x, y: {"x": batched((x, y)).map(lambda x, y: (x, y, None))},
        lambda x, y: {"x": batched((x, y)).prefetch(2).cache()},
        lambda x, y: {"x": Batches((x, y))},
    ],
    ids=["tensors", "float64", "dataset_float64", "dataset_none", "dataset", "py_dataset"],
)
def test_kinds_of_data(pair, data, convert):
    fit_same(*pair, **convert(*data), epochs=2)


def test_a_dataset_made_in_the_scope(strategy, pair, data):
    with strategy.scope():
        inside = batched(data)
        actual = pair[1].fit(inside, shuffle=False, verbose=0).history
    assert_same(actual, pair[0].fit(batched(data), shuffle=False, verbose=0).history)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "bool", "float16", "float32"])
def test_dtypes_are_carried_as_they_are(strategy, dtype):
    seen = []

    class Own(keras.Sequential):
        def train_step(self, batch):
            seen.append([tensor.dtype.name for tensor in batch])
            return super().train_step(batch)

    with strategy.scope():
        layers = [keras.layers.Lambda(lambda x: tf.cast(x, "float32")), keras.layers.Dense(1)]
        model = Own([keras.Input([2], dtype=dtype), *layers])
        model.compile("sgd", "mse", metrics=["mae"], jit_compile=False)
    x = np.array([[0, 1], [1, 1]] * 4, dtype)
    labels = np.array([[0], [1]] * 4, dtype)
    dataset = batched((x, labels))  # Keras widens arrays of float16
    model.fit(dataset, shuffle=False, verbose=0)
    assert seen[0] == [dtype, dtype]
    assert_same(model.predict(dataset, verbose=0), model(x).numpy(), 1e-3)


def test_arrays_of_integers_train(twins, data):
    """uint8 images with an int32 label, as data sets come."""

    def build():
        model = keras.Sequential(
            [
                keras.Input([6], dtype="uint8"),
                keras.layers.Rescaling(1 / 255),
                keras.layers.Dense(3),
            ]
        )
        model.compile("sgd", "mse", steps_per_execution=2, jit_compile=False)
        return model

    images = (20 * (data[0] + 5)).astype("uint8")
    labels = keras.utils.to_categorical(data[1]).astype("float32")
    fit_same(*twins(build), images, labels, batch_size=8)


# PyDatasets


@pytest.mark.parametrize("options", [{}, {"workers": 2, "max_queue_size": 3}], ids=["one", "two"])
def test_py_datasets(pair, data, options):
    ended = []

    def fit(model):
        batches, validation = Batches(data, **options), Batches(data, **options)
        fit = model.fit(
            batches, epochs=2, shuffle=False, verbose=0, validation_data=validation,
            class_weight={1: 3.0},
        )  # fmt: skip
        ended.append((batches.ended_epochs, validation.ended_epochs))
        return fit.history

    expected, actual = map(fit, pair)
    assert_same(actual, expected)
    assert_same(pair[1].get_weights(), pair[0].get_weights())
    for call in (
        lambda m: m.evaluate(Batches(data, **options), verbose=0),
        lambda m: m.predict(Batches(data, **options), verbose=0),
    ):
        expected, actual = map(call, pair)
        assert_same(actual, expected)
    assert ended[1][0] >= 2
    assert ended[1][1] >= 2


def test_a_py_dataset_of_which_an_epoch_reads_a_part(pair, data, executed):
    """The feed reads ahead, past the end of an epoch, at which Keras stops the workers."""
    for options in ({}, {"workers": 2}):
        pair[1].fit(Batches(data, **options), steps_per_epoch=4, epochs=2, shuffle=False, verbose=0)
        pair[1].fit(Endless(data, **options), steps_per_epoch=6, epochs=2, shuffle=False, verbose=0)
    assert executed("train") == (20, 40)


def test_an_endless_py_dataset_needs_steps(model, data):
    with pytest.raises(ValueError, match=r"^(When providing an infinite|Could not infer the size)"):
        model.fit(Endless(data), shuffle=False, verbose=0)


def test_batches_of_a_py_dataset_are_completed_as_by_keras(strategy, data):
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(1)])
        named = keras.Model({"x": (x := keras.Input([6], name="x"))}, keras.layers.Dense(1)(x))
    arrays = Batches(data, convert=lambda batch: batch[0])
    lists = Batches(data, convert=list)
    dicts = Batches(data, convert=lambda batch: {"x": batch[0]})
    expected = model.predict(data[0], batch_size=8, verbose=0)
    for batches in (arrays, lists):
        assert_same(model.predict(batches, verbose=0), expected)
    assert named.predict(dicts, verbose=0).shape == (64, 1)


def test_a_py_dataset_whose_last_batch_is_partial(model, data):
    batches = Batches(tuple(array[:60] for array in data))
    message = r"^The provided set of data has a partial batch(.|\n)*batch_size=8 with 4 samples"
    with pytest.raises(ValueError, match=message):
        model.fit(batches, shuffle=False, verbose=0)


def test_an_empty_py_dataset(model, data):
    with pytest.raises(ValueError, match="length 0"):
        model.fit(Batches([data[0][:0]]), shuffle=False, verbose=0)


# Data that raises


@pytest.mark.parametrize("options", [{}, {"workers": 2}], ids=["one", "two"])
def test_what_a_py_dataset_raises(pair, data, executed, options):
    _, model = pair
    before = model.get_weights()
    x, y = data
    model.fit(x[:32], y[:32], batch_size=8, shuffle=False, verbose=0)
    expected = model.get_weights()
    model.set_weights(before)
    with pytest.raises(ZeroDivisionError, match="bad batch 4") as error:
        model.fit(Batches(data, bad=4, **options), shuffle=False, verbose=0)
    assert "__getitem__" in [entry.name for entry in error.traceback]
    # The two executions before the bad batch are in the weights.
    assert executed("train") == (4, 8)
    assert_same(model.get_weights(), expected)


@pytest.mark.parametrize("raised", [KeyError, ValueError])
def test_what_a_generator_of_a_dataset_raises(model, data, raised):
    def generate():
        raise raised("half-way")
        yield

    signature = (tf.TensorSpec([8, 6]), tf.TensorSpec([8], tf.int32))
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    with pytest.raises(tf.errors.OpError, match=rf"{raised.__name__}: '?half-way") as error:
        model.fit(dataset, steps_per_epoch=8, shuffle=False, verbose=0)
    assert "in generate" in str(error.value)


def test_what_an_operation_of_a_dataset_raises(pair, data, executed):
    def positive(x, y):
        return tf.debugging.check_numerics(x, "bad sample"), y

    x = data[0].copy()
    x[36] = np.inf
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad sample"):
        pair[1].fit(batched((x, data[1])).map(positive), shuffle=False, verbose=0)
    assert executed("train") == (2, 4)


def test_an_error_in_the_validation_data(model, data):
    for call in (
        lambda: model.evaluate(Batches(data, bad=5), verbose=0),
        lambda: model.predict(Batches(data, bad=5), verbose=0),
    ):
        with pytest.raises(ZeroDivisionError, match="bad batch 5"):
            call()
    loss, _ = model.evaluate(*data, batch_size=8, verbose=0)
    assert loss > 0


# Feeds


def test_the_name_and_depth_of_a_feed(twins, data):
    _, model = twins(classifier, steps_per_execution=2)
    model.set_infeed_queue_options(prefetch_depth=1, feed_name="mine")
    seen, read = [], []

    class Counting(Batches):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if not seen:
                time.sleep(0.2)  # the feed reads as far ahead as it may
                seen.extend([set(read), [thread.name for thread in threads("ipu-")]])

    model.fit(Counting(data), shuffle=False, verbose=0, callbacks=[Look()])
    # Two batches have run, two wait, two more are being joined.
    assert max(seen[0] - {7}) <= 5
    assert seen[1] == ["ipu-mine"]


def test_feeds_of_earlier_epochs_are_given_up(pair, data):
    alive = []

    class Look(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            alive.append(len(threads("ipu-infeed")))

        def on_train_batch_end(self, batch, logs=None):
            assert len(threads("ipu-infeed")) <= 1

    # What TensorFlow reads is read ahead.
    read = batched(data).map(lambda x, y: (x, y))
    pair[1].fit(read, epochs=4, validation_data=read, shuffle=False, verbose=0, callbacks=[Look()])
    # After each epoch Keras opens the data again, and once more before it reads.
    assert alive == [0, 1, 1, 1]
    assert not threads("ipu-infeed")


@pytest.mark.parametrize("count", [1, 2])
def test_every_pass_over_shuffled_data_has_the_order_of_stock_keras(pair, data, count):
    """Keras opens a dataset again after each epoch, which takes the order of a pass."""

    def shuffled(seed):
        examples = tf.data.Dataset.from_tensor_slices(data).shuffle(20, seed=seed)
        return examples.batch(8, drop_remainder=True).repeat(count)

    def mapped(seed):
        return shuffled(seed).map(lambda x, y: (2 * x, y))

    for make in (shuffled, mapped):
        stock, ours = (make(5), make(6)), (make(5), make(6))
        options = {"epochs": 3, "shuffle": False, "verbose": 0}
        expected = pair[0].fit(stock[0], validation_data=stock[1], **options).history
        assert_same(pair[1].fit(ours[0], validation_data=ours[1], **options).history, expected)
        # A program that reads them afterwards finds them as it would have.
        # Of the validation data stock Keras drops the last iterator while TensorFlow may still be
        # looking for the end of the repetition, which takes the order of a pass or not.
        pairs = list(zip(ours, stock, strict=True))
        for one, other in pairs if count == 1 else pairs[:1]:
            for (x, _), (same, _) in zip(one, other, strict=True):
                np.testing.assert_array_equal(x, same)


@pytest.mark.parametrize("options", [{}, {"workers": 2}], ids=["one", "two"])
def test_a_stopped_run_leaves_no_thread(pair, data, options):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = True

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    _, model = pair
    model.fit(Endless(data, **options), steps_per_epoch=100, verbose=0, shuffle=False,
              callbacks=[Stop()])  # fmt: skip
    assert not threads("ipu-")
    with pytest.raises(KeyboardInterrupt):
        model.fit(batched(data).repeat(), steps_per_epoch=100, verbose=0, shuffle=False,
                  callbacks=[Fail()])  # fmt: skip
    assert not threads("ipu-")


class Source:
    """Counts its feeds."""

    element = None

    def __init__(self):
        self.feeds, self.closed = [], 0

    def feed(self, check, **options):
        self.feeds.append(Feed())
        self.options = {"check": check, **options}
        return self.feeds[-1]

    def close(self):
        self.closed += 1


class Feed:
    opened = closed = False

    def open(self):
        self.opened = True

    def close(self):
        self.closed = True


def test_each_pass_closes_the_feed_of_the_pass_before():
    source = Source()
    memory = FeedMemory()
    feeds = DatasetFeeds(
        source, num_batches=2, num_steps=4, prefetch_depth=4, check=None, name="mine", memory=memory
    )
    first, second = feeds.__iter__(), feeds.__iter__()
    assert source.feeds == [first, second]
    assert second.opened
    options = {"num_steps": 2, "prefetch_depth": 4, "name": "mine", "memory": memory}
    assert source.options == {"check": None, **options}
    assert first.closed
    assert not second.closed
    feeds.close()
    feeds.close()
    assert second.closed
    assert source.closed == 2


def test_calls_of_a_model_share_the_memory_of_its_device(device, model, data, monkeypatch):
    memory = FeedMemory()
    monkeypatch.setattr(device.engine, "_feed_memory", memory)
    batch = [array[:8] for array in data]
    model.test_on_batch(*batch)
    unused = memory.unused_bytes
    assert unused >= sum(array.nbytes for array in batch)
    model.test_on_batch(*batch)
    assert memory.unused_bytes == unused
    model.evaluate(*data, batch_size=8, verbose=0)
    assert memory.unused_bytes > unused
