"""Hooks that log what programs send."""

import logging

import numpy as np
import pytest
import tensorflow as tf
from in_sessions import compiled, configure, counting

from ipu_keras import loops
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode
from ipu_keras.ipu_session_run_hooks import IPULoggingTensorHook
from ipu_keras.machine.system import SYSTEM

V1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    configure(1)
    with tf.Graph().as_default() as graph:
        yield graph
    SYSTEM.reset()


class Beginning(V1.train.SessionRunHook):
    def __init__(self, queue):
        self._initializer = queue.initializer

    def after_create_session(self, session, coord):
        session.run(self._initializer)


def logged(hook, log, num_runs, iterations=2):
    """What a hook has logged in calls of a session whose loop runs `log` for 0.0, 1.0 ..."""
    queue = IPUInfeedQueue(counting())
    run = compiled(lambda: loops.repeat(iterations, lambda x: hook.log(log(x)), [], queue))
    found = []

    class Kept(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    logger = logging.getLogger("tensorflow")
    level, kept = logger.level, Kept()
    logger.addHandler(kept)
    V1.logging.set_verbosity(V1.logging.INFO)
    try:
        with V1.train.MonitoredSession(hooks=[Beginning(queue), hook]) as session:
            for _ in range(num_runs):
                session.run(run)
    finally:
        logger.removeHandler(kept)
        logger.setLevel(level)
    return [text for text in found if "=" in text or text.startswith("{")]


def test_the_last_values_after_some_calls():
    hook = IPULoggingTensorHook(every_n_iter=2)
    assert IPULoggingTensorHook.LoggingMode is IPUOutfeedMode
    found = logged(hook, lambda x: {"x": x, "a": 2 * x}, 4)
    # Calls take 0 and 1, 2 and 3 and so on; names are in the user's order.
    assert found == ["x = 1.0, a = 2.0", "x = 5.0, a = 10.0"]


def test_all_values_since_the_last_time():
    hook = IPULoggingTensorHook(
        every_n_iter=2, formatter=str, logging_mode=IPULoggingTensorHook.LoggingMode.ALL
    )
    found = logged(hook, lambda x: {"x": tf.cast(x, tf.int32)}, 3)
    assert found == [str({"x": np.array(values, np.int32)}) for values in ([0, 1], [2, 3, 4, 5])]


def test_values_at_the_end_only_by_their_own_names():
    found = logged(
        IPULoggingTensorHook(at_end=True), lambda x: [tf.identity(x, "a"), tf.identity(x, "b")], 3
    )
    assert found == ["a:0 = 5.0, b:0 = 5.0"]
    found = logged(IPULoggingTensorHook(every_n_secs=1000), lambda x: tf.identity(x, "c"), 3)
    assert found == ["c:0 = 1.0"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Exactly one of `every_n_iter` and `every_n_secs` must be given"),
        ({"every_n_iter": 1, "every_n_secs": 1}, "Received: every_n_iter=1, every_n_secs=1"),
        ({"every_n_iter": 0}, "`every_n_iter` must be a positive integer"),
        ({"every_n_secs": 0}, "`every_n_secs` must be positive. Received: 0"),
    ],
)
def test_wrong_values(given, message):
    with pytest.raises(ValueError, match=message):
        IPULoggingTensorHook(**given)


def test_wrong_uses():
    hook = IPULoggingTensorHook(every_n_iter=1)
    with pytest.raises(RuntimeError, match="call its `log` in the model function"):
        hook.begin()
    with pytest.raises(ValueError, match="An outfeed can only be enqueued once"):
        compiled(lambda: [hook.log(tf.zeros([])), hook.log(tf.ones([]))])
    with pytest.warns(DeprecationWarning, match="`feed_name`"):
        IPULoggingTensorHook(at_end=True, feed_name="losses")
