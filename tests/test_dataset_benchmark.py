"""Benchmarks of datasets and infeeds, without sessions and in them."""

import doctest
import json

import pytest
import tensorflow as tf

from ipu_keras import dataset_benchmark as module
from ipu_keras.dataset_benchmark import dataset_benchmark, infeed_benchmark
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue

FIELDS = {
    "elements_processed",
    "total_bytes_processed",
    "time_elapsed",
    "elements_per_second",
    "bandwidth",
}


def mixed():
    """Elements of 4 + 8 + 2 bytes."""
    return tf.data.Dataset.range(10).map(
        lambda k: {"x": tf.cast(k, tf.float32), "y": (k, tf.constant("ab"))}
    )


def check(text, num_epochs, num_elements, size):
    assert isinstance(text, str | bytes)
    epochs = json.loads(text)["epochs"]
    assert len(epochs) == num_epochs
    for epoch in epochs:
        assert set(epoch) == FIELDS
        assert epoch["elements_processed"] == num_elements
        assert epoch["total_bytes_processed"] == num_elements * size
        seconds = epoch["time_elapsed"]
        assert 0 < seconds < 60
        assert epoch["elements_per_second"] == pytest.approx(num_elements / seconds)
        assert epoch["bandwidth"] == pytest.approx(num_elements * size / seconds / 1e9)


def test_examples():
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("apply_options", [True, False])
@pytest.mark.parametrize("do_memcpy", [True, False])
def test_a_dataset(apply_options, do_memcpy, capsys):
    text = dataset_benchmark(mixed(), 2, 5, apply_options=apply_options, do_memcpy=do_memcpy)
    check(text, 2, 5, 14)
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in printed] == ["Epoch 0", "Epoch 1"]
    assert printed[0].startswith("Epoch 0: 5 elements, 70 bytes in ")


def test_a_queue_keeps_its_place():
    queue = IPUInfeedQueue(tf.data.Dataset.from_tensors([1.0, 2.0]).repeat(4))
    check(infeed_benchmark(queue, 1, 4, print_stats=False), 1, 4, 8)
    assert not queue.dequeued


@pytest.mark.parametrize("benchmark", [dataset_benchmark, infeed_benchmark])
def test_in_a_session_it_is_measured_whenever_it_is_run(benchmark, capsys):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dataset = tf.data.Dataset.from_tensor_slices(tf.ones([6, 3]))
        given = IPUInfeedQueue(dataset) if benchmark is infeed_benchmark else dataset
        text = benchmark(given, 3, 2)
        for _ in range(2):
            check(session.run(text), 3, 2, 12)
    assert capsys.readouterr().out.count("Epoch 2: 2 elements, 24 bytes") == 2


def test_the_clock_runs_while_elements_are_made():
    def slowly(k):
        import time

        time.sleep(0.01)
        return k

    dataset = tf.data.Dataset.range(8).map(lambda k: tf.py_function(slowly, [k], tf.int64))
    epochs = json.loads(dataset_benchmark(dataset, 2, 4, print_stats=False))["epochs"]
    # TensorFlow may read ahead before the first epoch begins, by as many as it likes.
    assert sum(epoch["time_elapsed"] for epoch in epochs) >= 0.06


def test_too_few_elements():
    message = "fewer elements than 2 epochs of 4 take: .* or use `dataset.repeat"
    with pytest.raises(tf.errors.OutOfRangeError, match=message):
        dataset_benchmark(tf.data.Dataset.range(7), 2, 4)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        text = dataset_benchmark(tf.data.Dataset.range(7), 2, 4)
        with pytest.raises(tf.errors.OutOfRangeError, match=message):
            session.run(text)


@pytest.mark.parametrize(
    ("benchmark", "name", "kind"),
    [
        (dataset_benchmark, "dataset", r"tf\.data\.Dataset"),
        (infeed_benchmark, "infeed_queue", r"ipu\.ipu_infeed_queue\.IPUInfeedQueue"),
    ],
)
def test_what_is_refused(benchmark, name, kind):
    with pytest.raises(TypeError, match=rf"^`{name}` must be an instance of {kind}\. .*=3 of type"):
        benchmark(3, 1, 1)
    dataset = tf.data.Dataset.range(3).map(lambda k: tf.cast(k, tf.int32))
    given = IPUInfeedQueue(dataset) if benchmark is infeed_benchmark else dataset
    with pytest.raises(ValueError, match=r"^`number_of_epochs` must be a positive integer"):
        benchmark(given, 0, 1)
    with pytest.raises(ValueError, match=r"^`elements_per_epochs` must be a positive integer"):
        benchmark(given, 1, 0)
    with pytest.raises(TypeError, match=r"^`do_memcpy` must be True or False"):
        benchmark(given, 1, 1, do_memcpy="yes")
