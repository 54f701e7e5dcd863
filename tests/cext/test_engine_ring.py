"""The memory of infeeds: order, bounds, and who may read or write which slot when."""

import signal
import threading
import time
from collections import deque

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_slots import address_of, array_of, commit, tensor_of, value_of

from ipu_keras import _engine

DTYPES = ("int8", "int32", "uint8", "float16", "float32", "bool")
SECONDS = 10.0  # what never takes so long unless it hangs


@pytest.fixture
def ring():
    """Two slots of 64 bytes each may wait."""
    ring = _engine.Ring([64], 1, 2)
    yield ring
    ring.close()


# -- order and bounds ----------------------------------------------------------


def test_slots_come_in_the_order_of_commits(ring):
    commit(ring, 1)
    commit(ring, 2)
    first = ring.take()
    commit(ring, 3)
    assert [value_of(slot) for slot in (first, ring.take(), ring.take())] == [1, 2, 3]


def test_the_producer_waits_for_room(ring, start):
    def produce():
        for value in range(5):
            commit(ring, value)
            committed.append(value)

    committed = []
    thread = start(produce)
    wait_until(lambda: len(committed) == 2)
    time.sleep(0.12)  # two looks at the ring
    assert committed == [0, 1]
    assert value_of(ring.take()) == 0
    wait_until(lambda: len(committed) == 3)
    time.sleep(0.12)
    assert committed == [0, 1, 2]
    assert [value_of(ring.take()) for _ in range(4)] == [1, 2, 3, 4]
    thread.join(SECONDS)


def wait_until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_consumer_waits_for_a_commit(ring, start):
    start(lambda: (time.sleep(0.1), commit(ring, 7)))
    assert value_of(ring.take()) == 7


def test_the_consumer_is_woken_at_once(ring, start):
    # Far below the interval between two looks for Ctrl-C.
    committed_at = []

    def produce():
        for value in range(5):
            time.sleep(0.01)
            committed_at.append(time.perf_counter())
            commit(ring, value)

    start(produce)
    delays = []
    for k in range(5):
        ring.take()
        delays.append(time.perf_counter() - committed_at[k])
    assert min(delays) < 0.02


def test_layout_of_several_tensors_and_steps():
    ring = _engine.Ring([3, 8, 2], 4, 1)
    slot = ring.claim()
    for step in range(4):
        slot.write(step, 0, np.full(3, step, np.uint8))
        slot.write(step, 1, np.float32([step, -step]))
        slot.write(step, 2, np.float16(step))
    steps = np.arange(4)
    np.testing.assert_array_equal(
        array_of(slot, 0, (4, 3), "uint8"), np.repeat(steps, 3).reshape(4, 3)
    )
    np.testing.assert_array_equal(
        array_of(slot, 1, (4, 2), "float32"), np.stack([steps, -steps], 1)
    )
    np.testing.assert_array_equal(array_of(slot, 2, (4,), "float16"), steps)


@pytest.mark.parametrize("sizes", [[], [0], [0, 1], [1, 63, 64, 65]])
def test_every_tensor_is_aligned(sizes):
    ring = _engine.Ring(sizes, 3, 1)
    slot = ring.claim()
    for index, size in enumerate(sizes):
        # NumPy gives an array without elements an address of its own.
        if size:
            assert array_of(slot, index, (3, size), "uint8").ctypes.data % 64 == 0


# -- ends ----------------------------------------------------------------------


def test_finish_after_commits(ring):
    commit(ring, 1)
    ring.finish()
    assert value_of(ring.take()) == 1
    assert ring.take() is None
    assert ring.take() is None


def test_an_error_comes_after_the_commits_and_once(ring):
    commit(ring, 1)
    ring.finish(OSError("disk"))
    assert value_of(ring.take()) == 1
    with pytest.raises(OSError, match="disk"):
        ring.take()
    assert ring.take() is None


def test_finish_wakes_the_consumer(ring, start):
    taken = []
    thread = start(lambda: taken.append(ring.take()))
    time.sleep(0.02)
    ring.finish()
    thread.join(SECONDS)
    assert taken == [None]


def test_close_wakes_the_consumer(ring, start):
    taken = []
    thread = start(lambda: taken.append(ring.take()))
    time.sleep(0.02)
    ring.close()
    thread.join(SECONDS)
    assert taken == [None]


def test_close_wakes_the_producer(ring, start):
    commit(ring, 1)
    commit(ring, 2)
    claimed = []
    thread = start(lambda: claimed.append(ring.claim()))
    time.sleep(0.02)
    assert not claimed
    ring.close()
    thread.join(SECONDS)
    assert claimed == [None]


def test_a_closed_ring_gives_and_takes_nothing(ring):
    commit(ring, 1)
    slot = ring.claim()
    assert not ring.closed
    ring.close()
    ring.close()
    assert ring.closed
    ring.commit(slot)  # the producer was writing while the ring was closed
    ring.finish(OSError("too late"))
    assert ring.take() is None
    assert ring.claim() is None


def test_close_drops_an_error(ring):
    ring.finish(OSError("nobody asked"))
    ring.close()
    assert ring.take() is None


@pytest.mark.parametrize("waits", ["take", "claim"])
def test_ctrl_c_while_waiting(ring, waits):
    if waits == "claim":
        commit(ring, 1)
        commit(ring, 2)
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        getattr(ring, waits)()
    assert time.monotonic() - began < SECONDS
    timer.join()
    # Nothing is broken: the ring works on.
    if waits == "take":
        commit(ring, 1)
    assert value_of(ring.take()) == 1


def test_a_signal_handler_that_does_not_raise(ring, start):
    caught = []
    previous = signal.signal(signal.SIGALRM, lambda *_: caught.append("alarm"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        start(lambda: (wait_until(lambda: caught), commit(ring, 3)))
        assert value_of(ring.take()) == 3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


# -- mistakes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "num_steps", "depth", "message"),
    [
        ([1], 0, 1, "`num_steps` and `depth` must be positive. Received: num_steps=0, depth=1"),
        ([1], 1, -2, "`num_steps` and `depth` must be positive. Received: num_steps=1, depth=-2"),
        ([4, -1], 1, 1, "`step_sizes` must not be negative. Received: step_sizes=[4, -1]"),
    ],
)
def test_rings_that_cannot_be(sizes, num_steps, depth, message):
    with pytest.raises(ValueError) as error:
        _engine.Ring(sizes, num_steps, depth)
    assert str(error.value) == message


def test_more_memory_than_there_is():
    with pytest.raises(MemoryError, match=f"super-batch of {2**60} bytes"):
        _engine.Ring([2**60], 1, 1).claim()
    with pytest.raises(OverflowError):
        _engine.Ring([2**62], 8, 1)


@pytest.mark.parametrize(
    ("step", "index", "array", "error", "message"),
    [
        (2, 0, np.zeros(2, np.int32), IndexError, "2 steps has no step 2"),
        (-1, 0, np.zeros(2, np.int32), IndexError, "2 steps has no step -1"),
        (0, 1, np.zeros(2, np.int32), IndexError, "1 tensors has no tensor 1"),
        (0, -1, np.zeros(2, np.int32), IndexError, "1 tensors has no tensor -1"),
        (0, 0, np.zeros(3, np.int32), ValueError, "must have 8 bytes. Received: 12 bytes"),
        (0, 0, np.zeros(0, np.int32), ValueError, "must have 8 bytes. Received: 0 bytes"),
        (0, 0, np.zeros((2, 2), np.int32)[:, 0], ValueError, "contiguous"),
        (0, 0, "text", TypeError, "bytes-like"),
    ],
)
def test_writes_that_do_not_fit(step, index, array, error, message):
    slot = _engine.Ring([8], 2, 1).claim()
    slot.write(0, 0, b"12345678")
    slot.write(1, 0, b"abcdefgh")
    with pytest.raises(error, match=message):
        slot.write(step, index, array)
    assert array_of(slot, 0, (2, 8), "uint8").tobytes() == b"12345678abcdefgh"


@pytest.mark.parametrize(
    ("index", "shape", "dtype", "error", "message"),
    [
        (1, (2, 2), "int32", IndexError, "1 tensors has no tensor 1"),
        (-1, (2, 2), "int32", IndexError, "1 tensors has no tensor -1"),
        (0, (2, 3), "int32", ValueError, r"has 16 bytes. Received: shape=\(2, 3\), dtype='int32'"),
        (0, (2,), "int32", ValueError, "has 16 bytes"),
        (0, (-2, -2), "int32", ValueError, "has 16 bytes"),
        (0, (2, 2), "int64", ValueError, "carries int8, .* Received: dtype='int64'"),
        (0, (4,) + (1,) * 16, "int32", ValueError, "at most 16 dimensions. Received: 17"),
        (0, ("2", 2), "int32", TypeError, "not supported between"),
    ],
)
def test_tensors_that_are_not_there(index, shape, dtype, error, message):
    ring = _engine.Ring([8], 2, 1)
    with pytest.raises(error, match=message):
        ring.claim().dlpack(index, shape, dtype)


def test_slots_are_made_by_rings():
    with pytest.raises(TypeError, match="made by the `claim` of a Ring"):
        _engine.Slot()
    with pytest.raises(TypeError, match="None"):
        _engine.Ring([8], 2, 1).commit(None)


# -- tensors -------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (3, 5), (3, 1, 2, 2), (3,) + (1,) * 7])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_reaches_tensorflow(dtype, shape):
    expected = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    slot = _engine.Ring([expected[0].nbytes], 3, 1).claim()
    for step in range(3):
        slot.write(step, 0, expected[step])
    tensor = tensor_of(slot, 0, shape, dtype)
    assert tensor.dtype == dtype
    assert tensor.shape == shape
    np.testing.assert_array_equal(tensor.numpy(), expected)


def test_tensors_share_the_memory():
    slot = _engine.Ring([16], 1, 1).claim()
    tensor = tensor_of(slot, 0, (1, 4), "float32")
    slot.write(0, 0, np.float32([1, 2, 3, 4]))
    np.testing.assert_array_equal(tensor.numpy(), [[1, 2, 3, 4]])


def test_an_output_that_is_the_input_keeps_its_data(ring):
    commit(ring, 5)
    tensor = tensor_of(ring.take(), 0, (1, 64), "uint8")
    output = tf.function(lambda x: tf.reshape(x, [64]))(tensor)
    del tensor
    for value in range(100, 120):
        commit(ring, value)
        ring.take()
    assert output.numpy().tolist() == [5] * 64


def test_a_slot_is_written_again_when_all_its_readers_are_gone():
    ring = _engine.Ring([64, 64], 1, 2)
    slot = ring.claim()
    address = address_of(slot, 64)
    readers = [tensor_of(slot, 0, (1, 64), "uint8"), tensor_of(slot, 1, (1, 16), "float32")]
    readers.append(tf.identity(readers[0]))
    readers.append(slot.dlpack(0, (1, 64), "uint8"))
    readers.append(slot)
    del slot
    while readers:
        assert address_of(ring.claim(), 64) != address
        readers.pop()
    assert address_of(ring.claim(), 64) == address


def test_capsules_that_nobody_consumed_free_their_slot():
    ring = _engine.Ring([64], 1, 1)
    slot = ring.claim()
    address = address_of(slot, 64)
    capsule = slot.dlpack(0, (64,), "uint8")
    del slot
    assert address_of(ring.claim(), 64) != address
    del capsule
    assert address_of(ring.claim(), 64) == address


def test_a_capsule_is_consumed_once():
    capsule = _engine.Ring([64], 1, 1).claim().dlpack(0, (64,), "uint8")
    tensor = tf.experimental.dlpack.from_dlpack(capsule)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.experimental.dlpack.from_dlpack(capsule)
    del capsule
    assert tensor.shape == (64,)


# -- all of it at once ---------------------------------------------------------


@st.composite
def tensors(draw):
    return tuple(draw(st.lists(st.integers(1, 9), max_size=3))), draw(st.sampled_from(DTYPES))


@settings(max_examples=40, deadline=None)
@given(
    specs=st.lists(tensors(), min_size=1, max_size=4),
    num_steps=st.integers(1, 6),
    depth=st.integers(1, 4),
    num_slots=st.integers(0, 30),
    num_kept=st.integers(0, 5),
    stop_after=st.none() | st.integers(0, 10),
)
def test_what_goes_in_comes_out(specs, num_steps, depth, num_slots, num_kept, stop_after):
    """One producer and one consumer that keeps some tensors, and perhaps closes early."""
    random = np.random.default_rng(num_slots)
    sent = [
        [random.integers(0, 2, (num_steps, *shape)).astype(dtype) for shape, dtype in specs]
        for _ in range(num_slots)
    ]
    sizes = [int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in specs]
    ring = _engine.Ring(sizes, num_steps, depth)

    def produce():
        for arrays in sent:
            slot = ring.claim()
            if slot is None:
                return
            for step in range(num_steps):
                for index, array in enumerate(arrays):
                    slot.write(step, index, array[step])
            ring.commit(slot)
        ring.finish()

    def take():
        slot = ring.take()
        return slot and [
            tensor_of(slot, index, (num_steps, *shape), dtype)
            for index, (shape, dtype) in enumerate(specs)
        ]

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
    expected = sent[:stop_after]
    received = deque(maxlen=1 + num_kept)
    for arrays in expected:
        received.append((arrays, take()))
        for arrays, tensors in received:
            for array, tensor in zip(arrays, tensors, strict=True):
                np.testing.assert_array_equal(tensor.numpy(), array)
    if len(expected) == num_slots:
        assert take() is None
    ring.close()
    producer.join(SECONDS)
    assert not producer.is_alive()
