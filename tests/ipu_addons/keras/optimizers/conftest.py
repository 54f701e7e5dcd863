"""Weights that an optimizer trains with known gradients, and an IPU system."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.config import IPUConfig
from ipu_keras.device import DRIVER
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.machine.system import SYSTEM

_SHAPES = ((4, 3), (3,), ())


@pytest.fixture(scope="session")
def trained_by():
    """A function: what an optimizer makes of three weights, with random gradients."""

    def train(optimizer, num_steps=100, dtype="float32"):
        random = np.random.default_rng(0)
        weights = [keras.Variable(random.normal(size=shape), dtype) for shape in _SHAPES]
        optimizer.build(weights)

        @tf.function
        def step(*gradients):
            optimizer.apply(list(gradients), weights)

        for _ in range(num_steps):
            step(*(tf.constant(random.normal(size=shape), dtype) for shape in _SHAPES))
        return [weight.numpy() for weight in weights]

    return train


@pytest.fixture(scope="module")
def ipu_scope():
    """A function: the scope of a strategy for so many replicas, one or two."""
    SYSTEM.connect(DRIVER)
    SYSTEM.reset()
    config = IPUConfig()
    config.auto_select_ipus = [1, 2]
    config.configure_ipu_system()
    yield lambda num_replicas=1: IPUStrategy(f"/device:IPU:{num_replicas - 1}").scope()
    SYSTEM.reset()
