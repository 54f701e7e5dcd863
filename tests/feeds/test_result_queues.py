"""Queues of results, without programs."""

import contextlib
import threading
import time

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


@pytest.mark.parametrize("mode", [OutfeedMode.ALL, OutfeedMode.LAST])
def test_what_several_replicas_send_has_an_axis_for_them(mode):
    queue = ResultQueue([tf.TensorSpec([3], tf.float32)], mode, "queue", 2)
    sent = np.arange(24.0, dtype=np.float32).reshape(4, 2, 3)
    queue.write([sent[:1]])
    queue.write([sent[1:]])
    if mode is OutfeedMode.LAST:
        np.testing.assert_array_equal(queue.last()[0], sent[-1])
        np.testing.assert_array_equal(queue.last()[0], sent[-1])
    else:
        np.testing.assert_array_equal(queue.take()[0][0], sent)


@pytest.mark.parametrize("in_a_session", [False, True])
@pytest.mark.parametrize("mode", [OutfeedMode.ALL, OutfeedMode.LAST])
def test_several_threads_take_turns(mode, in_a_session, monkeypatch):
    """Who asks how many results there are gets as many, though others take and write."""
    with tf.Graph().as_default() if in_a_session else contextlib.nullcontext():
        queue = ResultQueue([tf.TensorSpec([], tf.float32)], mode, "queue")
        size = queue._queue.size

        def slow():
            # Where threads may change.
            found = size()
            with tf.control_dependencies([found]):
                tf.py_function(lambda: time.sleep(0.002), [], [])
                return tf.identity(found)

        if not in_a_session:
            monkeypatch.setattr(queue._queue, "size", slow)
        write = queue.write([tf.constant([1.0, 2.0])])
        take = queue.take()[0] if mode is OutfeedMode.ALL else queue.last()
        session = tf.compat.v1.Session() if in_a_session else None
        if session:
            session.run(write)

        def once(instruction, make):
            return session.run(instruction) if session else make()

        read = (lambda: queue.take()[0]) if mode is OutfeedMode.ALL else queue.last
        taken, threads = [], []

        def work(number):
            for _ in range(30):
                if number % 3 == 0:
                    once(write, lambda: queue.write([tf.constant([1.0, 2.0])]))
                else:
                    taken.extend(np.ravel(once(take, read)[0]).tolist())

        threads = [threading.Thread(target=work, args=[k], daemon=True) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
        if mode is OutfeedMode.LAST:
            assert taken == [2.0] * 120
        else:
            taken += np.ravel(once(take, read)[0]).tolist()
            assert sorted(taken) == [1.0] * (60 + in_a_session) + [2.0] * (60 + in_a_session)
