"""Feeds: the thread that fills them, its ends, and what reaches the consumer."""

import gc
import signal
import threading
import time
import traceback
import weakref
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_keras.ir import TensorSpec
from ipu_keras.runtime import Feed, SuperBatch

SECONDS = 10.0  # what never takes so long unless it hangs
PAIR = (TensorSpec((2,), "float32"), TensorSpec((), "int32"))


def pairs(num_batches):
    """A source of batches that are told apart by their number."""
    return lambda: ([np.full(2, k, np.float32), np.int32(k)] for k in range(num_batches))


class Capsule:
    """A DLPack capsule as NumPy takes it."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **kwargs):
        return self._capsule

    def __dlpack_device__(self):
        return 1, 0


def arrays_of(super_batch):
    return [np.from_dlpack(Capsule(capsule)).copy() for capsule in super_batch.capsules()]


def numbers_of(super_batch):
    """The numbers of the batches of `pairs`."""
    floats, integers = arrays_of(super_batch)
    assert floats.tolist() == [[k, k] for k in integers]
    return integers.tolist()


def feed_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("ipu-")]


def wait_until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    wait_until(lambda: not feed_threads())


class Endless:
    """A source without end that says when it was left."""

    def __init__(self):
        self.left = threading.Event()

    def __call__(self):
        try:
            while True:
                yield [np.zeros(2, np.float32), np.int32(0)]
        finally:
            self.left.set()


# -- what comes out ------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_batches", "num_steps", "expected"),
    [
        (6, 3, [[0, 1, 2], [3, 4, 5]]),
        (5, 1, [[0], [1], [2], [3], [4]]),
        (8, 3, [[0, 1, 2], [3, 4, 5]]),  # the tail of two is dropped
        (2, 3, []),
        (0, 1, []),
    ],
)
@pytest.mark.parametrize("ahead", [True, False])
def test_super_batches(num_batches, num_steps, expected, ahead):
    with Feed(pairs(num_batches), PAIR, num_steps=num_steps, ahead=ahead) as feed:
        assert [numbers_of(super_batch) for super_batch in feed] == expected


def test_a_super_batch_tells_what_it_is():
    with Feed(pairs(6), PAIR, num_steps=3) as feed:
        super_batch = next(feed)
    assert super_batch.num_steps == 3
    assert super_batch.specs == PAIR
    assert [array.shape for array in arrays_of(super_batch)] == [(3, 2), (3,)]


def test_super_batches_that_are_kept_are_not_written_again():
    with Feed(pairs(40), PAIR, num_steps=2, prefetch_depth=1) as feed:
        kept = list(feed)
    assert [k for super_batch in kept for k in numbers_of(super_batch)] == list(range(40))


def test_arrays_of_any_layout_and_dtype():
    matrix = np.arange(6, dtype=np.float64).reshape(2, 3)

    def source():
        yield [matrix.T]
        yield [np.asfortranarray(matrix.T.astype(np.float32))]
        yield [matrix.T.tolist()]

    with Feed(source, (TensorSpec((3, 2), "float32"),), num_steps=3) as feed:
        (stacked,) = arrays_of(next(feed))
    np.testing.assert_array_equal(stacked, [matrix.T] * 3)


def test_a_program_without_inputs():
    with Feed(lambda: [(), (), ()], (), num_steps=2) as feed:
        assert [arrays_of(super_batch) for super_batch in feed] == [[]]


@pytest.mark.parametrize("num_batches", [1, 4])
def test_a_super_batch_of_batches_at_hand(num_batches):
    super_batch = SuperBatch.of(list(pairs(num_batches)()), PAIR)
    assert super_batch.num_steps == num_batches
    assert numbers_of(super_batch) == list(range(num_batches))


def test_a_super_batch_of_nothing():
    with pytest.raises(ValueError, match="`num_steps` and `depth` must be positive"):
        SuperBatch.of([], PAIR)


@settings(max_examples=30, deadline=None)
@given(
    num_batches=st.integers(0, 40),
    num_steps=st.integers(1, 7),
    prefetch_depth=st.integers(1, 5),
    taken=st.integers(0, 12),
)
def test_any_feed_read_to_any_point(num_batches, num_steps, prefetch_depth, taken):
    feed = Feed(pairs(num_batches), PAIR, num_steps=num_steps, prefetch_depth=prefetch_depth)
    with feed:
        numbers = [k for super_batch in islice(feed, taken) for k in numbers_of(super_batch)]
    assert numbers == list(range(num_batches // num_steps * num_steps))[: taken * num_steps]


# -- refusals ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            [np.zeros(3, np.float32), np.int32(0)],
            "Every batch of a feed must have the same shape: (2,) at index 0. Received: (3,). "
            "Batch with `drop_remainder=True`.",
        ),
        (
            [np.zeros(2, np.float32), np.zeros(1, np.int32)],
            "Every batch of a feed must have the same shape: () at index 1. Received: (1,). "
            "Batch with `drop_remainder=True`.",
        ),
        ([np.zeros(2, np.float32)], "Every batch of a feed must have 2 tensors. Received: 1"),
        ([0, 0, 0], "Every batch of a feed must have 2 tensors. Received: 3"),
    ],
)
def test_a_batch_of_another_shape(batch, message):
    with Feed(lambda: [*pairs(3)(), batch], PAIR, num_steps=1) as feed:
        assert [numbers_of(super_batch) for super_batch in islice(feed, 3)] == [[0], [1], [2]]
        with pytest.raises(ValueError) as error:
            next(feed)
    assert str(error.value) == message
    with pytest.raises(ValueError) as error:
        SuperBatch.of([batch], PAIR)
    assert str(error.value) == message


def test_a_batch_that_is_none_is_not_the_end():
    with (
        Feed(lambda: [None], PAIR, num_steps=1) as feed,
        pytest.raises(TypeError, match="NoneType"),
    ):
        next(feed)


@pytest.mark.parametrize("options", [{"num_steps": 0}, {"num_steps": 1, "prefetch_depth": 0}])
def test_feeds_that_cannot_be(options):
    with pytest.raises(ValueError, match="must be positive"):
        Feed(pairs(1), PAIR, **options)


# -- the thread ----------------------------------------------------------------


def test_the_thread_starts_with_the_first_request():
    opened = []

    def source():
        opened.append(threading.current_thread())
        return pairs(4)()

    with Feed(source, PAIR, num_steps=2, name="training") as feed:
        time.sleep(0.05)
        assert not opened
        assert not feed_threads()
        next(feed)
        assert [thread.name for thread in opened] == ["ipu-training"]
        assert opened[0].daemon


def test_a_feed_that_was_opened_reads_when_it_is_asked():
    opened, read = threading.Event(), []

    def source():
        time.sleep(0.02)
        opened.set()

        def batches():
            for batch in pairs(4)():
                read.append(batch)
                yield batch

        return batches()

    with Feed(source, PAIR, num_steps=2) as feed:
        for _ in range(2):
            feed.open()
        assert opened.is_set()
        time.sleep(0.05)
        assert not read
        assert len(feed_threads()) == 1
        assert numbers_of(next(feed)) == [0, 1]
    assert not feed_threads()

    opened.clear()
    read.clear()
    with Feed(source, PAIR, num_steps=2) as feed:
        feed.open()
        assert opened.is_set()
    assert not feed_threads()
    feed.open()
    assert not feed_threads()
    assert not read


def test_a_feed_without_a_thread_reads_where_it_is_asked():
    threads = []

    def source():
        for batch in pairs(5)():
            threads.append(threading.current_thread())
            yield batch

    with Feed(source, PAIR, num_steps=2, ahead=False) as feed:
        feed.open()
        assert not threads
        assert numbers_of(next(feed)) == [0, 1]
        assert threads == [threading.current_thread()] * 2
        assert numbers_of(next(feed)) == [2, 3]
        with pytest.raises(StopIteration):
            next(feed)
    with Feed(source, PAIR, num_steps=2, ahead=False) as feed:
        next(feed)
        feed.close()
        with pytest.raises(StopIteration):
            next(feed)


def test_an_error_of_a_source_without_a_thread_is_raised_at_once():
    with Feed(lambda: [*pairs(1)(), None], PAIR, num_steps=1, ahead=False) as feed:
        next(feed)
        with pytest.raises(TypeError):
            next(feed)


def test_the_thread_ends_with_the_source():
    feed = Feed(pairs(4), PAIR, num_steps=2)
    next(feed)
    wait_until(lambda: not feed_threads())
    assert numbers_of(next(feed)) == [2, 3]
    with pytest.raises(StopIteration):
        next(feed)
    feed.close()


@pytest.mark.parametrize("depth", [1, 3])
def test_the_thread_stays_ahead_by_the_depth(depth):
    read = []

    def source():
        for batch in pairs(100)():
            read.append(batch)
            yield batch

    with Feed(source, PAIR, num_steps=2, prefetch_depth=depth) as feed:
        next(feed)
        wait_until(lambda: len(read) == 2 * (1 + depth))
        time.sleep(0.12)
        assert len(read) == 2 * (1 + depth)


def test_a_dropped_feed_leaves_no_thread():
    source = Endless()
    feed = Feed(source, PAIR, num_steps=2)
    next(feed)
    assert feed_threads()
    del feed
    wait_until(lambda: not feed_threads())
    assert source.left.is_set()


def test_slots_in_use():
    # One that the consumer has, and those that wait.
    addresses = set()
    with Feed(pairs(40), PAIR, num_steps=2, prefetch_depth=1) as feed:
        for super_batch in feed:
            capsule = super_batch.slot.dlpack(0, (2, 2), "float32")
            addresses.add(np.from_dlpack(Capsule(capsule)).ctypes.data)
            del super_batch, capsule
    assert len(addresses) <= 2


# -- close ---------------------------------------------------------------------


def closed_before_its_start():
    return Feed(Endless(), PAIR, num_steps=1)


def closed_before_it_was_asked():
    feed = Feed(Endless(), PAIR, num_steps=1)
    feed.open()
    return feed


def closed_while_the_producer_waits_for_room():
    feed = Feed(Endless(), PAIR, num_steps=1)
    next(feed)
    time.sleep(0.02)
    return feed


def closed_at_the_end():
    feed = Feed(pairs(1), PAIR, num_steps=1)
    assert len(list(feed)) == 1
    return feed


def closed_after_an_error():
    feed = Feed(lambda: 1 / 0, PAIR, num_steps=1)
    with pytest.raises(ZeroDivisionError):
        next(feed)
    return feed


def closed_before_its_error_was_raised():
    feed = Feed(lambda: [*pairs(1)(), None], PAIR, num_steps=1)
    next(feed)
    wait_until(lambda: not feed_threads())
    return feed


def closed_within_a_super_batch():
    """Batches come slowly, so that the first super-batch would take 100 s."""

    def source():
        for batch in pairs(10_000)():
            reading.set()
            time.sleep(0.01)
            yield batch

    reading = threading.Event()
    feed = Feed(source, PAIR, num_steps=10_000)
    feed.open()
    feed._asked.set()
    assert reading.wait(SECONDS)
    return feed


@pytest.mark.parametrize(
    "make",
    [
        closed_before_its_start,
        closed_before_it_was_asked,
        closed_while_the_producer_waits_for_room,
        closed_within_a_super_batch,
        closed_at_the_end,
        closed_after_an_error,
        closed_before_its_error_was_raised,
    ],
)
def test_close(make):
    feed = make()
    began = time.monotonic()
    feed.close()
    feed.close()
    assert time.monotonic() - began < 4.0  # five seconds are given to what does not end
    assert not feed_threads()
    with pytest.raises(StopIteration):
        next(feed)
    assert not feed_threads()


def test_close_while_the_consumer_waits():
    def source():
        released.wait(SECONDS)
        yield from pairs(1)()

    def consume():
        try:
            next(feed)
        except StopIteration:
            ends.append("end")

    ends = []
    released = threading.Event()
    feed = Feed(source, PAIR, num_steps=1)
    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    wait_until(feed_threads)
    closing = threading.Thread(target=feed.close, daemon=True)
    closing.start()
    consumer.join(SECONDS)
    assert ends == ["end"]
    released.set()
    closing.join(SECONDS)


def test_close_by_the_source_itself():
    def source():
        yield from pairs(2)()
        feed.close()
        yield from pairs(2)()

    feed = Feed(source, PAIR, num_steps=4)
    assert list(feed) == []


# -- errors --------------------------------------------------------------------


@pytest.mark.parametrize("error_type", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_error_comes_after_the_good_super_batches(error_type):
    def read_the_disk():
        raise error_type("bad sector")

    def source():
        yield from pairs(5)()
        read_the_disk()

    with Feed(source, PAIR, num_steps=2) as feed:
        assert numbers_of(next(feed)) == [0, 1]
        assert numbers_of(next(feed)) == [2, 3]
        with pytest.raises(error_type, match="bad sector") as error:
            next(feed)
        assert "read_the_disk" in [f.name for f in traceback.extract_tb(error.value.__traceback__)]
        with pytest.raises(StopIteration):
            next(feed)


def test_an_error_in_opening_the_source():
    def source():
        raise OSError("no such file")

    with (
        Feed(source, PAIR, num_steps=1) as feed,
        pytest.raises(OSError, match="no such file"),
    ):
        next(feed)


def test_an_error_that_was_raised_is_not_kept():
    class Mistake(Exception):
        pass

    def source():
        raise Mistake

    gc.disable()  # nothing may be left to it: frames hold the user's arrays
    try:
        feed = Feed(source, PAIR, num_steps=1)
        try:
            next(feed)
        except Mistake as error:
            mistake = weakref.ref(error)
        wait_until(lambda: not feed_threads())
        assert mistake() is None
    finally:
        gc.enable()


def test_ctrl_c_while_waiting_for_the_source():
    def source():
        released.wait(SECONDS)
        return pairs(2)()

    released = threading.Event()
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    with Feed(source, PAIR, num_steps=2) as feed:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(feed)
        timer.join()
        released.set()
        assert numbers_of(next(feed)) == [0, 1]  # nothing was lost


# -- the end of the process ----------------------------------------------------


def test_interpreter_exit(run_forked):
    script = """
        import time
        import numpy as np
        from ipu_keras.ir import TensorSpec
        from ipu_keras.runtime import Feed

        zeros = np.zeros(4, np.float32)

        def waits_for_room():
            while True:
                yield [zeros]

        def returns_soon():
            yield [zeros]
            time.sleep(0.5)
            yield [zeros]

        def never_returns():
            yield [zeros]
            time.sleep(600)

        feeds = [
            Feed(source, (TensorSpec((4,), "float32"),), num_steps=1)
            for source in (waits_for_room, returns_soon, never_returns)
        ]
        for feed in feeds:
            next(feed)
        time.sleep(0.05)
        print(time.time())
    """
    result = run_forked(script)
    assert "Traceback" not in result.stderr
    # Five seconds were given to the source that never returns, which itself takes ten minutes.
    assert time.time() - float(result.stdout) < 100
