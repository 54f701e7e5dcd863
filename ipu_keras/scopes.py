"""Scopes of operations."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Places operations on an IPU device.

    Args:
        device: Name of the TensorFlow device, such as `"/device:IPU:0"`.
    """
    with tf.device(device):
        yield
