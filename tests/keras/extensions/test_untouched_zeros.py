"""Variables of zeros that take no memory before they are written."""

import doctest
import resource
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import ipu_keras
from ipu_keras.ipu_strategy import IPUStrategy
from ipu_keras.keras.extensions import untouched_zeros


def resident_bytes():
    pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    return int(pages) * resource.getpagesize()


def test_zeros_take_memory_when_they_are_written():
    before = resident_bytes()
    with untouched_zeros.untouched_zeros():
        state = keras.Variable("zeros", shape=(2**15, 2**11), dtype="float32")
        ones = keras.Variable("ones", shape=(2**18,), dtype="float16")
    assert resident_bytes() - before < 2**28 / 4
    assert keras.ops.max(state) == keras.ops.min(state) == 0
    assert float(keras.ops.min(ones)) == 1
    state.assign_add(keras.ops.ones_like(state))
    assert keras.ops.max(state) == keras.ops.min(state) == 1


def trained(profiled):
    with IPUStrategy().scope():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((512,)), keras.layers.Dense(512)])
        model.compile(keras.optimizers.Adam(0.1), "mse")
    specs = tf.TensorSpec((4, 512)), tf.TensorSpec((4, 512))
    if profiled:
        assert ipu_keras.profile(model, *specs).fits
        assert model.optimizer.built
    data = np.arange(2.0**12, dtype="float32").reshape(8, 512) / 2**12
    model.fit(data, data, batch_size=4, epochs=2, verbose=0)
    return [
        *model.get_weights(),
        *(v.numpy() for v in model.optimizer.variables),
    ]


def test_a_profile_before_training_changes_nothing():
    for mine, other in zip(trained(True), trained(False), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_example():
    assert doctest.testmod(untouched_zeros).failed == 0
