"""What tests of optimizers need: weights that are updated many times."""

import numpy as np
import pytest
import tensorflow as tf

from ipu_keras.popart.optimizers.rules import Factors, rule_of


def _trained(optimizer, weight, gradients, *, name="w", factors=None, accumulates=None, later=None):
    """A weight and its state after updates.

    Args:
        optimizer: The first one.
        weight: The first value.
        gradients: Of the loss, `(updates, micro-batches, replicas, *weight.shape)`.
        name: Of the weight.
        factors: Its `is_mean` counts; the numbers are those of the gradients.
        accumulates: Whether there are several micro-batches, if that is not by their number.
        later: Optimizers by the update from which on they are used.
    """
    accumulation, replicas = gradients.shape[1:3]
    is_mean = factors is not None and factors.is_mean
    factors = Factors(accumulation, replicas, is_mean)
    accumulates = accumulation > 1 if accumulates is None else accumulates
    rule = rule_of(optimizer, factors, accumulates)
    slots = {each.prefix: tf.constant(each.initial) for each in rule.slots(name, weight)}
    dtypes = {each.prefix: each.dtype for each in rule.slots(name, weight)}
    weight = tf.constant(weight)
    optimizers = {0: optimizer, **(later or {})}
    for update, given in enumerate(gradients):
        if update in optimizers:
            optimizer = optimizers[update]
            scalars = {
                kind: tf.constant(each.value, tf.float32)
                for kind, each in rule_of(optimizer, factors, accumulates).scalars(name).items()
            }
        total = given.sum(axis=(0, 1)) * optimizer.getLossScalingVal()
        total = tf.constant(total / replicas if is_mean else total, weight.dtype)
        total = rule.accumulator.rounded(total, weight.dtype.as_numpy_dtype)
        weight, found = rule.updated(weight, total, slots, scalars)
        slots = {prefix: found[prefix] for prefix in slots}
        assert {prefix: each.dtype.as_numpy_dtype for prefix, each in slots.items()} == dtypes
    return weight.numpy(), {prefix: each.numpy() for prefix, each in slots.items()}


@pytest.fixture
def trained():
    return _trained


@pytest.fixture
def problem():
    """A weight, and gradients of 50 updates of some micro-batches and replicas."""

    def make(accumulation=1, replicas=1, shape=(3, 4), updates=50):
        random = np.random.default_rng(7)
        weight = random.normal(size=shape).astype("float32")
        size = (updates, accumulation, replicas, *shape)
        return weight, random.normal(size=size).astype("float32").astype("float64")

    return make


@pytest.fixture
def close():
    """Asserts that arrays differ by less than a part of the largest number."""

    def check(array, expected, part=1e-6):
        assert array.shape == np.shape(expected)
        difference = np.abs(array - np.asarray(expected, np.float64)).max(initial=0)
        assert difference <= part * np.abs(expected).max(initial=1e-30), difference

    return check
