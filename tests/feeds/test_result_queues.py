"""Queues of results, without programs."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.feeds.result_queues import ResultQueue
from ipu_keras.program import OutfeedMode

SPECS = [tf.TensorSpec([2], tf.float32), tf.TensorSpec([], tf.bool)]


def results(*numbers):
    return [np.float32([[number, -number] for number in numbers]), [n > 1 for n in numbers]]


def test_all_results_are_taken_once():
    queue = ResultQueue(SPECS, OutfeedMode.ALL, "queue")
    queue.write(results(0, 1))
    queue.write(results(2))
    (pairs, flags), size = queue.take()
    np.testing.assert_array_equal(pairs, results(0, 1, 2)[0])
    assert flags.numpy().tolist() == [False, False, True]
    assert int(size) == 3
    (pairs, flags), size = queue.take()
    assert (pairs.shape, flags.shape, int(size)) == ((0, 2), (0,), 0)


def test_the_last_result_stays():
    queue = ResultQueue(SPECS, OutfeedMode.LAST, "queue")
    queue.write(results(0, 1))
    queue.write(results(2, 3))
    for _ in range(2):
        pair, flag = queue.last()
        np.testing.assert_array_equal(pair, [3, -3])
        assert bool(flag)
    queue.close()
    with pytest.raises(tf.errors.InvalidArgumentError):
        queue.last()


def test_results_outlive_functions():
    queue = ResultQueue(SPECS, OutfeedMode.ALL, "queue")
    write = tf.function(lambda: queue.write(results(0, 1)) and None)
    write()
    write()
    assert int(queue.take()[1]) == 4
