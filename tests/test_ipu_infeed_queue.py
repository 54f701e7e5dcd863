"""What infeeds and outfeeds refuse, in sessions as well, and with which words."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras import loops
from ipu_keras.config import IPUConfig, reset_ipu_configuration
from ipu_keras.ipu_compiler import compile as compile_computation
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.scopes import ipu_scope

v1 = tf.compat.v1
errors = tf.errors


@pytest.fixture(autouse=True)
def _configured():
    reset_ipu_configuration()
    IPUConfig().configure_ipu_system()
    yield
    reset_ipu_configuration()


def ones(*shape, dtype="float32"):
    return tf.data.Dataset.from_tensors(np.ones(shape, dtype))


def program(infeed, outfeed=None, steps=2):
    def body(x):
        return None if outfeed is None else outfeed.enqueue(x)

    with ipu_scope("/device:IPU:0"):
        return compile_computation(lambda: loops.repeat(steps, body, [], infeed))


def test_a_type_that_feeds_do_not_carry():
    text = "Unsupported datatype int64 on index 0 of feed operation"
    with pytest.raises(errors.FailedPreconditionError, match=text):
        _ = IPUInfeedQueue(ones(2, dtype="int64")).initializer
    with tf.Graph().as_default(), v1.Session() as session:
        initializer = IPUInfeedQueue(ones(2, dtype="int64")).initializer
        with pytest.raises(errors.FailedPreconditionError, match=text):
            session.run(initializer)


def test_an_infeed_that_was_not_initialized():
    text = r"Did you initialize the infeed_queue .*'infeed_\d+'"
    with tf.Graph().as_default(), v1.Session() as session:
        run = program(IPUInfeedQueue(ones(2)))
        with pytest.raises(errors.FailedPreconditionError, match=text):
            session.run(run)
    infeed = IPUInfeedQueue(ones(2))
    function = tf.function(lambda: loops.repeat(1, lambda x: [], [], infeed) and None)
    with pytest.raises(errors.FailedPreconditionError, match=text):
        IPUStrategy().run(function)


def test_the_end_of_a_dataset_names_the_feed():
    with tf.Graph().as_default(), v1.Session() as session:
        infeed = IPUInfeedQueue(ones(2).repeat(3))
        run = program(infeed)
        session.run(infeed.initializer)
        session.run(run)
        with pytest.raises(
            errors.OutOfRangeError, match=r"Infeed dataset iterator out of range.*'infeed_\d+'"
        ):
            session.run(run)


def test_an_error_of_a_dataset_is_the_users():
    def divided(x):
        with tf.control_dependencies([tf.debugging.assert_greater(x, 2.0, "too small")]):
            return tf.identity(x)

    with tf.Graph().as_default(), v1.Session() as session:
        infeed = IPUInfeedQueue(ones(2).map(divided).repeat())
        run = program(infeed)
        session.run(infeed.initializer)
        with pytest.raises(errors.InvalidArgumentError, match="too small"):
            session.run(run)


def test_the_initializer_of_a_graph_is_asked_for_once():
    with tf.Graph().as_default():
        infeed = IPUInfeedQueue(ones(2))
        assert infeed.initializer is not None
        with pytest.raises(ValueError, match="can only be accessed once"):
            _ = infeed.initializer


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"dataset": [1.0]}, TypeError, "`dataset` must be a tf.data.Dataset"),
        ({"dataset": ones(4).unbatch().batch(3)}, ValueError, "not fully defined.*drop_remainder"),
        (
            {"prefetch_depth": 0},
            ValueError,
            "prefetch_depth must be greater than zero, but it is 0",
        ),
        ({"prefetch_depth": 256}, ValueError, "prefetch_depth must be less than 256"),
        ({"device_ordinal": -1}, ValueError, "Device ordinal must be >= 0.*device_ordinal=-1"),
    ],
)
def test_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        IPUInfeedQueue(**{"dataset": ones(2), **arguments})


def test_nothing_to_delete():
    text = "Infeed with id='infeed_.*' not found"
    with pytest.raises(errors.NotFoundError, match=text):
        _ = IPUInfeedQueue(ones(2)).deleter
    with tf.Graph().as_default(), v1.Session() as session:
        deleter = IPUInfeedQueue(ones(2)).deleter
        with pytest.raises(errors.NotFoundError, match=text):
            session.run(deleter)


def test_an_outfeed_is_written_once_in_a_graph():
    outfeed = IPUOutfeedQueue()
    with pytest.raises(ValueError, match="has not been enqueued"):
        outfeed.dequeue()
    with (
        tf.Graph().as_default(),
        ipu_scope("/device:IPU:0"),
        pytest.raises(ValueError, match="An outfeed can only be enqueued once"),
    ):
        compile_computation(lambda: [outfeed.enqueue(tf.ones(2)), outfeed.enqueue(tf.ones(2))])


def test_the_last_of_nothing():
    text = "Trying to get the last value from an outfeed queue before it was executed"
    with tf.Graph().as_default(), v1.Session() as session:
        outfeed = IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST)
        infeed = IPUInfeedQueue(ones(2).repeat())
        run = program(infeed, outfeed)
        dequeued = outfeed.dequeue()
        with pytest.raises(errors.FailedPreconditionError, match=text):
            session.run(dequeued)
        session.run(infeed.initializer)
        session.run(run)
        assert session.run(dequeued).tolist() == [1.0, 1.0]


def test_what_iterating_needs():
    with pytest.raises(ValueError, match="Expected `outfeed_mode` value to be of"):
        IPUOutfeedQueue(outfeed_mode="all")
    with pytest.raises(RuntimeError, match="can not be iterated over if the `outfeed_mode`"):
        iter(IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST))
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="only be iterated over in eag"):
        iter(IPUOutfeedQueue())


def test_a_computation_outside_of_an_ipus_scope():
    with tf.Graph().as_default(), pytest.raises(Exception, match="not placed on an IPU device"):
        compile_computation(lambda: tf.constant(1.0))


def test_results_are_taken_while_a_program_runs():
    with tf.Graph().as_default(), v1.Session() as session:
        infeed = IPUInfeedQueue(tf.data.Dataset.range(200).map(lambda k: tf.cast(k, tf.int32)))
        outfeed = IPUOutfeedQueue()
        run = program(infeed, outfeed, steps=20)
        dequeued, waited = outfeed.dequeue(), outfeed.dequeue(wait_for_completion=True)
        session.run(infeed.initializer)
        running = threading.Thread(target=lambda: [session.run(run) for _ in range(10)])
        running.start()
        found = []
        while running.is_alive():
            found.extend(session.run(dequeued))
        found.extend(session.run(waited))
    assert found == list(range(200))
