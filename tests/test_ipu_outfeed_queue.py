"""Outfeeds: what arrives, when, and in which structure; in sessions and eagerly."""

import doctest
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from in_sessions import compiled, configure, opened

from ipu_keras import ipu_outfeed_queue, loops
from ipu_keras.ipu_infeed_queue import IPUInfeedQueue
from ipu_keras.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM

ALL, LAST = IPUOutfeedMode.ALL, IPUOutfeedMode.LAST
BEFORE = "Trying to get the last value from an outfeed queue before it was executed"


@pytest.fixture(autouse=True, scope="module")
def one_ipu():
    configure(1)
    yield
    SYSTEM.reset()


@pytest.fixture
def graph():
    """A session's graph is the current one."""
    with tf.Graph().as_default() as graph:
        yield graph


def counted(queue, num_steps=3, sent=lambda x: x):
    """The program that sends 0.0, 1.0 and so on, or what is made of them."""

    def body(x):
        return x + 1.0, queue.enqueue(sent(x))

    return compiled(lambda: loops.repeat(num_steps, body, [0.0]))


@pytest.mark.parametrize(
    ("arguments", "options", "mode", "ordinal"),
    [
        ((LAST,), {}, LAST, 0),
        ((LAST, 1), {}, LAST, 1),
        ((ALL, 2, 8, True), {}, ALL, 2),
        ((LAST,), {"device_ordinal": 1, "buffer_depth": 2, "optimise_latency": True}, LAST, 1),
    ],
)
def test_the_order_of_later_releases(arguments, options, mode, ordinal):
    queue = IPUOutfeedQueue(*arguments, **options)
    assert (queue._mode, queue._device_ordinal) == (mode, ordinal)


def test_options_of_later_releases_are_checked():
    with pytest.raises(ValueError, match="`buffer_depth` must be a positive integer"):
        IPUOutfeedQueue(ALL, 0, -1)
    with pytest.raises(TypeError, match="`optimise_latency` must be True or False"):
        IPUOutfeedQueue(optimise_latency="yes")


def test_examples():
    assert doctest.testmod(ipu_outfeed_queue).failed == 0


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"outfeed_mode": "all"},
            ValueError,
            "Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` type, but "
            "is <class 'str'>.\nReceived: outfeed_mode='all'",
        ),
        ({"device_ordinal": -1}, ValueError, "Device ordinal must be >= 0"),
        ({"feed_name": ""}, ValueError, "`feed_name` must be a text"),
        ({"replication_factor": 0}, ValueError, "`replication_factor` must be"),
        ({"io_batch_size": 0}, ValueError, "`io_batch_size` must be"),
    ],
)
def test_bad_arguments(options, error, text):
    with pytest.raises(error, match=text):
        IPUOutfeedQueue(**options)


@pytest.mark.parametrize("option", ["replication_factor", "io_batch_size"])
def test_deprecated_arguments_change_nothing(graph, option):
    with pytest.warns(DeprecationWarning, match=f"`{option}` of feeds is deprecated"):
        queue = IPUOutfeedQueue(**{option: 2})
    program, dequeued = counted(queue), queue.dequeue()
    session = opened()
    session.run(program)
    assert session.run(dequeued).tolist() == [0.0, 1.0, 2.0]


STRUCTURES = [
    (lambda x: x, lambda x: x),
    (lambda x: (x, [x, 2 * x]), lambda x: (x, [x, 2 * x])),
    (
        lambda x: {"b": x, "a": (tf.stack([x, x]),)},
        lambda x: {"b": x, "a": (np.stack([x, x], -1),)},
    ),
    (lambda x: tf.cast(x, tf.float16) > 1, lambda x: x > 1),
]


@pytest.mark.parametrize(("sent", "expected"), STRUCTURES)
@pytest.mark.parametrize("mode", [ALL, LAST])
def test_structures(graph, mode, sent, expected):
    queue = IPUOutfeedQueue(outfeed_mode=mode)
    program, dequeued = counted(queue, sent=sent), queue.dequeue()
    session = opened()
    session.run(program)
    numbers = np.arange(3.0, dtype=np.float32)
    wanted = expected(numbers) if mode is ALL else expected(numbers[-1])
    found = session.run(dequeued)
    tf.nest.assert_same_structure(found, wanted)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.asarray(one).dtype == np.asarray(other).dtype


def test_all_results_are_there_once(graph):
    queue = IPUOutfeedQueue()
    program, dequeued = counted(queue, 2), queue.dequeue()
    session = opened()
    assert session.run(dequeued).tolist() == []
    session.run(program)
    session.run(program)
    assert session.run(dequeued).tolist() == [0.0, 1.0, 0.0, 1.0]
    session.run(program)
    assert session.run(dequeued).tolist() == [0.0, 1.0]
    assert session.run(dequeued).tolist() == []


def test_the_last_result_stays(graph):
    queue = IPUOutfeedQueue(outfeed_mode=LAST)
    program, dequeued, deleter = counted(queue), queue.dequeue(), queue.deleter
    session = opened()
    with pytest.raises(tf.errors.FailedPreconditionError, match=BEFORE):
        session.run(dequeued)
    session.run(program)
    assert [session.run(dequeued), session.run(dequeued)] == [2.0, 2.0]
    session.run(deleter)
    with pytest.raises(tf.errors.FailedPreconditionError, match=BEFORE):
        session.run(dequeued)


def test_a_deleter_drops_all_results(graph):
    queue = IPUOutfeedQueue()
    program, dequeued, deleter = counted(queue), queue.dequeue(), queue.deleter
    session = opened()
    session.run(program)
    session.run(deleter)
    assert session.run(dequeued).tolist() == []
    session.run(program)
    assert session.run(dequeued).tolist() == [0.0, 1.0, 2.0]


def test_two_programs_write_one_queue(graph):
    queue = IPUOutfeedQueue()
    ones, tens = counted(queue, 2), counted(queue, 3, lambda x: 10.0 * x)
    dequeued = queue.dequeue()
    session = opened()
    for program in (ones, tens, ones):
        session.run(program)
    assert session.run(dequeued).tolist() == [0.0, 1.0, 0.0, 10.0, 20.0, 0.0, 1.0]
    with pytest.raises(ValueError, match=r"must have the same shapes and types. Received: "):
        counted(queue, sent=lambda x: (x, x))


def test_two_queues_of_one_name_are_two(graph):
    with pytest.warns(DeprecationWarning, match="`feed_name` of feeds is deprecated"):
        queues = [IPUOutfeedQueue(feed_name="results") for _ in range(2)]
    programs = counted(queues[0], 2), counted(queues[1], 2, lambda x: (x, -x))
    dequeued = [queue.dequeue() for queue in queues]
    session = opened()
    session.run(programs)
    first, (second, third) = session.run(dequeued)
    assert [first.tolist(), second.tolist(), third.tolist()] == [[0, 1], [0, 1], [0, -1]]


def test_one_result_a_program(graph):
    queue, text = IPUOutfeedQueue(), "An outfeed can only be enqueued once"

    def twice(x):
        return x, queue.enqueue(x), queue.enqueue(x)

    with pytest.raises(ValueError, match=text):
        compiled(lambda: loops.repeat(2, twice, [0.0]))
    other = IPUOutfeedQueue()

    def two_loops():
        first = loops.repeat(2, lambda x: (x, other.enqueue(x)), [0.0])
        return loops.repeat(2, lambda x: (x, other.enqueue(x)), first)

    with pytest.raises(ValueError, match=text):
        compiled(two_loops)


def test_what_no_program_writes(graph):
    with pytest.raises(ValueError, match="Trying to dequeue an outfeed which has not been enq"):
        IPUOutfeedQueue().dequeue()
    assert IPUOutfeedQueue().deleter is None
    assert not IPUOutfeedQueue().enqueued


def test_a_queue_of_another_graph():
    with tf.Graph().as_default():
        queue = IPUOutfeedQueue()
        counted(queue)
        assert queue.enqueued
    assert not queue.enqueued
    text = "only in the graph in which it was made"
    for use in (queue.dequeue, lambda: queue.deleter, lambda: counted(queue)):
        with tf.Graph().as_default(), pytest.raises(ValueError, match=text):
            use()
    with pytest.raises(ValueError, match=f"{text}.*made in a graph, and is used eagerly"):
        queue.dequeue()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.boolean_mask([x, x], [True, x > 0.0]),
        lambda x: tf.numpy_function(np.abs, [x], tf.float32),
    ],
)
def test_shapes_are_static(graph, function):
    queue = IPUOutfeedQueue()

    def body(x):
        return x, queue.enqueue(function(x))

    with pytest.raises(ValueError, match="sent to an outfeed must have a fully defined shape"):
        compiled(lambda: loops.repeat(2, body, [0.0]))


# Eagerly


def sending(queue):
    @tf.function
    def run():
        return loops.repeat(3, lambda x: (x + 1.0, queue.enqueue({"x": x, "y": [x]})), [0.0])

    return lambda: IPUStrategy().run(run)


def test_iteration():
    queue = IPUOutfeedQueue()
    sending(queue)()
    found = tf.nest.map_structure(float, list(queue))
    assert found == [{"x": x, "y": [x]} for x in (0.0, 1.0, 2.0)]
    assert list(queue) == []


def test_what_cannot_be_iterated():
    text = "IPUOutfeedQueue can only be iterated over in eager mode"
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match=text):
        iter(IPUOutfeedQueue())
    text = "can not be iterated over if the `outfeed_mode` is set to `IPUOutfeedMode.LAST`"
    with pytest.raises(RuntimeError, match=text):
        iter(IPUOutfeedQueue(outfeed_mode=LAST))


def test_the_last_result_eagerly():
    queue = IPUOutfeedQueue(outfeed_mode=LAST)
    run = sending(queue)
    with pytest.raises(ValueError, match="has not been enqueued"):
        queue.dequeue()
    run()
    assert float(queue.dequeue()["x"]) == float(queue.dequeue()["x"]) == 2.0
    assert queue.deleter is None
    with pytest.raises(tf.errors.FailedPreconditionError, match=BEFORE):
        queue.dequeue()


def test_results_are_of_functions():
    with pytest.raises(RuntimeError, match="call `enqueue` in a function"):
        IPUOutfeedQueue().enqueue(1.0)


# While programs run


def slow_feed(seconds=0.01):
    def wait(x):
        time.sleep(seconds)
        return np.float32(x)

    numbers = tf.data.Dataset.range(10**6)
    return IPUInfeedQueue(
        numbers.map(lambda x: tf.ensure_shape(tf.numpy_function(wait, [x], tf.float32), []))
    )


def test_another_thread_takes_results(graph):
    infeed, outfeed = slow_feed(0.001), IPUOutfeedQueue()
    program = compiled(lambda: loops.repeat(20, lambda x: outfeed.enqueue(x), [], infeed))
    dequeued = outfeed.dequeue()
    session = opened(infeed.initializer)
    taken, has_ended = [], threading.Event()

    def take():
        while not has_ended.is_set():
            taken.append(session.run(dequeued))
        taken.append(session.run(dequeued))

    thread = threading.Thread(target=take)
    thread.start()
    for _ in range(5):
        session.run(program)
    has_ended.set()
    thread.join()
    np.testing.assert_array_equal(np.concatenate(taken), np.arange(100.0))
    assert sum(len(one) > 0 for one in taken) > 1


def test_waiting_for_a_program_that_runs(graph):
    infeed, outfeed = slow_feed(), IPUOutfeedQueue()
    program = compiled(lambda: loops.repeat(40, lambda x: outfeed.enqueue(x), [], infeed))
    at_once, when_complete = outfeed.dequeue(), outfeed.dequeue(wait_for_completion=True)
    session = opened(infeed.initializer)
    thread = threading.Thread(target=session.run, args=(program,))
    thread.start()
    time.sleep(0.1)
    assert len(session.run(at_once)) == 0
    assert len(session.run(when_complete)) == 40
    thread.join()


def test_an_error_in_a_thread_that_takes_results(graph):
    queue = IPUOutfeedQueue(outfeed_mode=LAST)
    program, dequeued = counted(queue), queue.dequeue()
    session, errors = opened(), []

    def take():
        try:
            session.run(dequeued)
        except tf.errors.FailedPreconditionError as error:
            errors.append(str(error))

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert BEFORE in errors[0]
    session.run(program)
    assert session.run(dequeued) == 2.0


def test_a_session_that_is_closed_while_a_program_runs(graph):
    infeed, outfeed = slow_feed(), IPUOutfeedQueue()
    program = compiled(lambda: loops.repeat(10**4, lambda x: outfeed.enqueue(x), [], infeed))
    dequeued = outfeed.dequeue(wait_for_completion=True)
    session = opened(infeed.initializer)
    threading.Timer(0.2, session.close).start()
    with pytest.raises(tf.errors.CancelledError):
        session.run(program)
    # Nothing waits for what did not end.
    assert len(opened().run(dequeued)) == 0


def test_data_that_end_with_their_session_are_not_out_of_range(graph, monkeypatch):
    """Now and then, prefetching that is cancelled with a session says that the data ended."""
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(np.zeros(3, np.float32)))
    initializer, outfeed = infeed.initializer, IPUOutfeedQueue()
    program = compiled(lambda: loops.repeat(10, lambda x: outfeed.enqueue(x), [], infeed))
    session, end = opened(initializer), tf.errors.OutOfRangeError
    with pytest.raises(end, match=r"^Infeed dataset iterator out of range"):
        session.run(program)
    session.run(initializer)

    def closed_meanwhile(*arguments):
        monkeypatch.setattr(session, "_closed", True)
        return original(*arguments)

    original = session._call_tf_sessionrun
    monkeypatch.setattr(session, "_call_tf_sessionrun", closed_meanwhile)
    with pytest.raises(tf.errors.CancelledError, match=r"^The session was closed while it ran"):
        session.run(program)


def test_ctrl_c_while_a_program_runs(run_forked):
    found = run_forked(
        """
        import os, signal, threading, time
        import numpy as np, tensorflow as tf
        from ipu_keras import ipu_compiler, loops, scopes
        from ipu_keras.ipu_infeed_queue import IPUInfeedQueue

        signal.signal(signal.SIGINT, signal.default_int_handler)
        tf.compat.v1.disable_v2_behavior()

        def wait(x):
            time.sleep(0.01)
            return np.float32(x)

        def slow(x):
            return tf.ensure_shape(tf.numpy_function(wait, [x], tf.float32), [])

        infeed = IPUInfeedQueue(tf.data.Dataset.range(10**6).map(slow))
        with scopes.ipu_scope("/device:IPU:0"):
            total = ipu_compiler.compile(
                lambda: loops.repeat(60, lambda total, x: total + x, [0.0], infeed))
        with tf.compat.v1.Session() as session:
            session.run(infeed.initializer)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                session.run(total)
            except KeyboardInterrupt:
                print("interrupted", *session.run(total))
        """
    )
    assert found.stdout == f"interrupted {float(sum(range(60, 120)))}\n"
