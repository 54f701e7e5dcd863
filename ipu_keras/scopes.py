"""Scopes of operations."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from ipu_keras._missing_names import missing_attribute

# So that importing a documented name from here that is missing says so, as reading it does.
__path__: list[str] = []


def __getattr__(name: str) -> Any:
    raise missing_attribute(__name__, name)


@contextlib.contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Places operations on an IPU device.

    Args:
        device: Name of the TensorFlow device, such as `"/device:IPU:0"`.
    """
    with tf.device(device):
        yield
