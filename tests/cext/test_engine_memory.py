"""The memory of infeeds: who returns it when, and who gets it next."""

import contextlib
import gc
import os

import numpy as np
from ring_slots import address_of, tensor_of

from ipu_keras import _engine

BIG = 64 << 20  # far above malloc's threshold: freeing it gives it back at once


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def big_ring(depth=1):
    ring = _engine.Ring([BIG], 1, depth)
    slot = ring.claim()
    slot.write(0, 0, np.ones(BIG, np.uint8))
    return ring, slot


@contextlib.contextmanager
def nothing_kept():
    """Resident memory is at the end what it was at the start."""
    gc.collect()
    before = resident_bytes()
    yield before
    gc.collect()
    assert resident_bytes() - before < BIG // 4


def test_a_dropped_ring_returns_its_memory():
    with nothing_kept() as before:
        ring, slot = big_ring()
        assert resident_bytes() - before > BIG // 2
        del slot
        assert resident_bytes() - before > BIG // 2  # kept for the next slot
        del ring


def test_a_ring_dropped_with_committed_slots_returns_its_memory():
    with nothing_kept():
        ring, slot = big_ring()
        ring.commit(slot)
        del slot, ring


def test_a_closed_ring_returns_its_memory():
    with nothing_kept():
        ring, slot = big_ring(depth=2)
        ring.commit(slot)
        del slot
        ring.close()
    assert ring.closed


def test_a_tensor_outlives_its_ring():
    with nothing_kept() as before:
        ring, slot = big_ring()
        tensor = tensor_of(slot, 0, (BIG,), "uint8")
        del slot, ring
        assert resident_bytes() - before > BIG // 2
        assert int(tensor[-1]) == 1
        del tensor


def test_memory_goes_from_a_ring_to_the_next():
    memory = _engine.FeedMemory()
    slot = _engine.Ring([64], 1, 1, memory).claim()
    address = address_of(slot, 64)
    assert memory.unused_bytes == 0
    del slot
    assert memory.unused_bytes == 64
    assert address_of(_engine.Ring([8], 8, 1, memory).claim(), 64) == address


def test_a_block_too_small_is_left_and_the_smallest_that_fits_is_taken():
    memory = _engine.FeedMemory()
    sizes = 256, 64, 1024, 128
    slots = [_engine.Ring([size], 1, 1, memory).claim() for size in sizes]
    addresses = {size: address_of(slot, size) for size, slot in zip(sizes, slots, strict=True)}
    slots.clear()
    assert memory.unused_bytes == sum(sizes)
    taken = _engine.Ring([100], 1, 1, memory).claim()
    assert address_of(taken, 100) == addresses[128]
    assert memory.unused_bytes == sum(sizes) - 128
    larger = _engine.Ring([2048], 1, 1, memory).claim()
    assert address_of(larger, 2048) not in addresses.values()


def test_blocks_of_huge_pages_are_filled():
    memory = _engine.FeedMemory()
    page = 2 << 20
    slot = _engine.Ring([page + 1], 1, 1, memory).claim()
    address = address_of(slot, page + 1)
    assert address % page == 0
    del slot
    assert memory.unused_bytes == 2 * page
    assert address_of(_engine.Ring([2 * page], 1, 1, memory).claim(), 2 * page) == address


def test_only_the_latest_five_blocks_wait_unused():
    memory = _engine.FeedMemory()
    slots = [_engine.Ring([64 * size], 1, 1, memory).claim() for size in range(1, 8)]
    while slots:
        del slots[0]  # the smallest first
    assert memory.unused_bytes == 64 * (3 + 4 + 5 + 6 + 7)


def test_without_a_ring_no_more_than_a_quarter_of_a_gigabyte_waits():
    memory = _engine.FeedMemory()
    ring = _engine.Ring([2 * BIG], 1, 1, memory)
    slots = [ring.claim() for _ in range(3)]
    slots.clear()
    assert memory.unused_bytes == 6 * BIG  # for the ring's next slots
    ring.close()
    assert memory.unused_bytes == 4 * BIG == 1 << 28
    larger = _engine.Ring([5 * BIG], 1, 1, memory)
    slot = larger.claim()
    del larger
    del slot  # released after its ring
    assert memory.unused_bytes == 0


def test_dropped_memory_is_returned_when_its_last_tensor_is_gone():
    with nothing_kept() as before:
        memory = _engine.FeedMemory()
        slots = [_engine.Ring([BIG], 1, 1, memory).claim() for _ in range(2)]
        for slot in slots:
            slot.write(0, 0, np.ones(BIG, np.uint8))
        tensor = tensor_of(slots[0], 0, (BIG,), "uint8")
        del slot, slots
        assert resident_bytes() - before > 3 * BIG // 2
        del memory
        assert BIG // 2 < resident_bytes() - before < 3 * BIG // 2
        assert int(tensor[-1]) == 1
        del tensor


def test_a_tensor_released_on_another_thread(start):
    with nothing_kept():
        ring, slot = big_ring()
        tensors = [tensor_of(slot, 0, (BIG,), "uint8")]
        del slot, ring
        start(tensors.clear).join()


def test_ten_thousand_slots_leave_nothing(start):
    ring = _engine.Ring([4096, 256], 8, 3)
    batch = np.arange(1024, dtype=np.int32), np.zeros(64, np.float32)

    def produce(num_slots):
        for _ in range(num_slots):
            slot = ring.claim()
            for step in range(8):
                slot.write(step, 0, batch[0])
                slot.write(step, 1, batch[1])
            ring.commit(slot)

    def consume(num_slots):
        for _ in range(num_slots):
            slot = ring.take()
            tensor_of(slot, 0, (8, 1024), "int32")
            slot.dlpack(1, (8, 64), "float32")

    start(produce, 11_000)
    consume(1_000)  # TensorFlow and malloc make themselves at home
    gc.collect()
    before = resident_bytes()
    consume(10_000)
    gc.collect()
    assert resident_bytes() - before < 5 << 20
