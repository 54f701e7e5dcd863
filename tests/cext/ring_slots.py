"""Slots of rings as arrays and tensors."""

import numpy as np
import tensorflow as tf


class Capsule:
    """A DLPack capsule as NumPy takes it."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **kwargs):
        return self._capsule

    def __dlpack_device__(self):
        return 1, 0


def array_of(slot, index, shape, dtype):
    return np.from_dlpack(Capsule(slot.dlpack(index, shape, dtype)))


def tensor_of(slot, index, shape, dtype):
    return tf.experimental.dlpack.from_dlpack(slot.dlpack(index, shape, dtype))


def address_of(slot, num_bytes):
    return array_of(slot, 0, (num_bytes,), "uint8").ctypes.data


def commit(ring, value):
    """Commits a slot of one tensor and one step that is filled with a byte."""
    slot = ring.claim()
    slot.write(0, 0, np.full(64, value, np.uint8))
    ring.commit(slot)


def value_of(slot):
    return int(array_of(slot, 0, (1, 64), "uint8")[0, 0])
